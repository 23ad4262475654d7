"""QEMU's threads take turns on a CPU of their own, where the machine lets them."""

import os
from pathlib import Path

import pytest

from testbed.vm.virtual import machine
from testbed.vm.virtual.machine import taking_turns


@pytest.fixture(autouse=True)
def cache_of_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTBED_CACHE_DIR", str(tmp_path))


def cpus(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(numbers))


def test_machines_have_a_cpu_each_from_the_last_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_refused", lambda policy: "")
    cpus(monkeypatch, 0, 2, 5)
    with taking_turns() as first, taking_turns() as second, taking_turns() as third, taking_turns() as fourth:
        assert [turns.prefix[-1] for turns in (first, second, third, fourth)] == ["5", "2", "0", "0"]
        assert first.prefix[:3] == ("chrt", "--fifo", "1")
    with taking_turns() as again:
        assert again.prefix[-1] == "5"


def test_one_cpu_is_not_taken_from_everybody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    cpus(monkeypatch, 3)
    with taking_turns() as turns:
        assert (turns.prefix, turns.lacks) == ((), "this machine has one CPU")


@pytest.mark.process
def test_who_may_not_is_told_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cpus(monkeypatch, 0, 1)
    said = "chrt: failed to set policy: Operation not permitted"
    (tmp_path / "chrt").write_text(f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")
    (tmp_path / "chrt").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with taking_turns() as turns:
        assert turns.prefix == ()
        assert turns.lacks == said
    (tmp_path / "chrt").unlink()
    with taking_turns() as turns:
        assert turns.lacks == "chrt is not installed"
