"""The base class of a connection's congestion control, which is NewReno's: slow start, and a segment more a round trip.

The window and the threshold of slow start belong to the connection and are in segments, as in Linux.
"""

from __future__ import annotations

from typing import Final

from testbed.protocols.open_classes import mypyc_attr

INITIAL_WINDOW: Final = 10
"""Segments (RFC 6928)."""
NO_THRESHOLD: Final = 0x7FFF_FFFF
MOST_WINDOW: Final = 1 << 20


@mypyc_attr(allow_interpreted_subclasses=True)
class TcpControl:
    """NewReno (RFC 5681 with RFC 3465's counting of what was acknowledged), and the base of the others."""

    wants_ecn: bool = False
    """Its packets are ECN-capable, all of them, and marks are echoed one by one (RFC 8257)."""

    def __init__(self) -> None:
        self.window = INITIAL_WINDOW
        """Segments that may be on their way."""
        self.threshold = NO_THRESHOLD
        """Slow start ends at this window."""
        self._counted = 0
        """Segments acknowledged since the window last grew."""

    @property
    def in_slow_start(self) -> bool:
        return self.window < self.threshold

    def on_ack(self, now: int, acked: int, unacknowledged: int, following: int) -> None:
        """The window may grow: `acked` segments have arrived, and the window was what held the sender back.

        `unacknowledged` and `following` are the first sequence number that is not acknowledged, and the next to be
        sent.
        """
        if self.in_slow_start:
            acked = self.slow_start(acked)
        if acked:
            self.grow(self.window, acked)

    def on_rtt(self, now: int, rtt_ns: int, unacknowledged: int, following: int) -> None:
        """A round trip was measured."""

    def on_delivered(self, segments: int, marked: bool, unacknowledged: int, following: int) -> None:
        """So many segments have arrived; `marked`: their acknowledgement says that they were marked."""

    def threshold_after_loss(self) -> int:
        """Return the window to go on with after a loss."""
        return max(self.window // 2, 2)

    def threshold_after_marks(self) -> int:
        """Return the window to go on with after marks, or after a loss that a probe has repaired."""
        return self.threshold_after_loss()

    def window_before(self, prior: int) -> int:
        """Return the window to go back to where there was no loss after all; `prior` is that of before."""
        return max(self.window, prior)

    def on_timeout(self) -> None:
        """Begin anew: the retransmission timer has fired."""

    def on_idle_over(self, idle_ns: int) -> None:
        """Begin to send again, after nothing was on its way for so long."""

    def slow_start(self, acked: int) -> int:
        """Grow by what was acknowledged, up to the threshold; how much of it was not needed."""
        window = min(self.window + acked, self.threshold)
        left = acked - (window - self.window)
        self.window = min(window, MOST_WINDOW)
        return left

    def grow(self, per_segment: int, acked: int) -> None:
        """Grow by one segment for each `per_segment` that are acknowledged."""
        if self._counted >= per_segment:
            self._counted = 0
            self.window += 1
        self._counted += acked
        if self._counted >= per_segment:
            more = self._counted // per_segment
            self._counted -= more * per_segment
            self.window += more
        self.window = min(self.window, MOST_WINDOW)

    def state(self) -> dict[str, float]:
        """Return what it knows beside its window, by name."""
        return {}
