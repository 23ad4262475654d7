"""Clocks of other machines, compared with this one's by exchanges: a question, their time, the answer.

Their time was read somewhere between the two: half the round trip is the most by which the middle may be wrong. Of
several exchanges the shortest tells most (RFC 5905, section 10). A run has one comparison before and one after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

EXCHANGES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """By how much another machine's CLOCK_MONOTONIC is ahead of ours, and by how much that may be wrong, ns."""

    ahead_ns: int
    error_ns: int


def compare_clock(
    ask: Callable[[], int], *, exchanges: int = EXCHANGES, clock_ns: Callable[[], int] = time.monotonic_ns
) -> ClockReading:
    """Compare our clock with the one that `ask` reads, by the shortest of several exchanges."""
    found: list[ClockReading] = []
    for _ in range(exchanges):
        begin = clock_ns()
        theirs = ask()
        end = clock_ns()
        found.append(ClockReading(ahead_ns=theirs - (begin + end) // 2, error_ns=(end - begin + 1) // 2))
    return min(found, key=lambda one: one.error_ns)


def over_a_run(before: ClockReading, after: ClockReading) -> ClockReading:
    """Return one difference for all of a run: the middle of those before and after it, and as much more error as
    either is away from that."""
    ahead_ns = (before.ahead_ns + after.ahead_ns) // 2
    away_ns = max(abs(one.ahead_ns - ahead_ns) for one in (before, after))
    return ClockReading(ahead_ns=ahead_ns, error_ns=max(before.error_ns, after.error_ns) + away_ns)
