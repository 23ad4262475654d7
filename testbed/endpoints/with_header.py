"""Receives UDP datagrams over IPv4 with the header that each came with, which a UDP socket keeps to itself.

The invariant CRC of RoCEv2 covers the identification of the IPv4 header and its flags. Endpoints of this project send
0 and DF, so that they need not see the header of each other's packets; other senders count their packets. A raw socket
takes those in. IPv6 has no such field. It is given what the UDP socket would be, without the UDP checksum being looked
at: 0 with most senders of RoCE, whose own CRC covers more.
"""

from __future__ import annotations

import struct

from testbed.endpoints.messages import CE, ECN_MASK
from testbed.endpoints.raw_receiver import (
    JUMP_EQUAL,
    LOAD_HALF_AT_X,
    LOAD_X_IP_HEADER,
    RETURN,
    WHOLE_PACKET,
    RawReceiver,
    assemble,
)
from testbed.protocols.datagram import Incoming

_IPV4 = struct.Struct("!BBHI")
_UDP = struct.Struct("!HHHH")
_PLAIN_HEADER = 0x45
"""Version 4, five words: no options, which the CRC would cover too."""
_HEADERS_BYTES = 28


def port_filter(port: int) -> bytes:
    """A program that passes what is for UDP `port`, of packets that begin with their IPv4 header."""
    return assemble(
        (
            (LOAD_X_IP_HEADER, 0, 0, 0),
            (LOAD_HALF_AT_X, 0, 0, 2),
            (JUMP_EQUAL, 1, 0, port),
            (RETURN, 0, 0, 0),
            (RETURN, 0, 0, WHOLE_PACKET),
        )
    )


def decode_datagram(packet: memoryview, source: str, port: int) -> Incoming | None:
    """The datagram in an IPv4 packet to UDP `port`; None where it is none, is cut short, or cannot be answered."""
    if len(packet) < _HEADERS_BYTES:
        return None
    version, tos, _, fragment_word = _IPV4.unpack_from(packet)
    entropy, destination, length, _ = _UDP.unpack_from(packet, _HEADERS_BYTES - _UDP.size)
    end = _HEADERS_BYTES - _UDP.size + length
    if version != _PLAIN_HEADER or destination != port or not entropy or length < _UDP.size or end > len(packet):
        return None
    return Incoming(source, entropy, packet[_HEADERS_BYTES:end], tos & ECN_MASK == CE, 0, False, fragment_word)


class HeaderReceiver(RawReceiver):
    """Receives what is for a UDP port at one IPv4 address. Opening it raises `PermissionError` without CAP_NET_RAW."""

    def __init__(self, address: str, *, port: int, receive_buffer_bytes: int) -> None:
        super().__init__(address, port_filter(port), receive_buffer_bytes)
        self._port = port

    def receive(self) -> list[Incoming]:
        """Return the datagrams that have arrived."""
        found = (decode_datagram(data, remote, self._port) for data, remote, *_ in self.read())
        return [datagram for datagram in found if datagram is not None]
