"""Which entropy value a packet leaves with: fresh packets of one burst may share one, which the kernel then sends and
receives as one.

Bursts are no longer than a part of the window allows. With a window of a few packets, one value would otherwise have
all of it, come back with each acknowledgement, and be chosen again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from testbed.protocols.uet.paths import REPS_RING

if TYPE_CHECKING:
    from testbed.protocols.uet.config import UetConfig
    from testbed.protocols.uet.congestion.context import CongestionContext
    from testbed.protocols.uet.paths import PathSelector

BURSTS_OF_WINDOW: Final = REPS_RING
"""A window holds at least so many bursts, or single packets: as many values as REPS remembers."""


class Bursts:
    """The bursts of one sender."""

    def __init__(self, config: UetConfig, congestion: CongestionContext, paths: PathSelector) -> None:
        self._longest: int = config.packets_per_entropy
        self._packet_bytes: int = config.packet_bytes
        self._packets_per_ack: int = config.packets_per_ack
        self._congestion = congestion
        self._paths = paths
        self._left: int = 0
        """Packets more that may go out at `_at` with `_entropy`."""
        self._at: int = -1
        self._entropy: int = 0

    def choose(self, now: int, again: bool) -> int:
        """Return the entropy value of the next packet; one that is sent `again` begins a burst."""
        if self._left > 0 and self._at == now and not again:
            self._left -= 1
            return self._entropy
        self._entropy = self._paths.next_entropy(now)
        self._at = now
        self._left = self._length() - 1
        return self._entropy

    def covered(self, packets: int) -> int:
        """Return for how many packets the value of an ACK counts that acknowledges these: for those of a whole ACK
        where the window has room for bursts of full length."""
        short = self._window_packets() < self._longest * BURSTS_OF_WINDOW
        return packets if short else self._packets_per_ack

    def _length(self) -> int:
        if self._longest == 1:
            return 1
        return max(1, min(self._longest, self._window_packets() // BURSTS_OF_WINDOW))

    def _window_packets(self) -> int:
        if self._congestion.window is None and self._congestion.credit is None:
            return self._longest * BURSTS_OF_WINDOW  # nothing limits it
        return int(self._congestion.cwnd_bytes) // self._packet_bytes
