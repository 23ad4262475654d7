"""A datagram on its way: what the wire and the switches know of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from testbed.protocols.datagram import Priority

if TYPE_CHECKING:
    from mypy_extensions import i64

    from testbed.protocols.simulation.switch import HeldAccount

WIRE_OVERHEAD_BYTES: Final = 8 + 20 + 14 + 24
"""UDP, IPv4 and Ethernet headers, then FCS (4), preamble (8) and gap (12). Queues count the same bytes as
the wire.

Short frames are not padded to the 64 bytes of Ethernet; that concerns UDP payloads below 18 bytes.
"""

DEFAULT_TTL: Final = 64
"""The time to live of what hosts send, in routers (RFC 1122, section 3.2.1.7; the default of RFC 1700 and of Linux)."""


class Frame:
    """One datagram from its sender's NIC to its receiver; changed in place as switches mark and trim it.

    Its payload is not copied: it stays where its sender has it until it arrives, which the sender leaves as it is until
    it knows of that. A fabric of thousands of NICs has gigabytes under way.
    """

    def __init__(
        self,
        source: i64,
        destination: i64,
        entropy: i64,
        priority: i64,
        header: bytes,
        payload: bytes | memoryview = b"",
    ) -> None:
        self.source: i64 = source
        """Number of the host that sent it."""
        self.destination: i64 = destination
        self.entropy: i64 = entropy
        self.priority: i64 = priority
        """A `Priority`, as a plain int."""
        self.header = header
        self.payload = payload
        size: i64 = len(header) + len(payload)
        self.size: i64 = size
        """Bytes of UDP payload, as much as is left of it."""
        self.length: i64 = size
        """UDP payload bytes that were sent."""
        self.wire_bytes: i64 = size + WIRE_OVERHEAD_BYTES
        self.group: i64 = destination
        """Number of the group of hosts, with the same routes, that the destination is of."""
        self.flow: i64 = source << 48 | destination << 32 | entropy
        """The numbers that switches hash, of 16, 16 and 32 bits: TCP's entropy has the destination's port above the
        source's, UDP's the source's alone."""
        self.ttl: i64 = DEFAULT_TTL
        """The number of routers that it may yet pass, and one."""
        self.ce = False
        self.trimmed = False
        self.last_hop = False
        """It was trimmed by the last switch."""
        self.tunnelled = False
        """It is in an outer packet, as on the way between two VTEPs."""
        self.kind: i64 = priority
        """A `PacketKind`: its class, where ports have classes."""
        self.curve_bin: i64 = -1
        """The place in the marking curve at which it met its queue, as long as it is yet to be marked."""
        self.account: HeldAccount | None = None
        """The account of the input port that brought it, as long as it waits in a switch."""
        self.next: Frame | None = None
        """The one behind it in the queue that it waits in."""

    @property
    def data(self) -> bytes:
        """UDP payload, as much as is left of it: a copy, where it is in two parts."""
        return self.header + self.payload if len(self.payload) else self.header

    @data.setter
    def data(self, data: bytes) -> None:
        self.header = data
        self.payload = b""
        self.size = len(data)

    def trim(self, payload_bytes: i64, last_hop: bool) -> None:
        """Cut the UDP payload; the UDP length stays as it was (UE Specification 1.0, section 4.1)."""
        self.data = self.data[:payload_bytes]
        self.wire_bytes = payload_bytes + WIRE_OVERHEAD_BYTES
        self.trimmed = True
        self.last_hop = last_hop

    def copy(self) -> Frame:
        other = Frame(self.source, self.destination, self.entropy, self.priority, self.header, self.payload)
        other.length = self.length
        other.group = self.group
        other.ttl = self.ttl
        other.ce = self.ce
        other.trimmed = self.trimmed
        other.last_hop = self.last_hop
        other.tunnelled = self.tunnelled
        other.kind = self.kind
        other.wire_bytes = self.wire_bytes
        return other

    def __repr__(self) -> str:
        kind = "trimmed" if self.trimmed else Priority(self.priority).name
        return f"<{kind} {self.source}->{self.destination} entropy {self.entropy}, {self.wire_bytes} bytes>"
