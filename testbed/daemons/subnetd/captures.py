"""Frames at ports of a subnet that is up, for whoever listens there: `capture.sock` of the run directory.

A listener connects, is told whether there is room for it, names a port as JSON and is told whether there is one. Then
it gets a datagram for each frame that
begins to leave by the port, or has come in by it whole: `HEAD`, and the frame from its LRH to its ICRC. What its socket
has no room for is dropped, and each head says how many were so far. When it sends `END`, or has had the frames that it
wanted, the last datagram is a head alone. Nobody pays for ports that nobody listens at.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from testbed.daemons.kit.control import accept_trusted, listen, remove_socket
from testbed.daemons.subnetd.adapters import SO_SNDBUFFORCE
from testbed.protocols.errors import UsageError
from testbed.protocols.infiniband import binding
from testbed.protocols.infiniband.data_path import FrameNotice

CAPTURE_SOCKET: Final = "capture.sock"
END: Final = b"end"
HEAD: Final = struct.Struct("=QQQB")
"""When it was (CLOCK_MONOTONIC), how many frames the port has had since, how many of these were dropped for this
listener, and `binding.LEAVES`, `binding.COMES` or `NOTHING_MORE`."""
NOTHING_MORE: Final = 0
MOST_LISTENERS: Final = 8
BUFFER_BYTES: Final = 2 << 20
"""The room for frames that a listener has not read yet."""
_LONGEST_REQUEST = 1024


@dataclass(slots=True, eq=False)
class _Listener:
    socket: socket.socket
    place: tuple[str, int] | None = None
    """The port that it listens at; None: it has not said yet."""
    frames: int = 0
    dropped: int = 0
    ending: bool = False

    def send(self, at_ns: int, kind: int, frame: bytes | bytearray = b"") -> bool:
        """Give it a datagram; False: it has no room. Raises `OSError` where it has gone."""
        head = HEAD.pack(at_ns, self.frames, self.dropped, kind)
        try:
            self.socket.sendmsg((head, frame), (), socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return False
        return True


class FrameCaptures:
    """All listeners of a subnet's wires. `watch` has the data path tell of frames at a port or not, and raises
    `UsageError` for a port that there is not."""

    def __init__(self, directory: int, epoll: select.epoll, watch: Callable[[str, int, bool], None]) -> None:
        self._directory, self._epoll, self._watch = directory, epoll, watch
        self._socket = listen(directory, CAPTURE_SOCKET, socket.SOCK_SEQPACKET, MOST_LISTENERS)
        self._listeners: dict[int, _Listener] = {}
        self._at: dict[tuple[str, int], list[_Listener]] = {}
        epoll.register(self._socket, select.EPOLLIN)

    def serve(self, descriptor: int) -> bool:
        """Take an event; False: it is none of a listener."""
        if descriptor == self._socket.fileno():
            self._accept()
        elif (one := self._listeners.get(descriptor)) is not None:
            self._finish(one) if one.ending else self._hear(one)
        else:
            return False
        return True

    def take(self, notice: FrameNotice, frame: bytes | bytearray) -> None:
        """Give a frame to all who listen at its port."""
        for one in list(self._at.get((notice.node, notice.port), ())):
            one.frames += 1
            try:
                one.dropped += not one.send(notice.at_ns, notice.kind, frame)
            except OSError:
                self._drop(one)

    def _accept(self) -> None:
        if (item := accept_trusted(self._socket)) is None:
            return
        if len(self._listeners) >= MOST_LISTENERS:
            _tell(item, {"error": f"{MOST_LISTENERS} captures are going on, and there are no more at once"})
            item.close()
            return
        if os.geteuid() == 0:
            item.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER_BYTES)
        _tell(item, {"error": ""})
        self._listeners[item.fileno()] = _Listener(item)
        self._epoll.register(item, select.EPOLLIN)

    def _hear(self, one: _Listener) -> None:
        try:
            said = one.socket.recv(_LONGEST_REQUEST)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if said and one.place is None:
            self._begin(one, said)
        elif said == END:
            self._leave(one)
            one.ending = True
            self._finish(one)
        else:
            self._drop(one)

    def _begin(self, one: _Listener, said: bytes) -> None:
        try:
            place = _place(json.loads(said))
            self._watch(*place, True)
        except (ValueError, RecursionError, UsageError) as error:
            _tell(one.socket, {"error": str(error)})
            self._drop(one)
            return
        one.place = place
        self._at.setdefault(place, []).append(one)
        _tell(one.socket, {"error": ""})

    def _finish(self, one: _Listener) -> None:
        """Tell a listener how many there were, now or as soon as it has room."""
        try:
            if one.send(0, NOTHING_MORE):
                self._drop(one)
            else:
                self._epoll.modify(one.socket, select.EPOLLOUT)
        except OSError:
            self._drop(one)

    def _leave(self, one: _Listener) -> None:
        if one.place is None or one not in self._at.get(one.place, ()):
            return
        self._at[one.place].remove(one)
        if not self._at[one.place]:
            del self._at[one.place]
            self._watch(*one.place, False)

    def _drop(self, one: _Listener) -> None:
        self._leave(one)
        self._epoll.unregister(one.socket)
        del self._listeners[one.socket.fileno()]
        one.socket.close()

    def close(self) -> None:
        """Nobody listens any more."""
        for one in list(self._listeners.values()):
            self._drop(one)
        self._epoll.unregister(self._socket)
        self._socket.close()
        remove_socket(self._directory, CAPTURE_SOCKET)


def _place(request: Any) -> tuple[str, int]:
    match request:
        case {"node": str(node), "port": int(port)} if 0 < port < binding.NO_PORT:
            return node, port
        case _:
            raise ValueError("a capture is of a port: node and port")


def _tell(item: socket.socket, answer: dict[str, str]) -> None:
    with contextlib.suppress(OSError):  # it has gone
        item.send(json.dumps(answer).encode(), socket.MSG_NOSIGNAL)
