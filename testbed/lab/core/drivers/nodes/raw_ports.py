"""Whole frames on NICs of a live lab: packet sockets of this process, each inside its node (packet(7)).

They send what no other socket would, through the queue of the NIC as all that leaves it, and see all that arrives,
whomever it is for.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Iterable, Iterator, Sequence

from testbed.base.cleanup import on_failure
from testbed.base.descriptors import wait_writable
from testbed.base.errors import DriverError
from testbed.base.linux import syscalls
from testbed.base.linux.namespaces import enter_namespace
from testbed.base.names import namespace_name

_ALL_PROTOCOLS = 0x0003
_OUTGOING = 4
_LONGEST = 512
"""The bytes of a frame that are looked at."""
MOST_AT_ONCE = 65536
"""Frames that are taken before the caller has its turn, whoever floods."""
RECEIVE_BUFFER_BYTES = 8 << 20
SEND_BUFFER_BYTES = 48 << 10
"""Doubled by the kernel (socket(7)): it holds fewer frames than the queue of a port takes."""
_SO_RCVBUFFORCE = 33
_PATIENCE_S = 1.0
"""For a port that takes nothing more."""

Place = tuple[str, str]
"""A NIC: node and interface."""


class RawPorts:
    """A packet socket on each of some NICs. Not for several threads at once."""

    def __init__(self, lab: str, places: Iterable[Place]) -> None:
        """Raises `DriverError` where a socket cannot be had; then none stays open."""
        self._sockets: dict[Place, socket.socket] = {}
        self._places: dict[int, Place] = {}
        self._epoll = select.epoll()
        by_node: dict[str, list[str]] = {}
        for node, interface in places:
            by_node.setdefault(node, []).append(interface)
        try:
            with on_failure(self.close):
                syscalls.in_thread(lambda: self._open(lab, by_node))
        except OSError as error:
            raise DriverError(f"cannot open a packet socket: {error.strerror}", errno=error.errno or 0) from error

    def _open(self, lab: str, by_node: dict[str, list[str]]) -> None:
        for node, interfaces in by_node.items():
            enter_namespace(namespace_name(lab, node))
            for interface in interfaces:
                item = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, 0)
                self._sockets[node, interface] = item
                item.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
                item.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
                item.bind((interface, _ALL_PROTOCOLS))
                self._places[item.fileno()] = (node, interface)
                self._epoll.register(item.fileno(), select.EPOLLIN)

    def send(self, place: Place, frames: Sequence[bytes]) -> int:
        """Send frames as they are, as fast as the port takes them; how many it took."""
        item = self._sockets[place]
        for sent, frame in enumerate(frames):
            while True:
                try:
                    item.send(frame)
                    break
                except BlockingIOError:
                    if not wait_writable(item, _PATIENCE_S):
                        return sent
        return len(frames)

    def arrivals(self, timeout_s: float) -> Iterator[tuple[Place, bytes]]:
        """The frames that have arrived, or arrive within `timeout_s` of now, and where: the first 512 bytes of each."""
        for descriptor, _ in self._epoll.poll(max(0.0, timeout_s)):
            place = self._places[descriptor]
            item = self._sockets[place]
            for _ in range(MOST_AT_ONCE):
                try:
                    data, address = item.recvfrom(_LONGEST)
                except BlockingIOError:
                    break
                except OSError:
                    continue  # the interface went down
                if address[2] != _OUTGOING:
                    yield place, data

    def forget(self) -> None:
        """Drop what has arrived so far."""
        for _ in self.arrivals(0):
            pass

    def close(self) -> None:
        """Close all sockets. Once is enough."""
        for item in self._sockets.values():
            item.close()
        self._epoll.close()
