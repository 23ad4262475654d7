"""A TCP socket of a protocol core (`Connection`): moves bytes between the two, without waiting and without copies."""

from __future__ import annotations

import select
import socket
from contextlib import suppress
from typing import Any, Protocol

from testbed.endpoints.worker.streams.tcp_socket import TcpSocket
from testbed.protocols.nvme.connection import Connection

_KEEPALIVE_S = 5
_KEEPALIVE_PROBES = 3
USER_TIMEOUT_MS = 30_000
_LEAST_USER_TIMEOUT_MS = 1000
_DISCARD_BYTES = 64 * 1024


class Poll(Protocol):
    """Tells which sockets are ready: an epoll, or whatever does as one."""

    def register(self, fd: Any, eventmask: int, /) -> None: ...

    def modify(self, fd: int, eventmask: int, /) -> None: ...

    def unregister(self, fd: Any, /) -> None: ...

    def poll(self, timeout: float | None = None, /) -> list[tuple[int, int]]: ...

    def fileno(self) -> int: ...

    def close(self) -> None: ...


def prepare(item: TcpSocket, timeout_ms: int = 0) -> None:
    """Small PDUs leave at once; a peer that is gone is noticed though nothing is to be sent.

    What is not acknowledged for `timeout_ms` (0: 30 s) ends the connection: a keep-alive of the protocol tells of the
    admin queue's path alone, and TCP by itself would try for a quarter of an hour.
    """
    item.setblocking(False)
    item.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    timeout_ms = max(timeout_ms, _LEAST_USER_TIMEOUT_MS) if timeout_ms else USER_TIMEOUT_MS
    item.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, timeout_ms)
    item.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    item.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)
    item.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_S)
    item.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_PROBES)


class SocketLink:
    """Registered with an epoll by `events`; the owner unregisters it with `close`."""

    def __init__(self, item: TcpSocket, connection: Connection, poll: Poll, *, most_unsent: int = 1 << 62) -> None:
        """While the peer leaves more than `most_unsent` bytes untaken, nothing more is received from it. Only one of
        two ends may do so, or both could wait for each other."""
        self.socket = item
        self.connection = connection
        self.fd = item.fileno()
        self._poll = poll
        self._blocked = False
        """The socket takes nothing more; epoll tells when it does."""
        self._most_unsent = most_unsent
        self._mask = select.EPOLLIN
        poll.register(self.fd, self._mask)

    def receive(self, now: int) -> None:
        """Move what has come into the core; it learns so of the stream's end, too."""
        connection = self.connection
        buffers = connection.receive_buffers()
        if not buffers:
            return
        try:
            count = self.socket.recv_into(buffers[0]) if len(buffers) == 1 else self.socket.recvmsg_into(buffers)[0]
        except BlockingIOError:
            return
        except OSError as error:
            connection.close(error.strerror or "the connection failed")
            return
        if count:
            connection.on_received(count, now)
        else:
            connection.close("the peer has closed the connection")

    def send(self, *, unblocked: bool = False) -> None:
        """Send what there is, as far as the socket takes it."""
        if self._blocked and not unblocked:
            return
        connection = self.connection
        blocked = False
        while buffers := connection.buffers_to_send():
            try:
                connection.on_sent(self.socket.sendmsg(buffers))
            except BlockingIOError:
                blocked = True
                break
            except OSError as error:
                connection.close(error.strerror or "the connection failed")
                break
        self._blocked = blocked
        paused = blocked and connection.unsent_bytes > self._most_unsent
        mask = (0 if paused else select.EPOLLIN) | (select.EPOLLOUT if blocked else 0)
        if mask != self._mask:
            self._mask = mask
            self._poll.modify(self.fd, mask)

    def say_goodbye(self) -> None:
        """All is sent: end our half, and discard what still comes, as closing with bytes unread would take away from
        the peer what it has not read yet."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def discard(self) -> bool:
        """Take what has come and forget it; tell whether there may be more."""
        try:
            return bool(self.socket.recv(_DISCARD_BYTES))
        except BlockingIOError:
            return True
        except OSError:
            return False

    def close(self) -> None:
        with suppress(OSError, ValueError):
            self._poll.unregister(self.fd)
        self.socket.close()
