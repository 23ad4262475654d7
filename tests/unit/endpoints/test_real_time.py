"""Real-time priority of a process that many hosts share: the first asks for it, the last lets go of it."""

import os

import pytest

from testbed.endpoints.real_time import PRIORITY, RealTime


def test_the_first_begins_it_and_the_last_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "sched_setscheduler", lambda _, policy, param: asked.append((policy, param.sched_priority)))
    real_time = RealTime()
    real_time.begin()
    real_time.begin()
    assert asked == [(os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, PRIORITY)]
    real_time.end()
    assert len(asked) == 1
    real_time.end()
    assert asked[1:] == [(os.SCHED_OTHER, 0)]
    real_time.begin()
    assert len(asked) == 3


def test_without_the_privilege_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    real_time = RealTime()
    real_time.begin()
    real_time.end()
