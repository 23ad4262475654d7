"""The HCAs of a subnet that is up, as programs of hosts have them: a socket each, which one program at a time opens.

What goes over it is a frame in a datagram, from its LRH to its ICRC. The VCRC is a link's, and made and checked by
ports: links between switches are memory here, and do not err. Sending waits where an HCA has `SEND_QUEUE` frames that
have not left; a frame for a program that does not read is dropped, as one is for which no buffer was posted.
"""

from __future__ import annotations

import json
import os
import select
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.daemons.kit.control import accept_trusted, listen, remove_socket

SEND_QUEUE = 64
"""The frames of an HCA that wait for their turn on its link."""
LONGEST_FRAME = 4096 + 128
SO_SNDBUFFORCE = 32
"""An option of socket(7) that the module `socket` lacks."""
SOCKET_BUFFER_BYTES = 8 << 20
"""The room for frames that a program has not read yet."""


@dataclass(slots=True)
class Adapter:
    """An HCA. `hello` is what a program is told that opens it."""

    name: str
    hello: Mapping[str, Any]
    listening: socket.socket
    program: socket.socket | None = None
    queued: int = 0
    watched: bool = False
    counts: dict[str, int] = field(default_factory=lambda: {"sent": 0, "received": 0, "not_taken": 0, "refused": 0})


def socket_name(hca: str) -> str:
    """Return the name of an HCA's socket in the directory of the wires."""
    return f"hca-{hca}"


class Adapters:
    """All HCAs of a subnet, by name. `take` is called with the name of an HCA and each frame that its program sends."""

    def __init__(
        self,
        directory: int,
        hellos: Mapping[str, Mapping[str, Any]],
        epoll: select.epoll,
        take: Callable[[Adapter, bytes], None],
    ) -> None:
        self._directory, self._epoll, self._take = directory, epoll, take
        self.by_name = {
            name: Adapter(name, hello, listen(directory, socket_name(name), socket.SOCK_SEQPACKET, 4))
            for name, hello in hellos.items()
        }
        self._listening = {adapter.listening.fileno(): adapter for adapter in self.by_name.values()}
        self._programs: dict[int, Adapter] = {}
        for descriptor in self._listening:
            epoll.register(descriptor, select.EPOLLIN)

    def serve(self, descriptor: int) -> bool:
        """Take an event; False: it is none of an HCA."""
        if (adapter := self._programs.get(descriptor)) is not None:
            self._read(adapter)
            return True
        if (adapter := self._listening.get(descriptor)) is not None:
            self._accept(adapter)
            return True
        return False

    def _accept(self, adapter: Adapter) -> None:
        item = accept_trusted(adapter.listening)
        if item is None:
            return
        if adapter.program is not None:
            self._tell(item, {"busy": True})
            item.close()
            return
        if os.geteuid() == 0:
            item.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, SOCKET_BUFFER_BYTES)
        adapter.program = item
        self._programs[item.fileno()] = adapter
        if self._tell(item, adapter.hello):
            self._watch(adapter)
        else:
            self._drop(adapter)

    @staticmethod
    def _tell(item: socket.socket, hello: Mapping[str, Any]) -> bool:
        try:
            item.send(json.dumps(hello).encode(), socket.MSG_NOSIGNAL)
        except OSError:
            return False
        return True

    def _watch(self, adapter: Adapter) -> None:
        """Listen to a program where its HCA has room, and not where it has none."""
        program, wanted = adapter.program, adapter.queued < SEND_QUEUE
        if program is None or wanted == adapter.watched:
            return
        adapter.watched = wanted
        if wanted:
            self._epoll.register(program, select.EPOLLIN)
        else:
            self._epoll.unregister(program)

    def _read(self, adapter: Adapter) -> None:
        while adapter.program is not None and adapter.queued < SEND_QUEUE:
            try:
                frame = adapter.program.recv(LONGEST_FRAME + 1)
            except BlockingIOError:
                break
            except OSError:
                frame = b""
            if not frame:
                self._drop(adapter)
                return
            self._take(adapter, frame)
        self._watch(adapter)

    def _drop(self, adapter: Adapter) -> None:
        if adapter.program is None:
            return
        if adapter.watched:
            self._epoll.unregister(adapter.program)
        adapter.watched = False
        del self._programs[adapter.program.fileno()]
        adapter.program.close()
        adapter.program = None

    def left(self, adapter: Adapter) -> None:
        """Note that a frame of an HCA is on its link, or lost before it."""
        adapter.queued -= 1
        self._watch(adapter)

    def deliver(self, name: str, frame: bytes | bytearray) -> None:
        """Give a frame to the program that has an HCA open."""
        adapter = self.by_name[name]
        try:
            if adapter.program is not None:
                adapter.program.send(frame, socket.MSG_NOSIGNAL)
                adapter.counts["received"] += 1
                return
        except BlockingIOError:
            pass
        except OSError:
            self._drop(adapter)
        adapter.counts["not_taken"] += 1

    def close(self) -> None:
        """Nobody has an HCA any more."""
        for adapter in self.by_name.values():
            self._drop(adapter)
            self._epoll.unregister(adapter.listening)
            adapter.listening.close()
            remove_socket(self._directory, socket_name(adapter.name))
