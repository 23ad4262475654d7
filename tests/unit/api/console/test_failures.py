"""Errors that nobody has foreseen: told on pages and standard error, and the work goes on."""

from __future__ import annotations

import threading
from typing import Any, Self

import pytest

from testbed.api.console import failures
from testbed.api.console.failures import PartFailure, PartFailures
from testbed.api.console.live import event_reading
from testbed.api.console.live.event_reading import EventWatch
from testbed.api.console.machine import labs, trust
from testbed.api.console.machine.labs import LabsWatch
from testbed.api.console.machine.trust import TrustWatch

PATIENCE_S = 5.0


class Told:
    """What pages were told last, and how often."""

    def __init__(self) -> None:
        self.now: tuple[PartFailure, ...] = ()
        self.times = 0

    def __call__(self, found: tuple[PartFailure, ...]) -> None:
        self.now = found
        self.times += 1


class FakeCanary:
    """A canary that is no process, and tells nothing."""

    def __init__(self, period_ms: float) -> None: ...
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...
    def read(self) -> None:
        return None


def broken() -> None:
    raise ZeroDivisionError("of a mistake")


def test_a_part_that_fails_is_told_once_until_it_works_again(capsys: pytest.CaptureFixture[str]) -> None:
    told = Told()
    parts = PartFailures(told)
    for _ in range(3):
        assert not parts.run("the counters of demo", broken)
    assert [(one.part, one.error) for one in told.now] == [("the counters of demo", "ZeroDivisionError: of a mistake")]
    assert told.times == 1
    said = capsys.readouterr().err
    assert said.count("error in the counters of demo") == 1 and "Traceback" in said
    assert parts.run("the counters of demo", lambda: None)
    assert told.now == () and told.times == 2


def test_another_error_of_a_part_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    told = Told()
    parts = PartFailures(told)
    parts.run("it", broken)
    parts.note("it", ValueError("another"))
    assert [one.error for one in told.now] == ["ValueError: another"]
    assert capsys.readouterr().err.count("error in it") == 2


def test_parts_of_a_lab_that_has_gone_are_forgotten(capsys: pytest.CaptureFixture[str]) -> None:
    parts = PartFailures(Told())
    for part in ("the state of demo", "the events of demo", "the state of other"):
        parts.run(part, broken)
    parts.forget("demo")
    assert [one.part for one in parts.latest] == ["the state of other"]


def test_the_thread_of_trust_goes_on_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    told, seen, failed = Told(), threading.Event(), threading.Event()
    monkeypatch.setattr(trust, "_IDLE_EVERY_S", 0.01)
    monkeypatch.setattr(trust, "EVERY_S", 0.01)
    monkeypatch.setattr(trust, "Canary", FakeCanary)
    real, times = trust.read_cpu_times, [0]

    def read() -> Any:
        times[0] += 1
        if times[0] == 1:
            failed.set()
            broken()
        return real()

    monkeypatch.setattr(trust, "read_cpu_times", read)
    watch = TrustWatch(lambda _: seen.set(), lambda: True, PartFailures(told))
    watch.start()
    assert failed.wait(PATIENCE_S) and seen.wait(PATIENCE_S)
    watch.close()
    assert told.times == 2 and told.now == ()


def test_the_thread_of_the_list_of_labs_goes_on_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    told, seen = Told(), threading.Event()
    monkeypatch.setattr(labs, "EVERY_S", 0.01)
    times = [0]

    def read(_: Any) -> tuple[Any, ...]:
        times[0] += 1
        if times[0] == 1:
            broken()
        return ("a row",)

    monkeypatch.setattr(labs.LabList, "read", read)
    watch = LabsWatch(None, lambda _: seen.set(), lambda: True, lambda _: (), PartFailures(told))  # type: ignore[arg-type]
    watch.start()
    assert seen.wait(PATIENCE_S)
    watch.close()
    assert told.times == 2 and told.now == ()


def test_the_thread_of_events_goes_on_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    told, heard, ended = Told(), threading.Event(), threading.Event()
    times = [0]

    class Stream:
        def __init__(self, lab: Any) -> None: ...
        def __iter__(self) -> Any:
            yield FakeEvent()
            ended.wait(PATIENCE_S)

        def stop(self) -> None:
            ended.set()

        def close(self) -> None: ...

    class FakeEvent:
        kind = "link-down"

    class FakeLab:
        name = "demo"

    def happened(_: Any) -> None:
        times[0] += 1
        if times[0] == 1:
            broken()
        heard.set()

    monkeypatch.setattr(event_reading, "EventStream", Stream)
    monkeypatch.setattr(event_reading, "RETRY_S", 0.01)
    watch = EventWatch(FakeLab(), happened, lambda: None, PartFailures(told))  # type: ignore[arg-type]
    watch.start()
    assert heard.wait(PATIENCE_S)
    watch.close()
    assert told.times == 2 and told.now == ()
    assert failures.RETRY_S > 0
