"""The IP addresses and the UDP header as the ICV of TSS and the UET CRC cover them.

Both protections begin at the IP source address, since the fields before it (DSCP, ECN, TTL, IP checksum and total
length) change on the way (UE Specification 1.0, sections 3.5.25 and 3.7).

What the sources leave open is decided here and nowhere else: the reference provider runs over native IP alone, where
the four bytes of the entropy header follow the addresses. Over UDP the eight bytes of the UDP header stand in that
place and are covered whole: both ports, the length as sent (header of TSS, ICV and CRC included) and a checksum taken
as 0, whatever the sender puts in the packet. One public reading of 1.0.3 says the same of the checksum for the CRC.
Alternatives would be to leave the length out (a trimmed packet would then differ in its payload alone) or to cover the
checksum as sent, which only works while nobody offloads or rewrites it.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from ipaddress import ip_address
from typing import Final

from testbed.protocols.errors import UsageError
from testbed.protocols.uet.packets.codes import UDP_HEADER_BYTES, UDP_PORT

MAX_UDP_PAYLOAD_BYTES: Final = 0xFFFF - UDP_HEADER_BYTES

_UDP_HEADER: Final = struct.Struct(">HHHH")


@lru_cache(maxsize=4096)
def covered_addresses(source_ip: str, destination_ip: str) -> bytes:
    """Source and destination as on the wire: 8 bytes for IPv4, 32 for IPv6; UsageError if these are no such pair.

    The cache is bounded: its keys come from the wire before anything is verified.
    """
    try:
        source = ip_address(source_ip)
        destination = ip_address(destination_ip)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if source.version != destination.version:
        raise UsageError(f"{source_ip} and {destination_ip} are not of one address family")
    return source.packed + destination.packed


def covered_udp_header(source_port: int, payload_bytes: int) -> bytes:
    """The UDP header of a payload of so many bytes, its checksum 0; UsageError if a field does not hold its value."""
    try:
        return _UDP_HEADER.pack(source_port, UDP_PORT, UDP_HEADER_BYTES + payload_bytes, 0)
    except struct.error:
        raise UsageError(f"no UDP header holds port {source_port} and {payload_bytes} bytes of payload") from None
