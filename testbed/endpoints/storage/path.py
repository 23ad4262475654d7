"""One path to a subsystem: a target's address, the association with a controller there, and its return after a loss.

A path is down, or connecting, or live. When its association fails it waits (`Backoff`: a tenth of a second, then twice
as long each time) and connects anew; what was outstanding on it is handed back as lost (`take_ended`), for its owner to
send again on whichever path is live.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from collections.abc import Callable
from dataclasses import dataclass

from testbed.endpoints.storage.socket_link import Poll, SocketLink, prepare
from testbed.endpoints.worker.streams.tcp_socket import TcpSocket
from testbed.protocols.nvme.config import HostConfig
from testbed.protocols.nvme.host_controller import HostController, HostState
from testbed.protocols.nvme.host_queue import HostQueue, HostRequest

_MS = 1_000_000
OpenSocket = Callable[[tuple[str, int], int], TcpSocket]
"""Makes the socket, not connected yet, of a queue (by its QID) to an address. Raises `OSError`."""


def open_plain(address: tuple[str, int], qid: int) -> socket.socket:
    """A socket in the network namespace of the thread, from whatever address the kernel chooses."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    return socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)


@dataclass(slots=True)
class Backoff:
    """Return the time to wait before the next attempt. Times in ns."""

    first: int = 100 * _MS
    most: int = 5000 * _MS
    attempts: int = 0

    def next(self) -> int:
        wait: int = min(self.first << min(self.attempts, 16), self.most)
        self.attempts += 1
        return wait


class _Connecting:
    """A socket that is not connected yet, for a queue."""

    def __init__(self, item: TcpSocket, qid: int) -> None:
        self.socket = item
        self.qid = qid


class Path:
    """Owned by an `Initiator`, which hands it what epoll says of its file descriptors."""

    def __init__(
        self,
        address: tuple[str, int],
        subnqn: str,
        config: HostConfig,
        poll: Poll,
        clock: Callable[[], int],
        open_socket: OpenSocket = open_plain,
    ) -> None:
        self.address = address
        self.subnqn = subnqn
        self.config = config
        self.controller: HostController | None = None
        self.associations: int = 0
        """The number of times that it has become live."""
        self.last_error: str = ""
        """Why it is not live, or was not before."""
        self.refused: bool = False
        """The target has said at the last attempt that another one is pointless (DNR)."""
        self._poll = poll
        self._clock = clock
        self._open_socket = open_socket
        self._backoff = Backoff()
        self._connect_at: int = clock()
        self._connecting: dict[int, _Connecting] = {}
        self._links: dict[int, SocketLink] = {}
        self._by_queue: dict[HostQueue, SocketLink] = {}
        self._ended: list[HostRequest] = []
        self._was_live = False
        self._stopping = False

    # --- state --------------------------------------------------------------------------------------------

    @property
    def live(self) -> bool:
        return self.controller is not None and self.controller.state is HostState.LIVE

    @property
    def name(self) -> str:
        address, port = self.address
        return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"

    def queues(self) -> list[HostQueue]:
        """The I/O queues that take requests."""
        return self.controller.io_queues if self.controller is not None and self.live else []

    def socket_of(self, qid: int) -> TcpSocket | None:
        """The connection of a queue, for those who ask the kernel about it."""
        return next((link.socket for queue, link in self._by_queue.items() if queue.qid == qid), None)

    def take_ended(self) -> list[HostRequest]:
        """The requests on I/O queues that ended or were lost since this was asked last."""
        found, self._ended = self._ended, []
        if self.controller is not None:
            self._collect(self.controller)
            found += self._ended
            self._ended = []
        return found

    def _collect(self, controller: HostController) -> None:
        for qid, queue in controller.queues.items():
            if qid and queue.ended:
                self._ended += queue.ended
                queue.ended.clear()

    # --- what the initiator's loop calls ------------------------------------------------------------------

    def next_timer(self) -> int | None:
        if self.controller is None:
            return None if self._stopping else self._connect_at
        return self.controller.next_timer()

    def owns(self, fd: int) -> bool:
        return fd in self._links or fd in self._connecting

    def on_event(self, fd: int, events: int) -> None:
        """epoll tells of one of our file descriptors."""
        if (pending := self._connecting.get(fd)) is not None:
            self._on_connected(fd, pending)
            return
        link = self._links[fd]
        if events & select.EPOLLOUT:
            link.send(unblocked=True)
        if events & ~select.EPOLLOUT:
            link.receive(self._clock())

    def advance(self) -> None:
        """Go on with what has come, and send what there is."""
        now = self._clock()
        controller = self.controller
        if controller is None:
            if now >= self._connect_at and not self._stopping:
                self.controller = HostController(self.config, self.subnqn, now)
                self._open_sockets()
            return
        controller.advance(now)
        self._open_sockets()
        for queue, link in self._by_queue.items():
            if queue.unsent_bytes:
                link.send()
        if controller.state is HostState.LIVE and not self._was_live:
            self._was_live = True
            self.associations += 1
            self._backoff.attempts = 0
        controller.advance(now)  # Sending may have ended a queue.
        if controller.state is HostState.FAILED:
            self._on_failed(controller)

    def shut_down(self) -> None:
        """Leave the controller in good order; `down` tells when."""
        self._stopping = True
        if self.controller is not None:
            self.controller.shut_down(self._clock())
            self.advance()

    @property
    def down(self) -> bool:
        """There is nothing left of it."""
        return self.controller is None

    def cut(self, reason: str) -> None:
        """Give the association up; the path connects anew."""
        if self.controller is not None:
            self.controller.fail(reason)
            self._on_failed(self.controller)

    def close(self) -> None:
        self._stopping = True
        self.cut("closed")

    # --- connections --------------------------------------------------------------------------------------

    def _open_sockets(self) -> None:
        controller = self.controller
        assert controller is not None
        opening = {pending.qid for pending in self._connecting.values()}
        for qid in [qid for qid in controller.wanted_queues if qid not in opening]:
            item: TcpSocket | None = None
            try:
                item = self._open_socket(self.address, qid)
                prepare(item, self.config.kato_ms)
                code = item.connect_ex(self.address)
                if code not in (0, errno.EINPROGRESS):
                    raise OSError(code, os.strerror(code))
            except OSError as error:
                if item is not None:
                    item.close()
                controller.fail(f"no connection: {error.strerror}")
                self._on_failed(controller)
                return
            self._connecting[item.fileno()] = _Connecting(item, qid)
            self._poll.register(item, select.EPOLLOUT)

    def _on_connected(self, fd: int, pending: _Connecting) -> None:
        controller = self.controller
        assert controller is not None
        del self._connecting[fd]
        self._poll.unregister(fd)
        code = pending.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            pending.socket.close()
            controller.fail(f"no connection: {os.strerror(code)}")
            return
        queue = controller.open_queue(pending.qid, self._clock())
        link = SocketLink(pending.socket, queue, self._poll)
        self._links[fd] = self._by_queue[queue] = link
        link.send()

    def _on_failed(self, controller: HostController) -> None:
        self._collect(controller)
        self.last_error = controller.reason
        self.refused = any(queue.refused for queue in controller.queues.values())
        self.controller = None
        self._was_live = False
        for link in self._links.values():
            link.send()  # A termination, if there is one.
            link.close()
        for pending in self._connecting.values():
            self._poll.unregister(pending.socket)
            pending.socket.close()
        self._links.clear()
        self._by_queue.clear()
        self._connecting.clear()
        self._connect_at = self._clock() + self._backoff.next()
