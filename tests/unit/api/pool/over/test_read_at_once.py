"""Answers of several machines may come at once, each in a thread: the first of a kind is read whole, in each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[5]
READERS = """
import os, sys, threading
from testbed.api.pool.over.messages import ANSWERS, line_of, read_line
from testbed.api.pool.over.run_messages import PartSeen
from testbed.run.machine.cpu import SoftnetCounts
nothing = dict.fromkeys(("cpu", "growth", "samples", "port_samples", "lateness", "balance", "pausing"))
lists = dict.fromkeys(("sent", "dropped", "guarded", "marking", "touches"), ())
line = line_of(PartSeen(seconds=1.0, softnet=SoftnetCounts(dropped=0, squeezed=0), **nothing, **lists))
sys.setswitchinterval(1e-6)

def read_at_once():
    together = threading.Barrier(4)
    def read():
        together.wait()
        read_line(line, ANSWERS)
    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    os._exit(0)

ends = []
for _ in range(25):
    if not (child := os.fork()):
        read_at_once()
    ends.append(os.waitpid(child, 0)[1])
print(*ends)
"""


def test_the_first_answers_may_be_read_at_once() -> None:
    """Each try is a process of its own, in which nothing was read before: more than half of them ended by SIGSEGV."""
    done = subprocess.run(
        [sys.executable, "-c", READERS],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout.split() == ["0"] * 25, done.stdout + done.stderr
