"""The congestion control context (CCC): the algorithms of one source towards one destination, as one object.

Source: UE Specification 1.0, section 3.6.12.3. A context may serve several PDCs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.protocols.uet.packets.codes import NackCode

if TYPE_CHECKING:
    from testbed.protocols.uet.congestion.credit import SourceCredit
    from testbed.protocols.uet.congestion.window import CongestionWindow


class CongestionContext:
    """A window, credit or both; what all of them permit may be sent.

    Times in ns, sizes in bytes of nominal packet size (UDP length + 40). One call for each thing that happens; path
    selection is told apart (`paths`). `on_demand` says what waits, for what is asked of the destination with RCCC.
    """

    def __init__(self, window: CongestionWindow | None, credit: SourceCredit | None) -> None:
        self.window = window
        self.credit = credit
        self.sends: int = 0
        """Packets sent so far, those sent again included."""
        self.latest_rtt_ns: int = 0
        """0: none was measured."""
        self.least_rtt_ns: int = 0
        self.inflight_bytes: int = 0
        """May be a little below 0, as Rcvd_Bytes is rounded up."""
        self._backlog: int = 0
        self._retransmit: int = 0

    @property
    def rccc_enabled(self) -> bool:
        """Tell whether requests carry a credit_target (RUD_CC_REQ, ROD_CC_REQ)."""
        return self.credit is not None

    @property
    def cwnd_bytes(self) -> float:
        """The window; with credit alone, what is in flight and what credit would let follow."""
        if self.window is not None:
            return self.window.window_bytes
        if self.credit is not None:
            return float(self.inflight_bytes + max(self.credit.credit, 0))
        return 0.0

    @property
    def max_wnd_bytes(self) -> float:
        """The most that `cwnd_bytes` can be at present; with credit alone, the window itself."""
        return self.cwnd_bytes if self.window is None else self.window.max_wnd

    def state(self) -> dict[str, float]:
        """Return what its window and its credit know beside the window's size, by name, as curves of a run show it."""
        found = {} if self.window is None else self.window.state()
        return found if self.credit is None else {**found, "credit_bytes": float(self.credit.credit)}

    def can_send(self) -> bool:
        """Tell whether a packet may be sent, of whatever size: at most one too many fits in."""
        window = self.window
        if window is not None and not window.can_send():
            return False
        credit = self.credit
        return credit is None or credit.credit > 0

    def on_demand(self, backlog_bytes: int, retransmit_bytes: int) -> None:
        """Learn what the PDCs of this context have waiting, fresh and to be sent again.

        Due when that has changed, once after a batch of events.
        """
        self._backlog = backlog_bytes
        self._retransmit = retransmit_bytes

    def on_send(self, now: int, size: int) -> None:
        """A request was sent, the first time or again. `now` is for algorithms to come."""
        self.sends += 1
        self.inflight_bytes += size
        if self.window is not None:
            self.window.on_send(now, size)
        if self.credit is not None:
            self.credit.on_send(size)

    def ack_request(self) -> bool:
        """Tell whether the packet just counted by `on_send` must ask for an ACK (AR)."""
        if self.window is not None and self.window.ack_request():
            return True
        return self.credit is not None and self.credit.credit <= 0

    def on_ack(self, now: int, newly_received_bytes: int, marked: bool, rtt_ns: int) -> None:
        """An ACK arrived; see `CongestionWindow.on_ack`. `rtt_ns` is -1 where it is not valid."""
        self.inflight_bytes -= newly_received_bytes
        if rtt_ns > 0:
            self.latest_rtt_ns = rtt_ns
            if rtt_ns < self.least_rtt_ns or not self.least_rtt_ns:
                self.least_rtt_ns = rtt_ns
        if self.credit is not None:
            self.credit.on_feedback()
        if self.window is not None:
            self.window.on_ack(now, newly_received_bytes, marked, rtt_ns)

    def on_nack(self, now: int, code: NackCode, size: int, rtt_ns: int, known: bool = True) -> None:
        """A NACK for a packet of `size` bytes that counted as in flight; the packet no longer does.

        Not `known`: the destination still has no PDC of ours, hence nothing that it could grant credit to.
        """
        self.inflight_bytes -= size
        if self.credit is not None:
            if known:
                self.credit.on_feedback()
            elif self.inflight_bytes <= 0:
                self.credit.on_refusal()
        if self.window is not None:
            self.window.on_nack(now, code, size, rtt_ns, self.credit is not None)

    def on_inferred_loss(self, now: int, size: int) -> None:
        """A packet of `size` bytes is taken for lost."""
        self.inflight_bytes -= size
        if self.window is not None:
            self.window.on_loss(now, size)

    def on_discarded(self, size: int) -> None:
        """The peer has thrown away a packet of `size` bytes that is no sign of congestion (out of order on ROD)."""
        self.inflight_bytes -= size
        if self.window is not None:
            self.window.inflight -= size

    def on_nothing_in_flight(self) -> None:
        """No packet is under way, whatever the sums say. Below 0 they may be: Rcvd_Bytes is rounded up."""
        self.inflight_bytes = min(self.inflight_bytes, 0)
        if self.window is not None:
            self.window.inflight = min(self.window.inflight, 0)

    def on_found(self, size: int) -> None:
        """A packet of `size` bytes that no longer counted as in flight has arrived all the same: `on_ack` will take it
        off once more."""
        self.inflight_bytes += size
        if self.window is not None:
            self.window.inflight += size

    def on_probe_ack(self, now: int, rtt_ns: int) -> None:
        """The answer to a probe (section 3.6.13.7): it may show that the base RTT is shorter than configured."""
        if self.window is not None:
            self.window.on_probe_ack(rtt_ns)

    def on_timeout(self, now: int, size: int) -> None:
        """The RTO of a packet fired: as an inferred loss, and credit to send it again is asked for if there is none."""
        self.on_inferred_loss(now, size)
        if self.credit is not None:
            self.credit.on_timeout(now)

    def on_credit(self, now: int, counter: int) -> None:
        """A CREDIT packet or an ACK_CC with credit arrived."""
        if self.credit is not None:
            self.credit.on_credit(now, counter)

    def credit_target(self) -> int:
        """credit_target of the next request or CREDIT_REQ (24 bits, 256 B); 0 without credit."""
        if self.credit is None:
            return 0
        return self.credit.credit_target(
            self._backlog, self._retransmit, None if self.window is None else self.window.window_bytes
        )

    def next_credit_request_time(self) -> int | None:
        """Return when a CREDIT_REQ is due; None if none is. After sending it, call `on_credit_request`."""
        if self.credit is None or (self._backlog <= 0 and self._retransmit <= 0):
            return None
        return self.credit.next_request_time()

    def on_credit_request(self, now: int) -> None:
        if self.credit is not None:
            self.credit.on_request(now)
