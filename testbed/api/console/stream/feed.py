"""The messages of one thing that pages look at, in one sequence for all of them.

A listener has no queue of its own, only its place in the sequence. What is kept is bounded, in messages and in bytes;
whoever falls behind all that is kept, or comes anew, gets a snapshot and goes on from there. So a page that does not
read costs no memory here but what the kernel and one message hold, however many there are.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

MOST_MESSAGES = 256
MOST_BYTES = 8 << 20
"""The messages that are kept: of two minutes at two ticks a second, if they are no more than these bytes."""
MOST_BEHIND = 120
"""Messages that a listener may be behind; a snapshot is shorter than more of them."""


@dataclass(frozen=True, slots=True)
class FeedMessage:
    """One message as it is sent. `number` is its place in the sequence, from 1."""

    number: int
    content: bytes


class Feed:
    """One sequence of messages. All methods are for the thread of the event loop.

    `snapshot` returns what a page has to know to go on from here, as the data of its event. Numbers of messages stand
    behind a word of this feed's own, since a page may come back with those of another, or of an earlier console.
    """

    def __init__(self, snapshot: Callable[[], bytes]) -> None:
        self._boot = secrets.token_hex(6)
        self._snapshot = snapshot
        self._kept: deque[FeedMessage] = deque()
        self.kept_bytes = 0
        """The bytes of all messages that are kept."""
        self.last = 0
        """The number of the latest message."""
        self._fresh = asyncio.Event()
        self._cached: FeedMessage | None = None
        self.closed = False
        self.listeners = 0

    def publish(self, event: str, data: bytes) -> None:
        """Tell all listeners. `data` is one line."""
        if self.closed:
            return
        self.last += 1
        content = b"id: %s-%d\nevent: %s\ndata: %s\n\n" % (self._boot.encode(), self.last, event.encode(), data)
        self._kept.append(FeedMessage(self.last, content))
        self.kept_bytes += len(content)
        while len(self._kept) > MOST_MESSAGES or (self.kept_bytes > MOST_BYTES and len(self._kept) > 1):
            self.kept_bytes -= len(self._kept.popleft().content)
        self._wake()

    def publish_anew(self, event: str, data: bytes) -> None:
        """Tell all listeners what ends all that they know; a snapshot follows in the same message."""
        if self.closed:
            return
        self._kept.clear()
        self.kept_bytes = 0
        self._cached = None
        self.last += 1
        told = b"event: %s\ndata: %s\n\n" % (event.encode(), data)
        content = told + self.snapshot().content
        self._kept.append(FeedMessage(self.last, content))
        self.kept_bytes = len(content)
        self._wake()

    def close(self) -> None:
        """Let listeners end, once they have been sent what there is."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        self._cached = None
        fresh, self._fresh = self._fresh, asyncio.Event()
        fresh.set()

    async def wait(self, after: int, timeout_s: float) -> bool:
        """Wait until there is a message behind `after`, or the feed is closed; False after so many seconds."""
        fresh = self._fresh
        if self.closed or self.last > after:
            return True
        try:
            async with asyncio.timeout(timeout_s):
                await fresh.wait()
        except TimeoutError:
            return False
        return True

    def place_of(self, event_id: str) -> int:
        """Return the place that a `Last-Event-ID` names; -1 where it says nothing to this feed."""
        boot, _, number = event_id.rpartition("-")
        if boot != self._boot or not number.isdecimal() or len(number) > 18 or int(number) > self.last:
            return -1
        return int(number)

    def after(self, place: int) -> Iterable[FeedMessage]:
        """Return the messages behind a place; a snapshot instead where they are not all kept, or too many."""
        if place == self.last:
            return ()
        first = self._kept[0].number if self._kept else self.last + 1
        if place < 0 or place + 1 < first or self.last - place > MOST_BEHIND or not self._kept:
            return (self.snapshot(),)
        return [sent for sent in self._kept if sent.number > place]

    def snapshot(self) -> FeedMessage:
        """Return the message from which a listener can go on; it is made once for all who come at this moment."""
        if self._cached is None:
            head = f"id: {self._boot}-{self.last}\nevent: snapshot\ndata: ".encode()
            self._cached = FeedMessage(self.last, head + self._snapshot() + b"\n\n")
        return self._cached
