"""The socket by which tools of InfiniBand ask the performance agents of a subnet: a datagram, and its answer."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable

from testbed.base.unix_sockets import peer_of
from testbed.daemons.kit.control import listen, remove_socket
from testbed.protocols.infiniband.performance import MAD_BYTES

PERFORMANCE_SOCKET = "performance.sock"
MOST_ASKING = 64
_NOBODY = 65534
"""The user that tools run as."""
_LID_BYTES = 2


class Questions:
    """`performance.sock` of a run directory, for nobody, who has the tools, this user and root."""

    def __init__(self, directory: int, answer: Callable[[int, bytes], bytes | None], epoll: select.epoll) -> None:
        """`answer` is given the LID that is asked and a management datagram."""
        self._directory, self._answer, self._epoll = directory, answer, epoll
        self._asking: dict[int, socket.socket] = {}
        self._socket = listen(directory, PERFORMANCE_SOCKET, socket.SOCK_SEQPACKET, MOST_ASKING)
        if os.geteuid() == 0:
            os.chown(PERFORMANCE_SOCKET, _NOBODY, _NOBODY, dir_fd=directory, follow_symlinks=False)
        epoll.register(self._socket, select.EPOLLIN)

    def serve(self, descriptor: int) -> bool:
        """Take an event; False: it is none of this socket."""
        if descriptor == self._socket.fileno():
            self._accept()
        elif (item := self._asking.get(descriptor)) is not None:
            self._reply(item)
        else:
            return False
        return True

    def _accept(self) -> None:
        try:
            item, _ = self._socket.accept()
        except OSError:
            return
        item.setblocking(False)
        if peer_of(item)[1] not in (0, _NOBODY, os.geteuid()):
            item.close()
            return
        if len(self._asking) >= MOST_ASKING:
            self._drop(next(iter(self._asking.values())))
        self._asking[item.fileno()] = item
        self._epoll.register(item, select.EPOLLIN)

    def _reply(self, item: socket.socket) -> None:
        try:
            question = item.recv(_LID_BYTES + MAD_BYTES + 1)
            if question:
                answer = self._answer(int.from_bytes(question[:_LID_BYTES], "big"), question[_LID_BYTES:])
                if answer is not None:
                    item.send(answer, socket.MSG_NOSIGNAL)
                    return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._drop(item)

    def _drop(self, item: socket.socket) -> None:
        self._epoll.unregister(item)
        del self._asking[item.fileno()]
        item.close()

    def close(self) -> None:
        """Nobody is answered any more."""
        for item in list(self._asking.values()):
            self._drop(item)
        self._epoll.unregister(self._socket)
        self._socket.close()
        remove_socket(self._directory, PERFORMANCE_SOCKET)
