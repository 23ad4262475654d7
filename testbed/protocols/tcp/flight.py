"""The segments that are sent and not yet acknowledged, and what is known of each: the scoreboard of RFC 6675."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator


class SentSegment:
    """A segment on its way. `first` and `end` are sequence numbers of 64 bits."""

    def __init__(self, first: int, end: int, payload: bytes, flags: int, now: int) -> None:
        self.first = first
        self.end = end
        self.payload = payload
        self.flags = flags
        self.first_sent_ns = now
        self.sent_ns = now
        """When it was sent last."""
        self.sacked = False
        self.lost = False
        self.retransmitted = False
        """It was sent again since it was lost, and counts as being on its way."""
        self.ever_retransmitted = False


class Flight:
    """All segments between the first that is not acknowledged and the next one to be sent, in their order.

    The counts are in segments, as Linux has them: `in_flight` is RFC 6675's pipe.
    """

    def __init__(self) -> None:
        self.segments: deque[SentSegment] = deque()
        self.sacked = 0
        self.lost = 0
        self.retransmitted = 0

    @property
    def sent(self) -> int:
        """Return how many segments are not acknowledged."""
        return len(self.segments)

    @property
    def in_flight(self) -> int:
        return len(self.segments) - self.sacked - self.lost + self.retransmitted

    def add(self, segment: SentSegment) -> None:
        self.segments.append(segment)

    def on_sacked(self, segment: SentSegment) -> None:
        """It has arrived, though not all before it."""
        segment.sacked = True
        self.sacked += 1
        if segment.lost:
            segment.lost = False
            self.lost -= 1
        if segment.retransmitted:
            segment.retransmitted = False
            self.retransmitted -= 1

    def on_lost(self, segment: SentSegment) -> None:
        """It has to be sent again; what was sent again and is lost again as well."""
        if segment.retransmitted:
            segment.retransmitted = False
            self.retransmitted -= 1
        if not segment.lost:
            segment.lost = True
            self.lost += 1

    def on_retransmitted(self, segment: SentSegment, now: int) -> None:
        segment.sent_ns = now
        segment.ever_retransmitted = True
        if not segment.retransmitted:
            segment.retransmitted = True
            self.retransmitted += 1

    def acknowledge(self, ack: int) -> Iterator[SentSegment]:
        """Take away, one after another, the segments that lie below `ack` whole; one that lies there in part is cut."""
        segments = self.segments
        while segments and segments[0].end <= ack:
            segment = segments.popleft()
            if segment.sacked:
                self.sacked -= 1
            if segment.lost:
                self.lost -= 1
            if segment.retransmitted:
                self.retransmitted -= 1
            yield segment
        if segments and segments[0].first < ack:
            first = segments[0]
            first.payload = first.payload[ack - first.first :]
            first.first = ack

    def forget_losses(self) -> None:
        """Nothing was lost after all."""
        for segment in self.segments:
            segment.lost = False
        self.lost = 0

    def next_lost(self) -> SentSegment | None:
        """Return the first segment that is lost and was not sent again since."""
        for segment in self.segments:
            if segment.lost and not segment.retransmitted:
                return segment
        return None
