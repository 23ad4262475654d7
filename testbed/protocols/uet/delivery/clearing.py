"""CLEAR: how the peer learns which of its guaranteed responses have arrived, so that it forgets them.

Source: UE Specification 1.0, section 3.5.20. A target keeps a guaranteed response until it is cleared, and CACK_PSN
does not pass the PSN of one that is kept. Every request carries CLEAR_PSN; a CLEAR_CMD does where no request is sent
for PDS_Clear_Time. Ours asks for an ACK, and is sent again until one shows that CACK_PSN has moved: what is lost on
the way is not to hold up what was received above. The internals' page on delivery has the states and events as a table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.protocols.uet.delivery.round_trips import LONGEST_RTO_NS
from testbed.protocols.uet.delivery.window import PacketState, SendWindow, TxPacket
from testbed.protocols.uet.packets.codes import ControlType
from testbed.protocols.uet.packets.psn import psn_distance

if TYPE_CHECKING:
    from testbed.protocols.uet.delivery.pdc import Pdc


class Clearing:
    """The guaranteed responses that the peer keeps for one direction of a PDC, as far as its ACKs have told."""

    def __init__(self, pdc: Pdc, window: SendWindow) -> None:
        self._pdc = pdc
        self._window = window
        self.pinned = False
        """CACK_PSN waits for responses to be cleared, between `first_held` and `last_held`."""
        self.first_held = self.last_held = 0
        """PSNs below and above which no response is known to be kept."""
        self.due = 0
        """When CLEAR_PSN is to be told, or told again; 0 for never."""
        self._told = window.clear_psn
        """CLEAR_PSN as last sent."""
        self._tries = 0

    def keep(self, psn: int, now: int) -> None:
        """An ACK has asked for the CLEAR of `psn`."""
        if psn_distance(psn, self._window.cack_psn) <= 0:
            return
        if not self.pinned:
            self.pinned = True
            self.first_held = self.last_held = psn
        elif psn_distance(psn, self.first_held) < 0:
            self.first_held = psn
        else:
            if psn_distance(psn, self.last_held) > 0:
                self.last_held = psn
            return
        for packet in self._window:
            if packet.state is PacketState.SACKED and not packet.asked and self.pins(packet):
                self.ask(packet, now)

    def pins(self, packet: TxPacket) -> bool:
        """CACK_PSN cannot acknowledge this packet before a response below it is cleared: it needs an ACK of its own."""
        return self.pinned and psn_distance(packet.psn, self.first_held) > 0

    def ask(self, packet: TxPacket, now: int) -> None:
        """Send ACK_REQ: the packet was received, and its ACK is what is missing (section 3.5.12)."""
        packet.asked = True
        self._pdc.send_control(ControlType.ACK_REQ, packet.psn, now, acknowledge=True)

    def take_cack(self, now: int) -> None:
        """CACK_PSN may have moved, or CLEAR_PSN: what is cleared, and what is still to be told."""
        cack_psn = self._window.cack_psn
        if psn_distance(cack_psn, self.first_held) >= 0:
            self._tries = 0
            self.due = 0
            if psn_distance(cack_psn, self.last_held) >= 0:
                self.pinned = False
                return
            self.first_held = (cack_psn + 1) & 0xFFFF_FFFF
        if self.due == 0 and self._wanted:
            self.due = now + self._pdc.config.clear_wait_ns
            self._pdc.arm(self.due)

    @property
    def _wanted(self) -> bool:
        """There is a response that has arrived, and of which no ACK has said that it is forgotten."""
        return self.pinned and psn_distance(self._window.clear_psn, self.first_held) >= 0

    def carried(self) -> None:
        """A request with CLEAR_PSN has been sent."""
        self._told = self._window.clear_psn

    def make_room(self, now: int, most: int) -> None:
        """All `most` PSNs above CACK_PSN that may be used are: tell CLEAR_PSN without waiting for more."""
        if self._wanted and psn_distance(self._window.clear_psn, self._told) >= max(most >> 3, 1):
            self.tell(now)

    def handle_timer(self, now: int) -> int:
        """Tell CLEAR_PSN if that is due; when to come again, 0 for never."""
        if not self.due or self.due > now:
            return self.due
        self.due = 0
        if not self._wanted or self._tries > self._pdc.config.max_rto_retx:
            return 0  # a request carries it, whenever there is one
        if self._tries or self._told != self._window.clear_psn:
            self.tell(now)
        self.due = now + min(self._pdc.config.rto_ns << self._tries, LONGEST_RTO_NS)
        self._tries += 1
        return self.due

    def tell(self, now: int) -> None:
        """Send CLEAR_CMD."""
        self._told = clear_psn = self._window.clear_psn
        self._pdc.send_control(ControlType.CLEAR_CMD, clear_psn, now, payload=clear_psn, acknowledge=True)
