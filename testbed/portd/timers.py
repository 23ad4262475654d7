"""Timers by key: each key has one, which can be moved or taken back at no cost that grows with how often."""

from __future__ import annotations

import heapq
from collections.abc import Iterator


class Timers:
    """A heap that holds at most the entries that could fire first.

    Moving a timer to a later time touches no heap: the entry, when it comes up, is put back at the time it has by
    then. So a flood of pause frames, each of which moves an expiry, makes no heap grow.
    """

    __slots__ = ("_due", "_heap", "_queued")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int]] = []
        self._due: dict[int, int] = {}
        self._queued: dict[int, int] = {}

    def set(self, key: int, when_ns: int) -> None:
        self._due[key] = when_ns
        queued = self._queued.get(key)
        if queued is None or when_ns < queued:
            self._queued[key] = when_ns
            heapq.heappush(self._heap, (when_ns, key))

    def cancel(self, key: int) -> None:
        self._due.pop(key, None)

    def clear(self) -> None:
        self._heap.clear()
        self._due.clear()
        self._queued.clear()

    def next_ns(self) -> int | None:
        """Not after the next timer; possibly before it."""
        return self._heap[0][0] if self._heap else None

    def expired(self, now_ns: int) -> Iterator[int]:
        """The keys whose time has come, each taken off before it is handed out."""
        while self._heap and self._heap[0][0] <= now_ns:
            when, key = heapq.heappop(self._heap)
            if self._queued.get(key) != when:
                continue  # an earlier entry has taken this one's place
            del self._queued[key]
            due = self._due.get(key)
            if due is None:
                continue
            if due > now_ns:
                self.set(key, due)
                continue
            del self._due[key]
            yield key
