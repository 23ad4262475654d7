"""The HCAs of a subnet that is up, as programs of hosts have them: a socket each, which one program at a time opens.

What goes over it is a frame in a datagram, from its LRH to its ICRC. The VCRC is a link's, and made and checked by
ports: links between switches are memory here, and do not err. A program may connect several times: what it sends by one
connection waits for nothing that it sends by another, as for a lane without credits, and frames for it come by the
first. Sending waits where a connection has `SEND_QUEUE` frames that have not left; a frame for a program that does not
read is dropped, as one is for which no buffer was posted.
"""

from __future__ import annotations

import json
import os
import select
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.base.unix_sockets import peer_of
from testbed.daemons.kit.control import accept_trusted, listen, remove_socket

SEND_QUEUE = 8
"""The frames of a connection that wait for their turn on the HCA's link: few, since what waits here has left the reach
of congestion control, and answers wait behind it."""
MOST_CONNECTIONS = 16
LONGEST_FRAME = 4096 + 128
SO_SNDBUFFORCE = 32
"""An option of socket(7) that the module `socket` lacks."""
SOCKET_BUFFER_BYTES = 8 << 20
"""The room for frames that a program has not read yet."""


@dataclass(slots=True, eq=False)
class HcaConnection:
    """A socket of the program that has an HCA open."""

    adapter: Adapter
    socket: socket.socket
    program: int
    """Its process id."""
    queued: int = 0
    watched: bool = False
    is_open: bool = True

    def is_gone(self) -> bool:
        """Tell whether the program has closed it, also where nobody reads it now."""
        poll = select.poll()
        poll.register(self.socket, 0)
        return bool(poll.poll(0))


@dataclass(slots=True)
class Adapter:
    """An HCA. `hello` is what a program is told that opens it."""

    name: str
    hello: Callable[[], Mapping[str, Any]]
    listening: socket.socket
    connections: list[HcaConnection] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: {"sent": 0, "received": 0, "not_taken": 0, "refused": 0})


def socket_name(hca: str) -> str:
    """Return the name of an HCA's socket in the directory of the wires."""
    return f"hca-{hca}"


class Adapters:
    """All HCAs of a subnet, by name. `take` is called with each frame that a program sends, and its connection, and
    `on_gone` when a program that has gone is dropped though its queue was full."""

    def __init__(
        self,
        directory: int,
        hellos: Mapping[str, Callable[[], Mapping[str, Any]]],
        epoll: select.epoll,
        take: Callable[[HcaConnection, bytes], None],
        on_gone: Callable[[], None],
    ) -> None:
        self._directory, self._epoll, self._take, self._on_gone = directory, epoll, take, on_gone
        self.by_name = {
            name: Adapter(name, hello, listen(directory, socket_name(name), socket.SOCK_SEQPACKET, MOST_CONNECTIONS))
            for name, hello in hellos.items()
        }
        self._listening = {adapter.listening.fileno(): adapter for adapter in self.by_name.values()}
        self._connections: dict[int, HcaConnection] = {}
        for descriptor in self._listening:
            epoll.register(descriptor, select.EPOLLIN)

    def serve(self, descriptor: int) -> bool:
        """Take an event; False: it is none of an HCA."""
        if (connection := self._connections.get(descriptor)) is not None:
            self._read(connection)
            return True
        if (adapter := self._listening.get(descriptor)) is not None:
            self._accept(adapter)
            return True
        return False

    def has_gone(self) -> bool:
        """Tell whether a program has gone whose connection is still there, or all have."""
        return not self._connections or any(one.is_gone() for one in self._connections.values())

    def _accept(self, adapter: Adapter) -> None:
        item = accept_trusted(adapter.listening)
        if item is None:
            return
        gone = [one for one in adapter.connections if one.is_gone()]
        for one in gone:
            self._drop(one)
        if gone:
            self._on_gone()
        program, _ = peer_of(item)
        others = any(one.program != program for one in adapter.connections)
        if others or len(adapter.connections) >= MOST_CONNECTIONS:
            self._tell(item, {"busy": True})
            item.close()
            return
        if os.geteuid() == 0:
            item.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, SOCKET_BUFFER_BYTES)
        connection = HcaConnection(adapter, item, program)
        adapter.connections.append(connection)
        self._connections[item.fileno()] = connection
        if self._tell(item, adapter.hello()):
            self._watch(connection)
        else:
            self._drop(connection)

    @staticmethod
    def _tell(item: socket.socket, hello: Mapping[str, Any]) -> bool:
        try:
            item.send(json.dumps(hello).encode(), socket.MSG_NOSIGNAL)
        except OSError:
            return False
        return True

    def _watch(self, connection: HcaConnection) -> None:
        """Listen to a program where its connection has room, and not where it has none."""
        wanted = connection.queued < SEND_QUEUE
        if not connection.is_open or wanted == connection.watched:
            return
        connection.watched = wanted
        if wanted:
            self._epoll.register(connection.socket, select.EPOLLIN)
        else:
            self._epoll.unregister(connection.socket)

    def _read(self, connection: HcaConnection) -> None:
        while connection.is_open and connection.queued < SEND_QUEUE:
            try:
                frame = connection.socket.recv(LONGEST_FRAME + 1)
            except BlockingIOError:
                break
            except OSError:
                frame = b""
            if not frame:
                self._drop(connection)
                return
            self._take(connection, frame)
        self._watch(connection)

    def _drop(self, connection: HcaConnection) -> None:
        if not connection.is_open:
            return
        connection.is_open = False
        if connection.watched:
            self._epoll.unregister(connection.socket)
        del self._connections[connection.socket.fileno()]
        connection.adapter.connections.remove(connection)
        connection.socket.close()

    def left(self, connection: HcaConnection) -> None:
        """Note that a frame of a connection is on its link, or lost before it."""
        connection.queued -= 1
        self._watch(connection)

    def deliver(self, name: str, frame: bytes | bytearray) -> None:
        """Give a frame to the program that has an HCA open."""
        adapter = self.by_name[name]
        first = adapter.connections[0] if adapter.connections else None
        try:
            if first is not None:
                first.socket.send(frame, socket.MSG_NOSIGNAL)
                adapter.counts["received"] += 1
                return
        except BlockingIOError:
            pass
        except OSError:
            assert first is not None
            self._drop(first)
        adapter.counts["not_taken"] += 1

    def close(self) -> None:
        """Nobody has an HCA any more."""
        for adapter in self.by_name.values():
            for connection in list(adapter.connections):
                self._drop(connection)
            self._epoll.unregister(adapter.listening)
            adapter.listening.close()
            remove_socket(self._directory, socket_name(adapter.name))
