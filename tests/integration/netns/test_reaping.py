"""A destroy returns when what it ended is gone from the process table, also where that is slow, or says what stays."""

import functools
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from testbed.base.linux.processes import await_reaping
from testbed.lab.core.deploy import lifecycle
from testbed.lab.core.deploy.lifecycle import destroy_lab

pytestmark = [pytest.mark.netns]

PAUSE_S = 1.0
PARENT = f"""
import os, signal, subprocess, sys, time
stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(300)"
enter = ["nsenter", f"--net=/run/netns/{{sys.argv[1]}}"]
children = [subprocess.Popen([*enter, sys.executable, "-c", stubborn], stdout=subprocess.PIPE) for _ in range(4)]
for child in children:
    child.stdout.readline()  # it has entered the namespace
os.kill(children[0].pid, signal.SIGSTOP)
print(*(child.pid for child in children), flush=True)
if sys.argv[2] == "never":
    sys.stdin.read()
os.wait()  # as busybox init does: one, then a pause, then the others
time.sleep({PAUSE_S})
for child in children[1:]:
    os.wait()
"""


@contextmanager
def children_of_a_parent_that_reaps(how: str, namespace: str) -> Iterator[list[int]]:
    """The numbers of processes in the namespace, which do not end by themselves; one of them is stopped."""
    argv = [sys.executable, "-c", PARENT, namespace, how]
    parent = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    try:
        yield [int(word) for word in parent.stdout.readline().split()]
    finally:
        parent.communicate()


def in_the_process_table(pids: list[int]) -> list[int]:
    return [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_a_destroy_waits_for_a_parent_that_reaps_late(sandbox: Any) -> None:
    lab = sandbox.deploy(sandbox.tiny(), wait=False, routing=False).lab
    with children_of_a_parent_that_reaps("late", lab.namespace("p1-s1-h1")) as pids:
        started = time.monotonic()
        outcome = destroy_lab(lab.name, sandbox.state)
        assert in_the_process_table(pids) == []
        assert outcome.remaining == ()
        assert time.monotonic() - started >= PAUSE_S


def test_a_destroy_says_who_does_not_reap(sandbox: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "await_reaping", functools.partial(await_reaping, timeout_s=0.2))
    lab = sandbox.deploy(sandbox.tiny(), wait=False, routing=False).lab
    with children_of_a_parent_that_reaps("never", lab.namespace("p1-s1-h1")) as pids:
        outcome = destroy_lab(lab.name, sandbox.state)
        assert in_the_process_table(pids) == pids
        (said,) = outcome.remaining
        assert re.match(
            r"4 ended processes stay in the process table, as process \d+ \(python\S*\) does not reap", said
        )
        assert not sandbox.state.exists(lab.name)


def test_children_of_the_process_that_destroys_are_left_to_it(sandbox: Any) -> None:
    lab = sandbox.deploy(sandbox.tiny(), wait=False, routing=False).lab
    child = lab.spawn("p1-s1-h1", ["sleep", "300"])
    outcome = destroy_lab(lab.name, sandbox.state)
    assert outcome.remaining == ()
    assert child.pid in [process.pid for process in outcome.ended]
    assert child.wait(5) < 0
