"""Packet sockets of ports in network namespaces, for frames that a bridge leaves to the port they arrive at.

Those are frames to the link-local group addresses 01:80:c2:00:00:00 to :0f (IEEE 802.1Q, 8.6.3), which no bridge
forwards (packet(7); net/bridge/br_input.c).
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator, Mapping

from testbed.protocols.lacp.lacp import SLOW_PROTOCOLS_ADDRESS, SLOW_PROTOCOLS_TYPE

PEER_ADDRESS = bytes.fromhex("0180c200000e")
PEER_TYPE = 0x88B6
"""Local experimental EtherType 2 (IEEE 802, 9.2.4); the queues of a port with QoS drop the first one."""
_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, _MULTICAST = 263, 1, 0
_OUTGOING = 4
_HEADER_BYTES = 14
_LONGEST = 9216


class GroupPorts:
    """Sockets for one protocol on some ports, by their interface index."""

    def __init__(self, ports: Mapping[int, str], address: bytes, protocol: int) -> None:
        """The ports are those of the network namespace that the caller is in. Raises `OSError`."""
        self._header = address
        self._type = protocol
        self._sockets: dict[int, socket.socket] = {}
        self._addresses: dict[int, bytes] = {}
        for ifindex, name in ports.items():
            item = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, 0)
            self._sockets[ifindex] = item
            item.bind((name, protocol))
            membership = struct.pack("=iHH8s", ifindex, _MULTICAST, len(address), address)
            item.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership)
            self._addresses[ifindex] = item.getsockname()[4]

    @classmethod
    def slow_protocols(cls, ports: Mapping[int, str]) -> GroupPorts:
        """For LACP."""
        return cls(ports, SLOW_PROTOCOLS_ADDRESS, SLOW_PROTOCOLS_TYPE)

    @classmethod
    def peer(cls, ifindex: int, name: str) -> GroupPorts:
        """For what two leaves tell each other."""
        return cls({ifindex: name}, PEER_ADDRESS, PEER_TYPE)

    def take(self, other: GroupPorts) -> None:
        """Have the sockets of another one, too, whose ports lie in another network namespace."""
        self._sockets |= other._sockets
        self._addresses |= other._addresses

    def drop(self, ifindex: int) -> int:
        """Have no socket for a port any more; the descriptor that it had comes back."""
        item = self._sockets.pop(ifindex)
        del self._addresses[ifindex]
        descriptor = item.fileno()
        item.close()
        return descriptor

    def descriptors(self) -> dict[int, int]:
        """The interface index of each socket, by its descriptor."""
        return {item.fileno(): ifindex for ifindex, item in self._sockets.items()}

    def send(self, ifindex: int, payload: bytes) -> None:
        """Send a frame; one that the port does not take is lost, as on a wire."""
        frame = self._header + self._addresses[ifindex] + struct.pack("!H", self._type) + payload
        with contextlib.suppress(OSError):
            self._sockets[ifindex].send(frame)

    def received(self, ifindex: int) -> Iterator[bytes]:
        """The frames that have arrived at a port, without the Ethernet header."""
        while True:
            try:
                data, address = self._sockets[ifindex].recvfrom(_LONGEST)
            except BlockingIOError:
                return
            except OSError:
                continue  # the port went down: said once
            if address[2] != _OUTGOING:
                yield data[_HEADER_BYTES:]

    def close(self) -> None:
        for item in self._sockets.values():
            item.close()
