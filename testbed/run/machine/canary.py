"""The lateness with which the machine wakes a real-time thread that sleeps: the floor under everything that happens on
time.

As a program (`python -m testbed.run.machine.canary`) it sleeps and wakes until its standard input closes. A line on its
standard input is answered by one line: the sorted delays since the line before, in nanoseconds, thinned to percentiles.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Self

from testbed.base.descriptors import wait_readable

PERIOD_MS = 2
PRIORITY = 60
"""SCHED_FIFO, above whatever else of ours is real-time: what delays it is not ours."""
ANSWER_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """The lateness of wake-ups, in nanoseconds."""

    count: int
    p50_ns: int
    p99_ns: int
    max_ns: int


class Canary:
    """Sleeps and wakes beside whatever is measured. A context; `read` ends one measurement and begins the next."""

    def __init__(self, period_ms: int = PERIOD_MS) -> None:
        """`period_ms` is how long it sleeps each time: whoever only looks on has it sleep longer."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "testbed.run.machine.canary", str(period_ms)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,  # a terminal's Ctrl-C is not for it
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def read(self) -> Lateness | None:
        """Since the last reading; None where it has nothing to say, or died."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with contextlib.suppress(OSError, ValueError, KeyError):
            self._process.stdin.write(b"\n")
            self._process.stdin.flush()
            if wait_readable(self._process.stdout, ANSWER_S):
                found = json.loads(self._process.stdout.readline())
                return Lateness(**found) if found["count"] else None
        return None


def main() -> None:
    period_ms = int(sys.argv[1]) if len(sys.argv) > 1 else PERIOD_MS
    with contextlib.suppress(OSError):  # without the privilege it tells what an ordinary process sees
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    poll = select.poll()
    poll.register(0)
    late: list[int] = []
    while True:
        before = time.monotonic_ns()
        ready = poll.poll(period_ms)
        if not ready:
            late.append(time.monotonic_ns() - before - period_ms * 1_000_000)
            continue
        if not os.read(0, 1):
            return
        late.sort()
        found = Lateness(
            count=len(late),
            p50_ns=_percentile(late, 50),
            p99_ns=_percentile(late, 99),
            max_ns=late[-1] if late else 0,
        )
        text = {name: getattr(found, name) for name in Lateness.__slots__}
        os.write(1, json.dumps(text).encode() + b"\n")
        late = []


def _percentile(values: list[int], share: int) -> int:
    return values[min(len(values) * share // 100, len(values) - 1)] if values else 0


if __name__ == "__main__":
    main()
