"""The congestion window of one source: the base class of every controller that moves a window.

The base class itself is a window that nothing moves. A controller overrides what it reacts to, and calls the method it
overrides, which keeps the account of what is in flight. Times are in ns, sizes in bytes of nominal packet size (UDP
length + 40).
"""

from __future__ import annotations

import math

from testbed.protocols.congestion.control import CongestionControl
from testbed.protocols.open_classes import mypyc_attr
from testbed.protocols.uet.packets.codes import NackCode


@mypyc_attr(allow_interpreted_subclasses=True)
class CongestionWindow(CongestionControl):
    """A window of `max_wnd` bytes, for packets of `mtu_bytes` at most; a source may send while another packet fits."""

    def __init__(self, max_wnd_bytes: float, mtu_bytes: int) -> None:
        super().__init__(math.inf)  # the window alone holds it back
        self.max_wnd: float = max_wnd_bytes
        """The most that `window_bytes` can be at present."""
        self.window_bytes = max_wnd_bytes
        self.inflight: int = 0
        """Signed: Rcvd_Bytes is rounded up, so it may claim a little more than was sent."""
        self._mtu: int = mtu_bytes

    def can_send(self) -> bool:
        """Tell whether one more packet fits into the window."""
        return self.inflight + self._mtu <= self.window_bytes

    def ack_request(self) -> bool:
        """Tell whether the packet just counted as sent must ask for an ACK (AR), because no other fits behind it."""
        return self.window_bytes - self.inflight < self._mtu

    def on_send(self, now: int, size: int) -> None:
        """Count a packet of `size` bytes that was sent, the first time or again."""
        self.inflight += size

    def on_ack(self, now: int, acked_bytes: int, marked: bool, rtt_ns: int) -> None:
        """Take in an ACK.

        `acked_bytes` is how far Rcvd_Bytes has moved, `marked` its M bit, `rtt_ns` the round trip without the peer's
        service time, -1 where it is not valid.
        """
        self.inflight -= acked_bytes

    def on_nack(self, now: int, code: NackCode, size: int, rtt_ns: int, rccc_enabled: bool) -> None:
        """Take in a NACK for a packet of `size` bytes. `rccc_enabled`: the destination grants credit, too."""
        self.inflight -= size

    def on_loss(self, now: int, size: int) -> None:
        """Take a packet of `size` bytes for lost without a word of the receiver."""
        self.inflight -= size

    def on_probe_ack(self, rtt_ns: int) -> None:
        """Take in the round trip of a probe on the control class (section 3.6.13.7)."""
