"""The clock of a simulation: what happens next, in order of time, then in order of being scheduled.

An event is a plain tuple, since there are about two of them per packet and hop. Events are kept in buckets of
`1 << BUCKET_SHIFT` ns, which are sorted as their time comes: a large network has tens of thousands of events ahead of
it, and a heap of all of them would compare a dozen tuples for each. The sequence number both breaks ties, which makes a
run repeatable, and keeps the comparison of tuples away from handlers.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator
from enum import Enum
from heapq import heappop, heappush
from typing import Any, Final

Handler = Callable[[int, Any], None]
"""Called with the time in ns and the argument it was scheduled with."""
Event = tuple[int, int, Handler, Any]
FOREVER: Final = 1 << 61
"""73 years of nanoseconds."""
BUCKET_SHIFT: Final = 6
"""Of 64 ns: less than the serialisation of a full packet at 400 Gbit/s, so that little is scheduled into the bucket in
hand."""


class Ended(Enum):
    """Why a run returned."""

    STOP = "what it was to reach is reached"
    QUIET = "nothing is scheduled any more"
    TIME = "the time it was to last has passed"


class Events:
    """What is scheduled, and the time of the event in hand."""

    __slots__ = ("_buckets", "_current", "_index", "_key", "_keys", "acted", "handled", "now", "sequence")

    def __init__(self) -> None:
        self.now = 0
        self.sequence = 0
        self.handled = 0
        """Events so far."""
        self.acted = False
        """An endpoint or an application has acted since this was last cleared, so that `stop` may have become true."""
        self._buckets: dict[int, list[Event]] = {}
        self._keys: list[int] = []
        """Of the buckets, as a heap."""
        self._current: list[Event] = []
        """The bucket in hand, sorted; what stands before `_index` is over."""
        self._index = 0
        self._key = -1

    def schedule(self, when: int, handler: Handler, argument: Any = None) -> None:
        """`handler(when, argument)` at `when` ns, or now if that has passed."""
        when = max(when, self.now)
        self.sequence = sequence = self.sequence + 1
        key = when >> BUCKET_SHIFT
        if key <= self._key:
            insort(self._current, (when, sequence, handler, argument), self._index)
            return
        bucket = self._buckets.get(key)
        if bucket is None:
            self._buckets[key] = [(when, sequence, handler, argument)]
            heappush(self._keys, key)
        else:
            bucket.append((when, sequence, handler, argument))

    def pending(self) -> Iterator[Event]:
        """What is scheduled and has not happened, in no order."""
        yield from self._current[self._index :]
        for bucket in self._buckets.values():
            yield from bucket

    def run(self, until: int | None, stop: Callable[[], bool] | None) -> Ended:
        """Handle events up to and including time `until`, while `stop` is false.

        `stop` is asked at the start and after events in which an endpoint or an application acted, not after every
        event. On `Ended.TIME` the clock shows `until`.
        """
        limit = FOREVER if until is None else until
        handled = 0
        if stop is not None and stop():
            return Ended.STOP
        self.acted = False
        try:
            while True:
                current = self._current
                index = self._index
                if index >= len(current):
                    if not self._keys:
                        return Ended.QUIET
                    if self._keys[0] << BUCKET_SHIFT > limit:
                        self.now = max(self.now, limit)
                        return Ended.TIME
                    self._take_bucket()
                    continue
                now, _, handler, argument = current[index]
                if now > limit:
                    self.now = max(self.now, limit)
                    return Ended.TIME
                self._index = index + 1
                self.now = now
                handled += 1
                handler(now, argument)
                if self.acted:
                    self.acted = False
                    if stop is not None and stop():
                        return Ended.STOP
        finally:
            self.handled += handled

    def _take_bucket(self) -> None:
        """Take the next bucket in hand."""
        self._key = key = heappop(self._keys)
        bucket = self._buckets.pop(key)
        bucket.sort()
        self._current = bucket
        self._index = 0
