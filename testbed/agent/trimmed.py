"""Receives what a switch has trimmed: packets that end before their UDP length says.

A UDP socket never sees these, since the kernel drops a datagram that is shorter than it claims, so a raw socket takes
them in. A filter in the kernel (classic BPF) keeps all whole packets away from it; it needs CAP_NET_RAW. The UDP
checksum covers bytes that are gone and cannot be verified. Source: UE Specification 1.0, section 4.1.
"""

from __future__ import annotations

import socket
import struct

from testbed.agent.mmsg import CE, ECN_MASK, ReceiveRing
from testbed.agent.options import (
    attach_filter,
    dropped_datagrams,
    open_socket,
    receive_tos,
    set_receive_buffer,
)
from testbed.transport.datagram import Incoming
from testbed.transport.uet.packets.codes import UDP_HEADER_BYTES

_UDP = struct.Struct("!HHHH")
RECEIVE_BUFFER_BYTES = 1 << 24
"""A trimmed packet occupies as much of it as the whole one did, and an incast's first round trip is trimmed nearly
whole: what does not fit is found missing by time-outs alone. It is a limit, and no memory until then."""
_SLOTS = 64
_STALE_READS = 256

# Classic BPF (Linux, Documentation/networking/filter.rst): A and X are its registers, M its scratch memory.
_LOAD_HALF_AT_X = 0x48  # A = halfword at [X + k]
_LOAD_LENGTH = 0x80  # A = length of the packet
_LOAD_X_IP_HEADER = 0xB1  # X = 4 * (byte at [k] & 15)
_LOAD_X = 0x01  # X = k
_LOAD_A_MEMORY = 0x60
_STORE_A = 0x02
_A_TO_X = 0x07
_SUBTRACT_X = 0x1C
_JUMP_EQUAL = 0x15
_JUMP_GREATER_X = 0x2D
_RETURN = 0x06
_WHOLE_PACKET = 0xFFFF_FFFF


def trimmed_filter(*, ipv6: bool, port: int) -> bytes:
    """A program that passes a packet to UDP `port` only if its UDP length exceeds what arrived behind the IP header.

    A raw IPv4 socket sees the packet from the IP header on, a raw IPv6 socket from the UDP header on.
    """
    program = (
        (_LOAD_X, 0, 0, 0) if ipv6 else (_LOAD_X_IP_HEADER, 0, 0, 0),
        (_LOAD_HALF_AT_X, 0, 0, 2),
        (_JUMP_EQUAL, 0, 7, port),
        (_LOAD_HALF_AT_X, 0, 0, 4),
        (_STORE_A, 0, 0, 0),
        (_LOAD_LENGTH, 0, 0, 0),
        (_SUBTRACT_X, 0, 0, 0),
        (_A_TO_X, 0, 0, 0),
        (_LOAD_A_MEMORY, 0, 0, 0),
        (_JUMP_GREATER_X, 1, 0, 0),
        (_RETURN, 0, 0, 0),
        (_RETURN, 0, 0, _WHOLE_PACKET),
    )
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


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


class TrimmedReceiver:
    """A raw socket at one IP address. Opening it raises `PermissionError` without CAP_NET_RAW.

    `last_hop_dscp` is DSCP_TRIMMED_LASTHOP where the fabric has one.
    """

    __slots__ = ("_ipv6", "_last_hop_dscp", "_port", "_ring", "_socket")

    def __init__(
        self,
        address: str,
        *,
        port: int,
        interface: str = "",
        last_hop_dscp: int | None = None,
        receive_buffer_bytes: int = RECEIVE_BUFFER_BYTES,
    ) -> None:
        self._ipv6 = ":" in address
        self._port = port
        self._last_hop_dscp = last_hop_dscp
        self._socket = open_socket(address, socket.SOCK_RAW, interface)
        try:
            attach_filter(self._socket, trimmed_filter(ipv6=self._ipv6, port=port))
            set_receive_buffer(self._socket, receive_buffer_bytes)
            if self._ipv6:
                receive_tos(self._socket)
            self._socket.bind((address, 0))
        except OSError:
            self._socket.close()
            raise
        self._ring = ReceiveRing(self._socket.fileno(), ipv6=self._ipv6, slots=_SLOTS)
        for _ in range(_STALE_READS):  # what came in before filter and address were set is not for us
            if not self._ring.read(_SLOTS):
                break

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def overflows(self) -> int:
        """Packets that the kernel dropped because this process did not receive them in time."""
        return dropped_datagrams(self._socket)

    def receive(self) -> list[Incoming]:
        """The trimmed datagrams that have arrived. Valid until the next call."""
        found: list[Incoming] = []
        ring = self._ring
        for index in range(ring.read(_SLOTS)):
            packet = ring.data(index)
            decoded = decode_trimmed(packet, ipv6=self._ipv6, port=self._port)
            if decoded is None:
                continue
            entropy, length, data = decoded
            tos = ring.marks(index)[0] if self._ipv6 else packet[1]
            last_hop = tos >> 2 == self._last_hop_dscp
            found.append(Incoming(ring.source(index)[0], entropy, data, tos & ECN_MASK == CE, length, last_hop))
        return found

    def close(self) -> None:
        self._socket.close()
