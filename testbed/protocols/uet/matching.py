"""Posted receives and unexpected messages of one resource index, and which of them meet.

Source: UE Specification 1.0, section 3.4.3 (expected and overflow list); the order is that of MPI and libfabric: the
earliest posted receive that matches an arriving message takes it, and a receive posted late takes the earliest message
that it matches. Tagged and untagged messages are separate spaces: a resource index has one `ReceiveQueue` for each. The
untagged one leaves every tag at 0.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Any, Final

from testbed.protocols.errors import UsageError

TAG_LIMIT: Final = 1 << 64
INITIATOR_LIMIT: Final = 1 << 160
"""An initiator is an IP address and an initiator ID of 32 bits."""
DEFAULT_MAX_POSTED: Final = 1 << 16
DEFAULT_MAX_UNEXPECTED: Final = 4096
DEFAULT_MAX_UNEXPECTED_BYTES: Final = 64 << 20


class PostedReceive:
    """A buffer that waits for one message."""

    buffer: memoryview
    tag: int
    ignore: int
    """Bits of the tag that do not matter."""
    initiator: int | None
    """The only initiator it takes messages of; None: any."""
    context: Any
    """The user's own mark of it."""
    sequence: int
    """Order of posting in its queue."""

    def __init__(
        self, buffer: memoryview, tag: int, ignore: int, initiator: int | None, context: Any, sequence: int
    ) -> None:
        self.buffer = buffer
        self.tag = tag
        self.ignore = ignore
        self.initiator = initiator
        self.context = context
        self.sequence = sequence

    def matches(self, tag: int, initiator: int) -> bool:
        return (self.initiator is None or self.initiator == initiator) and not (tag ^ self.tag) & ~self.ignore


@dataclass(slots=True, eq=False)
class UnexpectedMessage:
    """A message that came before its receive."""

    tag: int
    initiator: int
    stored_bytes: int
    """The bytes that it counts against the limit: its length, or 0 where only the header is kept (rendezvous)."""
    content: Any
    """The state that the semantic layer keeps of it."""
    sequence: int
    """Order of arrival in its queue."""


class ReceiveQueue:
    """The tagged or the untagged half of a resource index.

    Invariant: no unexpected message matches a posted receive. It holds as long as the caller, for every message, first
    asks `match` and only on None `add_unexpected`.

    Exact tags (`ignore` 0) are looked up in constant time in both directions. Receives with ignored bits are tried one
    by one, in order, up to the earliest exact one; a receive with ignored bits looks through the unexpected messages
    one by one.
    """

    def __init__(
        self,
        max_posted: int = DEFAULT_MAX_POSTED,
        max_unexpected: int = DEFAULT_MAX_UNEXPECTED,
        max_unexpected_bytes: int = DEFAULT_MAX_UNEXPECTED_BYTES,
    ) -> None:
        self.max_posted = max_posted
        self.max_unexpected = max_unexpected
        self.max_unexpected_bytes = max_unexpected_bytes
        self.posted = 0
        self.unexpected_bytes = 0
        self._next_sequence = 0
        # Every receive is in exactly one of these three. Those in one bucket match the same messages, so that only the
        # head of a bucket is ever taken.
        self._by_source: dict[tuple[int, int], deque[PostedReceive]] = {}
        self._by_tag: dict[int, deque[PostedReceive]] = {}
        self._wildcards: list[PostedReceive] = []
        # Every message is in all of these three, by sequence. OrderedDict: first, append and removal are all constant
        # time (the first of a plain dict is not, once it has lost its head often).
        self._arrived: OrderedDict[int, UnexpectedMessage] = OrderedDict()
        self._arrived_by_tag: dict[int, OrderedDict[int, UnexpectedMessage]] = {}
        self._arrived_by_source: dict[tuple[int, int], OrderedDict[int, UnexpectedMessage]] = {}

    @property
    def unexpected(self) -> int:
        """Messages that wait for their receive."""
        return len(self._arrived)

    def post(
        self,
        buffer: memoryview,
        context: Any,
        tag: int = 0,
        ignore: int = 0,
        initiator: int | None = None,
    ) -> UnexpectedMessage | None:
        """Wait for one message, or take the earliest unexpected one that matches: then nothing is posted.

        Raises `UsageError`: `max_posted` receives wait already, a tag beyond 64 bits, an initiator beyond 160.
        """
        if not (0 <= tag < TAG_LIMIT and 0 <= ignore < TAG_LIMIT):
            raise UsageError(f"tags have 64 bits: {tag:#x}, {ignore:#x}")
        if initiator is not None and not 0 <= initiator < INITIATOR_LIMIT:
            raise UsageError(f"an initiator has 160 bits: {initiator}")
        message = self.peek(tag, ignore, initiator)
        if message is not None:
            self.discard(message)
            return message
        if self.posted >= self.max_posted:
            raise UsageError(f"{self.posted} receives are posted already")
        receive = PostedReceive(buffer, tag, ignore, initiator, context, self._next_sequence)
        self._next_sequence += 1
        self.posted += 1
        if ignore:
            self._wildcards.append(receive)
        elif initiator is None:
            self._by_tag.setdefault(tag, deque()).append(receive)
        else:
            self._by_source.setdefault((tag, initiator), deque()).append(receive)
        return None

    def match(self, tag: int, initiator: int) -> PostedReceive | None:
        """Take the earliest posted receive that matches a message with this tag from this initiator; None: there is
        none."""
        if not self.posted:
            return None
        source = (tag, initiator)
        bucket = self._by_source.get(source)
        first = None if bucket is None else bucket[0]
        bucket = self._by_tag.get(tag)
        if bucket is not None and (first is None or bucket[0].sequence < first.sequence):
            first = bucket[0]
        for index, candidate in enumerate(self._wildcards):
            if first is not None and first.sequence < candidate.sequence:
                break
            if candidate.matches(tag, initiator):
                del self._wildcards[index]
                self.posted -= 1
                return candidate
        if first is not None:
            self._remove(first)
        return first

    def _remove(self, receive: PostedReceive) -> None:
        """Take a posted receive out: quickly if it is the first of its bucket."""
        self.posted -= 1
        if receive.ignore:
            self._wildcards.remove(receive)
        elif receive.initiator is None:
            bucket = self._by_tag[receive.tag]
            bucket.remove(receive)
            if not bucket:
                del self._by_tag[receive.tag]
        else:
            source = (receive.tag, receive.initiator)
            bucket = self._by_source[source]
            bucket.remove(receive)
            if not bucket:
                del self._by_source[source]

    def _all_posted(self) -> list[PostedReceive]:
        """In the order of posting."""
        found = list(self._wildcards)
        for bucket in self._by_tag.values():
            found.extend(bucket)
        for bucket in self._by_source.values():
            found.extend(bucket)
        found.sort(key=_sequence_of)
        return found

    def cancel(self, context: object) -> PostedReceive | None:
        """Take back the earliest posted receive whose context equals `context`; None: it is not posted (any longer)."""
        for receive in self._all_posted():
            if receive.context == context:
                self._remove(receive)
                return receive
        return None

    def cancel_all(self) -> list[PostedReceive]:
        """Take back every posted receive, in the order of posting."""
        found = self._all_posted()
        self._wildcards.clear()
        self._by_tag.clear()
        self._by_source.clear()
        self.posted = 0
        return found

    def add_unexpected(self, tag: int, initiator: int, stored_bytes: int, content: Any) -> UnexpectedMessage | None:
        """Keep a message that `match` found no receive for. None: `max_unexpected` or `max_unexpected_bytes` forbids
        it.

        What the caller answers to a message it cannot keep is its choice by delivery mode: on RUD either a PDS NACK
        NO_SES_MSG_AVAIL, so that the initiator tries again, or the return code NO_MATCH (DROPPED if it has begun to
        accept it), which fails the message; on ROD the resource index must be disabled and the return code is
        DISABLED_GEN, so that no later message overtakes (section 3.4.6.3).
        """
        if len(self._arrived) >= self.max_unexpected:
            return None
        if self.unexpected_bytes + stored_bytes > self.max_unexpected_bytes:
            return None
        sequence = self._next_sequence
        self._next_sequence += 1
        message = UnexpectedMessage(tag, initiator, stored_bytes, content, sequence)
        self.unexpected_bytes += stored_bytes
        self._arrived[sequence] = message
        self._arrived_by_tag.setdefault(tag, OrderedDict())[sequence] = message
        self._arrived_by_source.setdefault((tag, initiator), OrderedDict())[sequence] = message
        return message

    def peek(self, tag: int = 0, ignore: int = 0, initiator: int | None = None) -> UnexpectedMessage | None:
        """The message that a receive posted now would take, left where it is."""
        if not self._arrived:
            return None
        if not ignore:
            if initiator is None:
                bucket = self._arrived_by_tag.get(tag)
            else:
                bucket = self._arrived_by_source.get((tag, initiator))
            return None if bucket is None else next(iter(bucket.values()))
        for message in self._arrived.values():
            if (initiator is None or initiator == message.initiator) and not (tag ^ message.tag) & ~ignore:
                return message
        return None

    def discard(self, message: UnexpectedMessage) -> bool:
        """Take out an unexpected message: one found by `peek`, or one whose sender died. False: it is not here any
        longer."""
        if self._arrived.get(message.sequence) is not message:
            return False
        del self._arrived[message.sequence]
        self.unexpected_bytes -= message.stored_bytes
        by_tag = self._arrived_by_tag[message.tag]
        del by_tag[message.sequence]
        if not by_tag:
            del self._arrived_by_tag[message.tag]
        source = (message.tag, message.initiator)
        by_source = self._arrived_by_source[source]
        del by_source[message.sequence]
        if not by_source:
            del self._arrived_by_source[source]
        return True


def _sequence_of(receive: PostedReceive) -> int:
    return receive.sequence
