"""RACK: a segment is lost where one that was sent later has arrived, and the time to reorder them is over (RFC 8985).

As Linux has it (net/ipv4/tcp_recovery.c): the time is nothing where three segments have arrived out of order and no
reordering was ever seen, as duplicate acknowledgements have it, else a quarter of the least round trip.
"""

from __future__ import annotations

from typing import Final

from testbed.protocols.tcp.flight import Flight, SentSegment

DUPLICATE_THRESHOLD: Final = 3
"""Segments (RFC 5681, RFC 6675: DupThresh)."""


class Rack:
    """The segment that was sent latest of all that have arrived."""

    def __init__(self) -> None:
        self.sent_ns = -1
        self.end = 0
        self.rtt_ns = 0
        self.reordering_seen = False
        self.reorderings = 0
        self.highest_sacked = 0
        """The highest sequence number that was selectively acknowledged."""

    def on_arrived(self, segment: SentSegment, now: int, least_rtt_ns: int) -> None:
        """A segment was acknowledged, by whichever means."""
        rtt_ns = now - segment.sent_ns
        if segment.ever_retransmitted and rtt_ns < least_rtt_ns:
            return  # it is the first copy that arrived
        if self._is_behind(segment):
            self.sent_ns, self.end = segment.sent_ns, segment.end
            self.rtt_ns = rtt_ns

    def on_sacked(self, segment: SentSegment) -> None:
        """Notice that a segment which was sent once arrives behind later ones (tcp_check_sack_reordering)."""
        if segment.end > self.highest_sacked:
            self.highest_sacked = segment.end
        elif not segment.ever_retransmitted:
            self.on_reordered()

    def on_reordered(self) -> None:
        self.reordering_seen = True
        self.reorderings += 1

    def _is_behind(self, segment: SentSegment) -> bool:
        if segment.sent_ns != self.sent_ns:
            return segment.sent_ns > self.sent_ns
        return segment.end > self.end

    def window_ns(self, flight: Flight, *, recovering: bool, least_rtt_ns: int, srtt_ns: int) -> int:
        """Return for how long a segment may arrive behind one that was sent later."""
        if not self.reordering_seen and (recovering or flight.sacked >= DUPLICATE_THRESHOLD):
            return 0
        return min(least_rtt_ns >> 2, srtt_ns)

    def find_losses(self, flight: Flight, now: int, window_ns: int) -> tuple[int, int]:
        """Mark what is lost by now. How many segments that are, and when to look again (ns; -1: not at all)."""
        found, again = 0, -1
        if self.sent_ns < 0:
            return 0, -1
        for segment in flight.segments:
            if segment.sacked or (segment.lost and not segment.retransmitted):
                continue
            if segment.sent_ns > self.sent_ns or (segment.sent_ns == self.sent_ns and segment.end >= self.end):
                if not segment.ever_retransmitted and segment.first >= self.highest_sacked:
                    break  # all behind it was sent later still
                continue
            due = segment.sent_ns + self.rtt_ns + window_ns
            if due <= now:
                flight.on_lost(segment)
                found += 1
            else:
                again = due if again < 0 else max(again, due)
        return found, again
