"""The verdict of a scenario that has ended while no page looked."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from testbed.console.views import job

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
