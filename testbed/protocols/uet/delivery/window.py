"""Packets that were sent and wait for their acknowledgement: one direction of a PDC, on the sender's side.

Source: UE Specification 1.0, sections 3.5.11 (windows), 3.5.12 (retransmission) and 3.5.20 (CLEAR).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final, Protocol

from testbed.protocols.uet.packets.codes import NOMINAL_OVERHEAD_BYTES, UDP_HEADER_BYTES, ControlType, NextHeader
from testbed.protocols.uet.packets.psn import PSN_MASK, psn_add, psn_distance

NOMINAL_HEADER_BYTES: Final = UDP_HEADER_BYTES + NOMINAL_OVERHEAD_BYTES + 16 + 44
"""Headers of a packet that is yet to be made, as credit is asked for it: PDS with credit_target, standard SES."""


class PacketState(IntEnum):
    IN_FLIGHT = 0
    LOST = 1
    """To be sent again."""
    WAITING = 2
    """To be sent again after NACK_Retx_Time."""
    SACKED = 3
    """The peer has it; its acknowledgement is to come."""
    DONE = 4


_IN_FLIGHT: Final = PacketState.IN_FLIGHT
_SACKED: Final = PacketState.SACKED
_DONE: Final = PacketState.DONE
MOST_CLEARED: Final = 64
"""Packets that are cleared, before a window lets go of their places: not for each of them."""


class PacketSource(Protocol):
    """The source of packets, which learns what became of them: a message, or the responses of a target."""

    def next_packet(self) -> TxPacket | None:
        """The next new packet, which gets the window's next PSN before anything else does; None when there is none any
        more."""

    @property
    def exhausted(self) -> bool:
        """Tell whether `next_packet` would say None now."""

    @property
    def remaining_bytes(self) -> int:
        """Nominal size of the packets to come, about: payload, and `NOMINAL_HEADER_BYTES` for each."""

    def packet_acked(self, packet: TxPacket, next_header: NextHeader, response: bytes | memoryview, now: int) -> None:
        """The peer has it. `response` is the SES response, empty for the default one."""

    def failed(self, reason: str, now: int) -> None:
        """The PDC ended before everything was acknowledged."""


class TxPacket:
    """A packet with a PSN of its own: an SES request or response, or a control packet that must arrive."""

    def __init__(
        self,
        source: PacketSource | None,
        next_header: NextHeader,
        body: bytes,
        payload: bytes | memoryview = b"",
        control: ControlType | None = None,
    ) -> None:
        self.source = source
        self.next_header = next_header
        self.body = body
        """SES header."""
        self.payload = payload
        self.control = control
        """The type of a control packet, which has no body; None for others."""
        self.psn = 0
        self.size = 0
        """Nominal packet size (section 3.6.12)."""
        self.entropy = 0
        self.sent_at = 0
        self.transmissions = 0
        self.timeouts = 0
        self.nacks = 0
        self.asked = False
        """An ACK_REQ has asked for its ACK, which then tells no round trip."""
        self.state = PacketState.IN_FLIGHT


class SendWindow:
    """Packets above CLEAR_PSN. `clear_psn`: all packets up to it are acknowledged."""

    def __init__(self, start_psn: int) -> None:
        self.start_psn = start_psn
        self.next_psn = start_psn
        self.clear_psn = psn_add(start_psn, -1)
        self.cack_psn = self.clear_psn
        """The highest CACK_PSN heard."""
        self._packets: list[TxPacket] = []
        """From `_head` on they have the PSNs above `clear_psn`, one after the other."""
        self._head = 0
        self.sent = 0
        """The number of PSNs given, more than 2**32 perhaps."""

    def __len__(self) -> int:
        return len(self._packets) - self._head

    def __iter__(self) -> Iterator[TxPacket]:
        """In the order of their PSNs."""
        return iter(self._packets[self._head :] if self._head else self._packets)

    def add(self, packet: TxPacket) -> None:
        """Give it the next PSN."""
        psn = self.next_psn
        packet.psn = psn
        self._packets.append(packet)
        self.sent += 1
        self.next_psn = (psn + 1) & 0xFFFF_FFFF

    def renumber(self, start_psn: int) -> None:
        """Give the packets the PSNs from another Start_PSN on; nothing may have been acknowledged."""
        packets = list(self)
        self._forget()
        self.start_psn = self.next_psn = start_psn
        self.clear_psn = self.cack_psn = psn_add(start_psn, -1)
        self.sent = 0
        for packet in packets:
            self.add(packet)

    @property
    def outstanding(self) -> int:
        """PSNs between the peer's CACK_PSN and the next new one."""
        return (self.next_psn - 1 - self.cack_psn) & 0xFFFF_FFFF

    def get(self, psn: int) -> TxPacket | None:
        """The packet of this PSN unless it is acknowledged and cleared, or never was."""
        place = self._head + ((psn - self.clear_psn - 1) & PSN_MASK)
        return self._packets[place] if place < len(self._packets) else None

    def was_sent(self, psn: int) -> bool:
        """Tell whether some packet has had this PSN, of the latest 2**31."""
        behind = (self.next_psn - 1 - psn) & 0xFFFF_FFFF
        return behind < self.sent and behind < 0x8000_0000

    def may_be_cumulative(self, psn: int) -> bool:
        """Tell whether it can be a CACK_PSN: that of a packet, or the one before Start_PSN."""
        behind = (self.next_psn - 1 - psn) & 0xFFFF_FFFF
        return behind <= self.sent and behind < 0x8000_0000

    def cumulative(self, cack_psn: int) -> list[TxPacket]:
        """Take CACK_PSN; the packets that it acknowledges and nothing had before, for the caller to make done.

        `clear_psn` moves on, over all packets that are done already.
        """
        newly: list[TxPacket] = []
        if cack_psn == self.cack_psn or psn_distance(cack_psn, self.cack_psn) < 0:
            self.advance()
            return newly
        self.cack_psn = cack_psn
        packets = self._packets
        head = self._head
        end = head + max(psn_distance(cack_psn, self.clear_psn), 0)
        while head < end:
            packet = packets[head]
            if packet.state is not _DONE:
                newly.append(packet)
            head += 1
        self._clear_to(head)
        self.advance()
        return newly

    def advance(self) -> None:
        """Move `clear_psn` over the packets that are done."""
        packets = self._packets
        head = self._head
        while head < len(packets) and packets[head].state is _DONE:
            head += 1
        if head != self._head:
            self._clear_to(head)

    def _clear_to(self, head: int) -> None:
        """Move `clear_psn` on, over the packets before the place `head`."""
        self.clear_psn = (self.clear_psn + head - self._head) & PSN_MASK
        self._head = head
        if head == len(self._packets):
            self._forget()
        elif head >= MOST_CLEARED and 2 * head >= len(self._packets):
            del self._packets[:head]
            self._head = 0

    def _forget(self) -> None:
        self._packets.clear()
        self._head = 0

    def abandon(self) -> list[TxPacket]:
        """Forget all packets; those that were not done."""
        left = [packet for packet in self if packet.state is not _DONE]
        self._forget()
        return left

    @property
    def any_under_way(self) -> bool:
        """Tell whether a packet is on its way to the peer, or its acknowledgement back from there."""
        packets = self._packets
        for place in range(self._head, len(packets)):
            state = packets[place].state
            if state is _IN_FLIGHT or state is _SACKED:
                return True
        return False
