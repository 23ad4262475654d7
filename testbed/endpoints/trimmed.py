"""Receives what a switch has trimmed: packets that end before their UDP length says.

A UDP socket never sees these, since the kernel drops a datagram that is shorter than it claims, so a raw socket takes
them in. A filter in the kernel (classic BPF) keeps all whole packets away from it; it needs CAP_NET_RAW. The UDP
checksum covers bytes that are gone and cannot be verified. Source: UE Specification 1.0, section 4.1.
"""

from __future__ import annotations

import struct

from testbed.endpoints.messages import CE, ECN_MASK
from testbed.endpoints.raw_receiver import (
    A_TO_X,
    JUMP_EQUAL,
    JUMP_GREATER_X,
    LOAD_A_MEMORY,
    LOAD_HALF_AT_X,
    LOAD_LENGTH,
    LOAD_X,
    LOAD_X_IP_HEADER,
    RETURN,
    STORE_A,
    SUBTRACT_X,
    WHOLE_PACKET,
    RawReceiver,
    assemble,
)
from testbed.protocols.datagram import Incoming
from testbed.protocols.uet.packets.codes import UDP_HEADER_BYTES

_UDP = struct.Struct("!HHHH")
RECEIVE_BUFFER_BYTES = 1 << 24
"""A trimmed packet occupies as much of it as the whole one did, and an incast's first round trip is trimmed nearly
whole: what does not fit is found missing by time-outs alone. It is a limit, and no memory until then."""


def trimmed_filter(*, ipv6: bool, port: int) -> bytes:
    """A program that passes a packet to UDP `port` only if its UDP length exceeds what arrived behind the IP header.

    A raw IPv4 socket sees the packet from the IP header on, a raw IPv6 socket from the UDP header on.
    """
    return assemble(
        (
            (LOAD_X, 0, 0, 0) if ipv6 else (LOAD_X_IP_HEADER, 0, 0, 0),
            (LOAD_HALF_AT_X, 0, 0, 2),
            (JUMP_EQUAL, 0, 7, port),
            (LOAD_HALF_AT_X, 0, 0, 4),
            (STORE_A, 0, 0, 0),
            (LOAD_LENGTH, 0, 0, 0),
            (SUBTRACT_X, 0, 0, 0),
            (A_TO_X, 0, 0, 0),
            (LOAD_A_MEMORY, 0, 0, 0),
            (JUMP_GREATER_X, 1, 0, 0),
            (RETURN, 0, 0, 0),
            (RETURN, 0, 0, WHOLE_PACKET),
        )
    )


def decode_trimmed(packet: memoryview, *, ipv6: bool, port: int) -> tuple[int, int, memoryview] | None:
    """(source port, bytes of UDP payload that were sent, what is left of them) of a trimmed packet to `port`.

    `packet` begins with the IPv4 header, or behind the IPv6 header. None for anything else.
    """
    offset = 0
    if not ipv6:
        if not packet:
            return None
        offset = (packet[0] & 15) * 4
    if len(packet) < offset + UDP_HEADER_BYTES:
        return None
    source, destination, length, _ = _UDP.unpack_from(packet, offset)
    if destination != port or not source or length <= len(packet) - offset:
        return None
    return source, length - UDP_HEADER_BYTES, packet[offset + UDP_HEADER_BYTES :]


class TrimmedReceiver(RawReceiver):
    """Receives trimmed packets at one IP address. Opening it raises `PermissionError` without CAP_NET_RAW.

    `last_hop_dscp` is DSCP_TRIMMED_LASTHOP where the fabric has one.
    """

    def __init__(self, address: str, *, port: int, last_hop_dscp: int | None = None) -> None:
        super().__init__(address, trimmed_filter(ipv6=":" in address, port=port), RECEIVE_BUFFER_BYTES)
        self._port = port
        self._last_hop_dscp = last_hop_dscp

    def receive(self) -> list[Incoming]:
        """Return the trimmed datagrams that have arrived."""
        found: list[Incoming] = []
        for packet, remote, _, tos, _ in self.read():
            decoded = decode_trimmed(packet, ipv6=self.ipv6, port=self._port)
            if decoded is None:
                continue
            entropy, length, data = decoded
            mark = tos if self.ipv6 else packet[1]
            last_hop = mark >> 2 == self._last_hop_dscp
            found.append(Incoming(remote, entropy, data, mark & ECN_MASK == CE, length, last_hop))
        return found
