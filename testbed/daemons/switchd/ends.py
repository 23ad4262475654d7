"""Which GPUs have an end that lives: each end has a connection to its switch for as long as its process lives.

A process that is killed cannot say so by its links, and its interfaces stay up. The kernel closes its connection, and
the switch takes the GPU's links for down at once. Where an end has none, the silence of its links tells it later.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable

from testbed.daemons.kit.control import accept_trusted, listen, remove_socket
from testbed.protocols.scale_up.domain.presence import ENDS_NAME, LONGEST_NUMBER

SPARE = 16
"""Connections beside one for each GPU: of those that end while others begin."""


class LivingEnds:
    """The socket `ends.sock` in the run directory of a switch, for this user and root alone, and who is connected."""

    def __init__(self, directory: int, gpus: int, epoll: select.epoll, tell: Callable[[int, bool], None]) -> None:
        """`tell` is called with the number of a GPU whose end has come (True), or is gone (False). Raises `OSError`."""
        self._directory = directory
        self._gpus = gpus
        self._epoll = epoll
        self._tell = tell
        self._connected: dict[int, socket.socket] = {}
        self._gpu_of: dict[int, int] = {}
        """By descriptor of a connection that has named its GPU."""
        self._newest: dict[int, int] = {}
        """By GPU, the descriptor of its end's connection: an end may come before it is seen that the last one went."""
        self._socket = listen(directory, ENDS_NAME, socket.SOCK_SEQPACKET, gpus + SPARE)
        epoll.register(self._socket, select.EPOLLIN)

    @property
    def gpus(self) -> int:
        """The number of GPUs whose end is open."""
        return len(self._newest)

    def has(self, descriptor: int) -> bool:
        """Tell whether an event of this descriptor is for `serve`."""
        return descriptor == self._socket.fileno() or descriptor in self._connected

    def serve(self) -> None:
        """See who has come, and then who is gone."""
        while len(self._connected) < self._gpus + SPARE and (item := accept_trusted(self._socket)) is not None:
            self._connected[item.fileno()] = item
            self._epoll.register(item, select.EPOLLIN)
        gone = [descriptor for descriptor, item in self._connected.items() if not self._hear(descriptor, item)]
        for descriptor in gone:
            self._epoll.unregister(descriptor)
            self._connected.pop(descriptor).close()
            gpu = self._gpu_of.pop(descriptor, None)
            if gpu is not None and self._newest.get(gpu) == descriptor:
                del self._newest[gpu]
                self._tell(gpu, False)

    def _hear(self, descriptor: int, item: socket.socket) -> bool:
        """Take the number of a GPU where one was sent. False: there is nobody any more, or nobody who makes sense."""
        try:
            data = item.recv(LONGEST_NUMBER + 1)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if descriptor in self._gpu_of or len(data) > LONGEST_NUMBER or not data.isdigit() or int(data) >= self._gpus:
            return False
        gpu = self._gpu_of[descriptor] = int(data)
        self._newest[gpu] = descriptor
        self._tell(gpu, True)
        return True

    def close(self) -> None:
        """Nobody is told anything any more."""
        self._socket.close()
        for item in self._connected.values():
            item.close()
        remove_socket(self._directory, ENDS_NAME)
