"""An account of each flow of a capture: packets, bytes, marks, notifications, refusals, packets sent again.

A flow is what goes from one address to another for one queue pair (RoCE), or from one packet delivery context (UET),
in the same VLANs and tunnels.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.protocols.captured.packet import MALFORMED, CapturedPacket, Refusal


@dataclass(slots=True)
class FlowAccount:
    """Counts are packets where their name says nothing else."""

    transport: str
    src: str
    dst: str
    flow: str
    """The queue pair at the destination, or the PDCID that the source has given; "": none that could be decoded."""
    packets: int = 0
    bytes: int = 0
    """UDP payload, as it was sent."""
    payload_bytes: int = 0
    """The payload of messages, counted again where packets were sent again."""
    ce: int = 0
    """Marked with "congestion experienced"."""
    cnps: int = 0
    naks: int = 0
    rnr_naks: int = 0
    retransmitted: int = 0
    trimmed: int = 0
    malformed: int = 0
    bad_icrc: int = 0
    cut: int = 0
    """Packets of which the capture has not all; a trimmed packet is whole in this sense."""
    inside: str = ""
    """VLANs and tunnels that it was seen in; "": none."""

    def add(self, packet: CapturedPacket) -> None:
        seen = packet.datagram
        self.packets += 1
        self.bytes += seen.length
        self.payload_bytes += packet.payload_bytes
        self.ce += seen.marked
        self.cnps += packet.notifies
        self.naks += packet.refusal is Refusal.NAK
        self.rnr_naks += packet.refusal is Refusal.NOT_READY
        self.retransmitted += packet.repeated
        self.trimmed += seen.trimmed
        self.malformed += packet.kind == MALFORMED
        self.cut += seen.snapped
        self.bad_icrc += packet.damaged


class FlowAccounts:
    """The accounts of one capture, in the order in which the flows began."""

    def __init__(self) -> None:
        self._accounts: dict[tuple[str, str, str, str, str], FlowAccount] = {}

    def add(self, packet: CapturedPacket) -> None:
        """Count a packet."""
        seen = packet.datagram
        key = (packet.transport, seen.source, seen.destination, packet.flow, seen.inside)
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = FlowAccount(*key[:4], inside=seen.inside)
        account.add(packet)

    @property
    def accounts(self) -> list[FlowAccount]:
        """The accounts, one for each flow."""
        return list(self._accounts.values())
