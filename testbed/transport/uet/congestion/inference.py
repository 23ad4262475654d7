"""Loss inferred from how far out of order the receiver is, for fabrics that do not trim.

The specification leaves inference to the implementation. This is the UEC simulator's ("SLEEK"): packets are
sprayed, so being overtaken proves nothing until more than a window's worth has overtaken.
"""

from __future__ import annotations

OOO_CWND_FACTOR = 1.5
MIN_OOO_PACKETS = 5
PROBE_BLOCKED_RTTS = 3
"""While data still waits, a probe is sent after this many base RTTs without an ACK."""


class LossInference:
    """Loss recovery of one PDC. Packets are counted from 0 since its Start_PSN, without wrapping.

    While recovering, all packets from the cumulative ACK on that were sent before the recovery began, within one
    window and not yet declared lost, are taken for lost unless the SACK bitmap has them.
    """

    __slots__ = ("_declared", "_mtu", "_recovery_end", "recovering")

    def __init__(self, mtu_bytes: int) -> None:
        self._mtu = mtu_bytes
        self._declared = 0
        self._recovery_end = 0
        self.recovering = False

    def on_ack(
        self, expected: int, next_to_send: int, ooo_count: int, cwnd: float, max_wnd: float
    ) -> tuple[int, int] | None:
        """The packets to take for lost: from the first to before the second, unless SACKed; None if there are none.

        `expected` is the first packet that the cumulative ACK does not cover, `ooo_count` the receiver's count of
        packets out of order (table 3-74; 0xFFFF, "not computed", must not be handed in), windows in bytes.
        """
        if self.recovering and expected >= self._recovery_end:
            self.recovering = False
        if not self.recovering:
            threshold = max(min(OOO_CWND_FACTOR * cwnd, max_wnd), float(MIN_OOO_PACKETS * self._mtu))
            if ooo_count * self._mtu < threshold:
                return None
            self._recover(next_to_send)
        return self._lost(expected, cwnd)

    def on_probe_ack(
        self, expected: int, next_to_send: int, qdelay_ns: float, target_qdelay_ns: float, cwnd: float
    ) -> tuple[int, int] | None:
        """As `on_ack`, for the answer to a probe: if it met no queue, what was sent before it should have arrived."""
        if qdelay_ns >= target_qdelay_ns or expected >= next_to_send:
            return None
        self._recover(next_to_send)
        return self._lost(expected, cwnd)

    def _recover(self, next_to_send: int) -> None:
        self.recovering = True
        self._recovery_end = next_to_send

    def _lost(self, expected: int, cwnd: float) -> tuple[int, int] | None:
        first = max(expected, self._declared)
        end = min(self._recovery_end, expected + int(cwnd) // self._mtu)
        if first >= end:
            return None
        self._declared = end
        return first, end


def probe_delay_ns(base_rtt_ns: int, target_qdelay_ns: float, backlog: bool) -> int:
    """How long after the last ACK a probe is due while packets are unacknowledged; sooner if no more is to be sent."""
    if backlog:
        return PROBE_BLOCKED_RTTS * base_rtt_ns
    return base_rtt_ns + round(target_qdelay_ns)
