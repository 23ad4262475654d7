"""DCTCP (RFC 8257): the window shrinks by half of the share of segments that were marked in the last round trip.

As Linux has it (net/ipv4/tcp_dctcp.c): g is 1/16, and a flow begins with alpha 1. After a loss the window is halved,
whatever was marked (section 3.5).
"""

from __future__ import annotations

from typing import Final

from testbed.protocols.tcp.congestion.control import TcpControl

G_SHIFT: Final = 4
"""g is 2 to the power of minus this (RFC 8257, section 3.3)."""
FULL: Final = 1024
"""alpha in fixed point: 1."""


class Dctcp(TcpControl):
    """`alpha` is the estimate of the share of segments that are marked, 0 to `FULL`."""

    wants_ecn: bool = True

    def __init__(self) -> None:
        super().__init__()
        self.alpha = FULL
        self._delivered = 0
        self._marked = 0
        self._round_end = -1
        self._window_at_loss = 0

    def on_delivered(self, segments: int, marked: bool, unacknowledged: int, following: int) -> None:
        if self._round_end < 0:
            self._round_end = following
        self._delivered += segments
        if marked:
            self._marked += segments
        if unacknowledged < self._round_end:
            return
        # as long as it is not 0, it comes down by at least 1
        alpha = self.alpha
        alpha -= alpha >> G_SHIFT if alpha >> G_SHIFT else alpha
        if self._marked:
            alpha = min(alpha + (self._marked << (10 - G_SHIFT)) // max(1, self._delivered), FULL)
        self.alpha = alpha
        self._delivered = self._marked = 0
        self._round_end = following

    def threshold_after_loss(self) -> int:
        self._window_at_loss = self.window
        return max(self.window >> 1, 2)

    def threshold_after_marks(self) -> int:
        self._window_at_loss = self.window
        return max(self.window - ((self.window * self.alpha) >> 11), 2)

    def window_before(self, prior: int) -> int:
        return max(self.window, self._window_at_loss)

    def state(self) -> dict[str, float]:
        return {"alpha": self.alpha / FULL}
