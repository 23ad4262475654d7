"""Transfers inside a host, over its scale-up network: copies in memory that take the time of the emulated link.

A rank has one link each way into a switch that joins all (NVSwitch); transfers that share one follow one another.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from testbed.worker.program import Step


class InsideCopies:
    """Calls `deliver` when a transfer ends, with the time at which it was due. With `rate_bps` 0 it ends at once."""

    def __init__(self, rate_bps: int, deliver: Callable[[Step, int], None]) -> None:
        self._rate_bps = rate_bps
        self._deliver = deliver
        self._sends_until: dict[int, int] = {}
        self._receives_until: dict[int, int] = {}
        self._ends: list[tuple[int, int, Step]] = []

    def send(self, step: Step, now: int) -> None:
        """Begin a transfer at `now`, or as soon as both its links are free."""
        assert step.destination is not None
        begin = max(now, self._sends_until.get(step.source, 0), self._receives_until.get(step.destination, 0))
        end = begin + (-(-step.size_bytes * 8 * 10**9 // self._rate_bps) if self._rate_bps else 0)
        self._sends_until[step.source] = self._receives_until[step.destination] = end
        heapq.heappush(self._ends, (end, step.number, step))

    def turn(self, now: int) -> None:
        """End every transfer that is due by now."""
        while self._ends and self._ends[0][0] <= now:
            due, _, step = heapq.heappop(self._ends)
            self._deliver(step, due)

    def next_due(self) -> int | None:
        return self._ends[0][0] if self._ends else None
