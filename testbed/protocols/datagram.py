"""UDP datagrams as a transport core sees them: what it wants sent, and what has arrived."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

DONT_FRAGMENT: Final = 0x4000
"""The second word of an IPv4 header as Linux sends it for endpoints: DF set, identification and offset 0."""


NIC_PACKETS: Final = 12
"""Full packets of an endpoint that wait in its NIC at most, out of its reach, while their class is paused."""


class Priority(IntEnum):
    """The importance of a datagram to the switches; the I/O layer chooses the DSCP and the ECN field by it.

    Source: UE Specification 1.0, section 4.1 (DSCP_TRIMMABLE, DSCP_TRIMMABLE_RTX, DSCP_CONTROL).
    """

    DATA = 0
    """May be marked (ECT) and trimmed."""
    RETRANSMISSION = 1
    """Data again: may be marked and trimmed, later than fresh data."""
    CONTROL = 2
    """ACK, NACK and control packets: neither marked nor trimmed."""
    NOTIFICATION = 3
    """CNP of RoCEv2: as CONTROL, in a class of its own."""


class Outgoing(NamedTuple):
    """A datagram to be sent from this endpoint's address to the transport's UDP port at `remote`."""

    remote: str
    """IP address of the peer."""
    entropy: int
    """UDP source port (1 to 65535), by which ECMP chooses the path."""
    priority: Priority
    header: bytes
    payload: bytes | memoryview
    """Follows the header; kept apart because it may be a view of the memory of a user."""

    def to_bytes(self) -> bytes:
        """The whole UDP payload."""
        return self.header + self.payload


class Incoming(NamedTuple):
    """A datagram that arrived at this endpoint's address and the transport's UDP port."""

    remote: str
    """IP address it came from."""
    entropy: int
    """Its UDP source port."""
    data: bytes | memoryview
    """UDP payload, as much of it as arrived. It is overwritten after the call it is handed to has returned."""
    ce: bool = False
    """Congestion experienced (RFC 3168)."""
    length: int = 0
    """UDP payload bytes that were sent; more than `len(data)` where a switch trimmed. 0: all of `data`."""
    last_hop: bool = False
    """It was trimmed by the last switch (DSCP_TRIMMED_LASTHOP)."""
    fragment_word: int = DONT_FRAGMENT
    """The second word of its IPv4 header (identification, flags, fragment offset), where it was seen."""

    @property
    def trimmed(self) -> bool:
        return self.length > len(self.data)
