"""The verdict of a scenario that has ended while no page looked."""

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
from fake_source import FakeSource

from testbed.api.console.views import job

JOB = {"pid": 7, "scenario": "s", "directory": None, "command": "run s.yml", "lab": "demo"}


class FakeWatched(job.WatchedLab):
    """A lab that is watched by nobody's threads; `told` is what pages were told last."""

    def __init__(self, told: object) -> None:
        self.name = "demo"
        self._told = told

    def latest_view(self, view: str) -> object:
        assert view == "job"
        return self._told


def published(monkeypatch: pytest.MonkeyPatch, told: object, now: list[Any]) -> list[Any]:
    """What a page is told that looks again, within a turn."""
    found: list[Any] = []
    monkeypatch.setattr(job, "jobs_on", lambda source: now)
    monkeypatch.setattr(job, "INTERVAL_S", 0.001)
    stop = threading.Event()

    def publish(data: Any) -> None:
        found.append(data)
        stop.set()

    timer = threading.Timer(0.5, stop.set)
    timer.start()
    job._watch(FakeWatched(told), publish, stop)
    timer.cancel()
    return found


def test_a_run_that_ended_while_the_tab_was_hidden_is_told_with_its_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = published(monkeypatch, {"jobs": [JOB], "ended": []}, [])
    assert found["jobs"] == [] and [one["scenario"] for one in found["ended"]] == ["s"]


def test_verdicts_of_before_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = published(monkeypatch, {"jobs": [JOB], "ended": [{"scenario": "old"}]}, [])
    assert [one["scenario"] for one in found["ended"]] == ["old", "s"]


def test_nothing_is_told_again_where_nothing_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    assert published(monkeypatch, {"jobs": [JOB], "ended": []}, [JOB]) == []


def test_a_queue_that_is_empty_now_holds_a_flow_up_if_it_was_deep_a_moment_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    source = FakeSource()
    places = list(source.shape.places)
    ports = [(*places[0].split(":"), 7), (*places[1].split(":"), 0), ("elsewhere", "eth1", 3)]
    rows: Any = [
        SimpleNamespace(node=node, interface=interface, queue_bytes=now, rate_bps=8_000)
        for node, interface, now in ports
    ]
    last = source.now().frame.t
    monkeypatch.setattr(time, "time", lambda: last + job.HELD_S - 0.1)
    deepest = job._deepest(source, rows)
    assert deepest == [7, 640, 3]
    assert job._waits(rows, deepest) == [0.007, 0.64, 0.003]
    monkeypatch.setattr(time, "time", lambda: last + job.HELD_S + 0.1)
    assert job._deepest(source, rows) == [7, 0, 3], "of what was read before that time nothing is told"
