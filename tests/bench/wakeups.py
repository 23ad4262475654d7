"""How late the machine wakes a real-time thread that sleeps: the floor under everything that reacts to an event.

As a program it sleeps and wakes until its standard input closes, and prints the 99th percentile of its delays.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

PERIOD_MS = 2
PRIORITY = 60
"""Above the pause agent's: nothing of ours delays it."""


MOST_LATE_MS = 0.3
"""At the 99th percentile. Where the machine is later, what reacts to events cannot show how fast it is itself."""


def doubt_of(late_ms: float) -> str:
    """Why a reaction measured meanwhile is not to be trusted; "" where it is."""
    return f"the machine wakes a real-time thread {late_ms:.2g} ms late" if late_ms > MOST_LATE_MS else ""


class Wakeups:
    """Measures from its making until `end`."""

    def __init__(self) -> None:
        argv = [sys.executable, str(Path(__file__))]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def end(self) -> float:
        """The 99th percentile in milliseconds."""
        out, _ = self._process.communicate(timeout=10)
        return float(out)


def main() -> None:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    poll = select.poll()
    poll.register(0)
    late = []
    started = time.monotonic_ns()
    while not poll.poll(PERIOD_MS):
        now = time.monotonic_ns()
        late.append(now - started - PERIOD_MS * 1_000_000)
        started = time.monotonic_ns()
    late.sort()
    print(late[len(late) * 99 // 100] / 1e6)


if __name__ == "__main__":
    main()
