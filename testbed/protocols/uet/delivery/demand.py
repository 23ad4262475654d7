"""The demand of a sender where the destination grants credit (RCCC): its backlog, and CREDIT_REQ when it is stuck.

Source: UE Specification 1.0, section 3.6.14; the timing is that of the UEC simulator (see `congestion.rccc`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from testbed.protocols.uet.packets.codes import ControlType

if TYPE_CHECKING:
    from testbed.protocols.uet.delivery.pdc import Pdc
    from testbed.protocols.uet.delivery.sender import Sender

_MESSAGES_SEEN: Final = 32
"""At most so many of the messages that wait are looked at: with a window's worth of idle credit, that is enough."""


class CreditDemand:
    """Keeps the congestion context told of the backlog; asks for credit, and gives up where nobody answers."""

    def __init__(self, pdc: Pdc, sender: Sender) -> None:
        self._pdc = pdc
        self._sender = sender
        self._enough = int(pdc.config.nscc().max_wnd_bytes)
        """No more than MaxWnd can be asked for."""
        self._stuck_since = -1
        """Without credit, and without a word of the peer, since then; -1: not so."""

    def tell(self) -> None:
        """Tell congestion control what waits at present."""
        sender = self._sender
        backlog = 0
        for number, source in enumerate(sender.sources):
            backlog += source.remaining_bytes
            if backlog >= self._enough or number >= _MESSAGES_SEEN:
                break
        sender.congestion.on_demand(backlog, sender.retransmit_bytes)

    def heard(self) -> None:
        """An ACK, a NACK or credit arrived."""
        self._stuck_since = -1

    def blocked(self, now: int) -> None:
        """Something waits and may not be sent."""
        self.tell()
        due = self._sender.congestion.next_credit_request_time()
        if due is not None:
            if self._stuck_since < 0:
                self._stuck_since = now
            self._pdc.arm(max(due, now))

    def handle_timer(self, now: int) -> int:
        """Ask for credit if that is due; when to come again, 0 for never."""
        sender = self._sender
        if not sender.has_work:
            return 0
        self.tell()
        due = sender.congestion.next_credit_request_time()
        if due is None:
            return 0
        if due <= now:
            if 0 <= self._stuck_since < now - self._pdc.config.patience_ns:
                self._pdc.fail("the peer grants no credit", now)
                return 0
            target = sender.congestion.credit_target()
            # The PSN is that of a packet which waits, so that a peer that has no such PDC can refuse it.
            psn = next((packet.psn for packet in sender.window), sender.window.next_psn)
            self._pdc.send_control(ControlType.CREDIT_REQ, psn, now, payload=target)
            sender.congestion.on_credit_request(now)
            due = sender.congestion.next_credit_request_time()
        return due or 0
