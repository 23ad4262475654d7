"""The time that the medium of a namespace takes: a rate, a latency and an I/O depth that are emulated.

A command waits for one of `depth` places, takes the latency there, and then its share of the rate, in order. All of it
is known when the command comes, so there is nothing to do but to wait until its time. A clock that was not looked at
for a while gives no credit: the rate holds over any interval that begins with a command.
"""

from __future__ import annotations

import heapq
from typing import Annotated

from msgspec import Meta, Struct

_S = 1_000_000_000


class MediaConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`rate` in bytes/s, 0 for no limit; `latency_us` of each command; `depth` commands at once, 0 for no limit."""

    rate: Annotated[int, Meta(ge=0, le=1 << 62)] = 0
    latency_us: Annotated[int, Meta(ge=0, le=60_000_000)] = 0
    depth: Annotated[int, Meta(ge=0, le=1 << 16)] = 0


class Media:
    """Times in ns."""

    def __init__(self, config: MediaConfig) -> None:
        self.config = config
        self._rate_free_at = 0
        self._ends: list[int] = []
        """When the commands in it end: a heap."""

    def submit(self, length: int, now: int) -> int:
        """A command of so many bytes comes; return when it ends."""
        config = self.config
        begins = now
        ends = self._ends
        if config.depth:
            while ends and ends[0] <= now:
                heapq.heappop(ends)
            if len(ends) >= config.depth:
                begins = heapq.heappop(ends)
        finish = begins + config.latency_us * 1000
        if config.rate:
            finish = max(finish, self._rate_free_at) + length * _S // config.rate
            self._rate_free_at = finish
        if config.depth:
            heapq.heappush(ends, finish)
        return finish
