"""Errors that nobody has foreseen: told on pages and standard error, and the work goes on."""

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Self

import pytest

from testbed.api.console import failures
from testbed.api.console.failures import PartFailure, PartFailures
from testbed.api.console.live import event_reading
from testbed.api.console.live.event_reading import EventWatch
from testbed.api.console.machine import labs, trust
from testbed.api.console.machine.labs import LabsWatch
from testbed.api.console.machine.trust import TrustWatch
from testbed.base.errors import DriverError, LabNotFound
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.events import LabEvent

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


class FakeLab:
    """A lab of a name, in the state that a test says."""

    name = "demo"

    def __init__(self, exists: bool = True) -> None:
        self.state = SimpleNamespace(exists=lambda name: exists)


class FakeStream:
    """The events of a lab: `first`, and then nothing until it is stopped."""

    def __init__(self, first: LabEvent) -> None:
        self._first = first
        self._ended = threading.Event()

    def __iter__(self) -> Iterator[LabEvent]:
        yield self._first
        self._ended.wait(PATIENCE_S)

    def event(self, node: str, kind: str, subject: str, detail: str = "") -> LabEvent:
        return LabEvent(time="now", lab="demo", node=node, kind=kind, subject=subject, detail=detail)

    def stop(self) -> None:
        self._ended.set()

    def close(self) -> None: ...


DOWN = LabEvent(time="now", lab="demo", node="leaf1", kind="link-down", subject="up1")


class Followed:
    """Watches a lab whose stream fails with `errors`, one after another, and then tells `DOWN`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, errors: list[Exception], changing: list[bool]) -> None:
        self.told, self.heard, self.kinds, self.opened = Told(), threading.Event(), list[str](), list[str]()
        self.began = 0
        self._changing = changing

        def stream(lab: Any) -> FakeStream:
            if errors:
                raise errors.pop(0)
            return FakeStream(DOWN)

        monkeypatch.setattr(event_reading, "EventStream", stream)
        monkeypatch.setattr(event_reading, "RETRY_S", 0.01)
        monkeypatch.setattr(RunningLab, "open", self._open)
        monkeypatch.setattr(event_reading, "changers", lambda state, name: self._changing.pop(0))
        self.watch = EventWatch(FakeLab(), self._happened, self._begin, PartFailures(self.told))  # type: ignore[arg-type]

    def _open(self, name: str, state: Any) -> FakeLab:
        self.opened.append(name)
        return FakeLab()

    def _happened(self, event: LabEvent) -> None:
        self.kinds.append(event.kind)
        if event.kind == "link-down":
            self.heard.set()

    def _begin(self) -> None:
        self.began += 1


@pytest.mark.parametrize("error", [DriverError("no such namespace"), FileNotFoundError("/run/netns/demo-leaf1")])
def test_the_thread_of_events_waits_for_the_end_of_a_change(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """A namespace is missing in the middle of a change: no failure is told, and nothing after the change is missed."""
    followed = Followed(monkeypatch, [error, error], changing=[True, True])
    followed.watch.start()
    assert followed.heard.wait(PATIENCE_S)
    followed.watch.close()
    assert followed.kinds == ["notifications-lost", "link-down"] and followed.began == 1
    assert followed.opened == ["demo", "demo"], "the lab as it is now, not the one that was read before the change"
    assert followed.told.times == 0


def test_what_hinders_it_and_is_no_change_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    followed = Followed(monkeypatch, [OSError(24, "Too many open files")], changing=[False])
    followed.watch.start()
    assert followed.heard.wait(PATIENCE_S)
    followed.watch.close()
    assert followed.kinds == ["notifications-lost", "link-down"]
    assert followed.told.times == 2 and followed.told.now == ()
    assert "error in the events of demo, which is tried again" in capsys.readouterr().err


def test_the_thread_of_events_ends_with_its_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    followed = Followed(monkeypatch, [FileNotFoundError("/run/netns/demo-leaf1"), LabNotFound("demo")], changing=[True])
    followed.watch.start()
    followed.watch._thread.join(PATIENCE_S)
    assert not followed.watch._thread.is_alive() and followed.kinds == [] and followed.told.times == 0


def test_the_thread_of_events_goes_on_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    followed = Followed(monkeypatch, [], changing=[])
    real, times = followed._happened, [0]

    def happened(event: LabEvent) -> None:
        times[0] += 1
        if times[0] == 1:
            broken()
        real(event)

    monkeypatch.setattr(followed.watch, "_happened", happened)
    followed.watch.start()
    assert followed.heard.wait(PATIENCE_S)
    followed.watch.close()
    assert followed.told.times == 2 and followed.told.now == () and followed.began == 2
    assert followed.kinds == ["notifications-lost", "link-down"]
    assert failures.RETRY_S > 0
