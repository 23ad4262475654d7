"""The clock of a simulation: what happens next, in order of time, then in order of being scheduled.

There are about two events per packet and hop, so an event is no more than which object acts, and with which frame.
Times near enough have a list of events for each ns (a timing wheel: Varghese and Lauck, 1987); what is due later waits
in a heap until its time comes near.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from enum import Enum
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mypy_extensions import i64

    from testbed.protocols.simulation.frame import Frame

Handler = Callable[[int, Any], None]
"""Called with the time in ns and the argument it was scheduled with."""
FOREVER: Final = 1 << 61
"""73 years of nanoseconds."""
SPAN_SHIFT: Final = 6
SPAN_NS: Final = 1 << SPAN_SHIFT
"""Nanoseconds whose lists are made together."""
SPANS: Final = 1024
"""So many spans lie within reach of the wheel: 65 us."""


class Actor(ABC):
    """Something that acts when its time comes: a node of the network, a port, a timer."""

    @abstractmethod
    def act(self, now: i64, frame: Frame | None) -> None:
        """Do what was scheduled for `now`; a frame that was scheduled with it has arrived."""


class Call(Actor):
    """A call of any function with its argument, or with the frame that has arrived: for what happens now and then."""

    def __init__(self, handler: Handler, argument: Any = None) -> None:
        self._handler = handler
        self._argument = argument

    def act(self, now: i64, frame: Frame | None) -> None:
        self._handler(now, self._argument if frame is None else frame)


class Event:
    """Who acts, with which frame; and which event follows at the same ns."""

    def __init__(self, actor: Actor, frame: Frame | None) -> None:
        self.actor = actor
        self.frame = frame
        self.next: Event | None = None


class Ended(Enum):
    """Why a run returned."""

    STOP = "what it was to reach is reached"
    QUIET = "nothing is scheduled any more"
    TIME = "the time it was to last has passed"


class Events:
    """The events that are scheduled, and the time of the one in hand."""

    def __init__(self) -> None:
        self.now: i64 = 0
        self.handled = 0
        """Events so far."""
        self.acted = False
        """An endpoint or an application has acted since this was last cleared, so that `stop` may have become true."""
        self._wheel: list[list[Event | None] | None] = [None] * SPANS
        self._keys: list[int] = []
        """The keys of the spans on the wheel, as a heap."""
        self._far: list[tuple[int, int, Actor, Frame | None]] = []
        """Events out of the wheel's reach, as a heap."""
        self._sequence = 0
        self._span: list[Event | None] = [None] * SPAN_NS
        """The span in hand; what lies before `_place` is over. As on the wheel, there is the last event of each ns, and
        the first one follows it."""
        self._span_key: i64 = -1
        self._place: i64 = SPAN_NS - 1
        self._coming: Event | None = None
        """The next event of the ns in hand, which is at `_place`."""
        self._tail: Event | None = None
        """The last event of the ns in hand."""
        self._spare: Event | None = None
        """Events that are over, to be used again."""

    def schedule(self, when: int, handler: Handler, argument: Any = None) -> None:
        """`handler(when, argument)` at `when` ns, or now if that has passed."""
        self.put(when, Call(handler, argument), None)

    def put(self, when: i64, actor: Actor, frame: Frame | None) -> None:
        """`actor` acts at `when` ns, or now if that has passed."""
        when = max(when, self.now)
        key = when >> SPAN_SHIFT
        place = when & (SPAN_NS - 1)
        ahead = key - self._span_key
        if ahead >= SPANS:
            self._sequence += 1
            heappush(self._far, (when, self._sequence, actor, frame))
            return
        event = self._spare
        if event is None:
            event = Event(actor, frame)
        else:
            self._spare = event.next
            event.actor = actor
            event.frame = frame
        if ahead > 0:
            found = self._wheel[key & (SPANS - 1)]
            if found is None:
                found = self._wheel[key & (SPANS - 1)] = [None] * SPAN_NS
                heappush(self._keys, key)
            span = found
        elif place == self._place:
            event.next = None
            if self._coming is None or self._tail is None:
                self._coming = event
            else:
                self._tail.next = event
            self._tail = event
            return
        else:
            span = self._span
        tail = span[place]
        if tail is None:
            event.next = event
        else:
            event.next = tail.next
            tail.next = event
        span[place] = event

    def pending(self) -> Iterator[tuple[Actor, Frame | None]]:
        """Yield the events that have not happened yet, in no order: who acts, and with which frame."""
        event = self._coming
        while event is not None:
            yield event.actor, event.frame
            event = event.next
        for tail in [tail for span in (self._span, *self._wheel) if span is not None for tail in span]:
            event = tail
            while event is not None:
                yield event.actor, event.frame
                event = None if event.next is tail else event.next
        for _, _, actor, frame in self._far:
            yield actor, frame

    def next_time(self) -> int:
        """Return when the next event is due; `FOREVER` where nothing is scheduled."""
        if self._coming is not None:
            return self.now
        found = self._first_in(self._span, self._span_key, self._place + 1)
        if found is None and self._keys:
            span = self._wheel[self._keys[0] & (SPANS - 1)]
            assert span is not None
            found = self._first_in(span, self._keys[0], 0)
        if found is None:
            return self._far[0][0] if self._far else FOREVER
        return found

    def _first_in(self, span: list[Event | None], key: i64, place: i64) -> int | None:
        """Return the time of the first event of a span, from a place on; None where there is none."""
        while place < SPAN_NS:
            if span[place] is not None:
                return (key << SPAN_SHIFT) + place
            place += 1
        return None

    def run(self, until: int | None, stop: Callable[[], bool] | None) -> Ended:
        """Handle events up to and including time `until`, while `stop` is false.

        `stop` is asked at the start and after events in which an endpoint or an application acted, not after every
        event. On `Ended.TIME` the clock shows `until`.
        """
        limit: i64 = FOREVER if until is None else until
        handled: i64 = 0
        if stop is not None and stop():
            return Ended.STOP
        self.acted = False
        try:
            while True:
                event = self._coming
                if event is None:
                    ended = self._next_moment(limit)
                    if ended is not None:
                        return ended
                    continue
                self._coming = event.next
                handled += 1
                frame = event.frame
                event.frame = None
                event.next = self._spare
                self._spare = event
                event.actor.act(self.now, frame)
                if self.acted:
                    self.acted = False
                    if stop is not None and stop():
                        return Ended.STOP
        finally:
            self.handled += handled

    def _next_moment(self, limit: i64) -> Ended | None:
        """Take the next ns in hand at which something happens; or else say why there is none up to `limit`.

        Then nothing has changed but the clock: what is scheduled next may come before all that is known now.
        """
        while True:
            span = self._span
            place = self._place + 1
            while place < SPAN_NS:
                tail = span[place]
                if tail is not None:
                    when = (self._span_key << SPAN_SHIFT) + place
                    if when > limit:
                        return self._out_of_time(limit)
                    span[place] = None
                    self._place = place
                    self._coming = tail.next
                    tail.next = None
                    self._tail = tail
                    self.now = when
                    return None
                place += 1
            if not self._keys and not self._far:
                return Ended.QUIET
            if self._first_key() << SPAN_SHIFT > limit:
                return self._out_of_time(limit)
            self._take_span()

    def _out_of_time(self, limit: i64) -> Ended:
        self.now = max(self.now, limit)
        return Ended.TIME

    def _first_key(self) -> i64:
        """Return which span comes next."""
        return self._keys[0] if self._keys else self._far[0][0] >> SPAN_SHIFT

    def _take_span(self) -> None:
        """Take the next span in hand, and put on the wheel what is within its reach now."""
        key = self._first_key()
        if self._keys:
            heappop(self._keys)
            span = self._wheel[key & (SPANS - 1)]
            assert span is not None
            self._wheel[key & (SPANS - 1)] = None
        else:
            span = [None] * SPAN_NS
        self._span = span
        self._span_key = key
        self._place = -1
        far = self._far
        while far and (far[0][0] >> SPAN_SHIFT) - key < SPANS:
            when, _, actor, frame = heappop(far)
            self.put(when, actor, frame)
