"""The clock of a simulation: what happens next, in order of time, then in order of being scheduled.

An event is a plain tuple in a heap, since there are two to three of them per packet and hop. The sequence number both
breaks ties, which makes a run repeatable, and keeps the comparison of tuples away from handlers.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from heapq import heappop, heappush
from typing import Any

Handler = Callable[[int, Any], None]
"""Called with the time in ns and the argument it was scheduled with."""
Event = tuple[int, int, Handler, Any]
FOREVER = 1 << 62
"""146 years of nanoseconds."""


class Ended(Enum):
    """Why a run returned."""

    STOP = "what it was to reach is reached"
    QUIET = "nothing is scheduled any more"
    TIME = "the time it was to last has passed"


class Events:
    """The heap, and the time of the event in hand."""

    __slots__ = ("acted", "handled", "heap", "now", "sequence")

    def __init__(self) -> None:
        self.now = 0
        self.heap: list[Event] = []
        self.sequence = 0
        self.handled = 0
        """Events so far."""
        self.acted = False
        """An endpoint or an application has acted since this was last cleared, so that `stop` may have become true."""

    def schedule(self, when: int, handler: Handler, argument: Any = None) -> None:
        """`handler(when, argument)` at `when` ns, or now if that has passed."""
        self.sequence = sequence = self.sequence + 1
        heappush(self.heap, (when if when > self.now else self.now, sequence, handler, argument))

    def run(self, until: int | None, stop: Callable[[], bool] | None) -> Ended:
        """Handle events up to and including time `until`, while `stop` is false.

        `stop` is asked at the start and after events in which an endpoint or an application acted, not after every
        event. On `Ended.TIME` the clock shows `until`.
        """
        heap = self.heap
        limit = FOREVER if until is None else until
        handled = 0
        if stop is not None and stop():
            return Ended.STOP
        self.acted = False
        try:
            while heap:
                if heap[0][0] > limit:
                    self.now = max(self.now, limit)
                    return Ended.TIME
                now, _, handler, argument = heappop(heap)
                self.now = now
                handled += 1
                handler(now, argument)
                if self.acted:
                    self.acted = False
                    if stop is not None and stop():
                        return Ended.STOP
            return Ended.QUIET
        finally:
            self.handled += handled
