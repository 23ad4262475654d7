"""A target process: serves subsystems over TCP in one thread, and emulates the media below them.

    python -m testbed.endpoints.storage.target --config FILE        (or - for standard input)

It prints one line of JSON when it listens, and one with what it has counted when SIGTERM or SIGINT ends it.

A command on a namespace goes through three waits, each bounded: for its connection's share of memory
(`under_way_bytes`), for its data to come, and for the medium (`Media`), which may take its time before it is read or a
write is complete. A connection beyond `most_connections` is closed as it comes, and one whose host does not take what
was sent gets no more read for it.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import itertools
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from testbed.base.cleanup import on_failure
from testbed.base.program_errors import ProgramError
from testbed.endpoints.storage.backends import Backend, MediaError
from testbed.endpoints.storage.media import Media
from testbed.endpoints.storage.socket_link import Poll, SocketLink, prepare
from testbed.endpoints.storage.target_config import NamespaceConfig, TargetConfig, parse_target_config
from testbed.endpoints.worker.streams.tcp_socket import TcpSocket
from testbed.protocols.nvme.codes import IoOpcode, Status
from testbed.protocols.nvme.controller_queue import CommandReceived, ControllerQueue, IoCommand
from testbed.protocols.nvme.subsystem import Subsystem, Target

_LINGER_NS = 1_000_000_000
"""So long a connection that was terminated may take to read why."""
_SPARE_FILES = 64
_BACKLOG = 128


class _Link(SocketLink):
    """A connection of a host, and its commands that wait."""

    def __init__(self, item: TcpSocket, queue: ControllerQueue, poll: Poll, most_unsent: int) -> None:
        super().__init__(item, queue, poll, most_unsent=most_unsent)
        self.queue = queue
        self.waiting: deque[IoCommand] = deque()
        self.under_way: int = 0
        """Bytes of commands that have begun and have not ended, in memory of their own."""
        self.gone_at: int = 0
        """It is closed at this time, whether it has read its last bytes or not."""


class _Store(NamedTuple):
    """A namespace: where its bytes are, and how fast."""

    backend: Backend
    media: Media


OpenBackend = Callable[[NamespaceConfig], Backend]
"""Opens where the bytes of a namespace are. Raises `OSError`."""
OpenListener = Callable[[str, int], TcpSocket]
"""Makes the socket for an address and port, bound. Raises `OSError`."""


def open_listener(address: str, port: int) -> socket.socket:
    """A socket in the network namespace of the thread."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    with on_failure(listener.close):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
    return listener


class TargetServer:
    """Listens from when it is made. Raises `OSError` where it cannot, or a file cannot be opened."""

    def __init__(
        self,
        config: TargetConfig,
        clock: Callable[[], int] = time.monotonic_ns,
        *,
        open_backend: OpenBackend = NamespaceConfig.open,
        open_socket: OpenListener = open_listener,
        make_poll: Callable[[], Poll] = select.epoll,
    ) -> None:
        self.config = config
        self._clock = clock
        self._stores: dict[bytes, _Store] = {}
        self.target = Target(
            [
                Subsystem(item.nqn, item.serial, item.describe(), item.allowed_hosts, first_cntlid=item.first_cntlid)
                for item in config.subsystems
            ],
            config.controller,
        )
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most_connections = max(min(config.most_connections, files - _SPARE_FILES), 1)
        self._listeners: dict[int, TcpSocket] = {}
        self._links: dict[int, _Link] = {}
        self._by_queue: dict[ControllerQueue, _Link] = {}
        self._timed: list[tuple[int, int, Callable[[], None]]] = []
        """The work that media will have done, by its time: a heap."""
        self._numbers = itertools.count()
        self._stopping = False
        with ExitStack() as stack:
            for subsystem in config.subsystems:
                for namespace, described in zip(subsystem.namespaces, subsystem.describe(), strict=True):
                    if described.nguid not in self._stores:  # Two subsystems may share a namespace.
                        backend = open_backend(namespace)
                        stack.callback(backend.close)
                        self._stores[described.nguid] = _Store(backend, Media(namespace.media))
            self._poll = make_poll()
            stack.callback(self._poll.close)
            self._wake, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
            stack.callback(os.close, self._wake)
            stack.callback(os.close, self._waker)
            self._poll.register(self._wake, select.EPOLLIN)
            for item in config.listen:
                listener = open_socket(item.address, item.port)
                stack.callback(listener.close)
                self._listen(item.address, listener)
            self._resources = stack.pop_all()

    def _listen(self, address: str, listener: TcpSocket) -> None:
        listener.listen(_BACKLOG)
        self._listeners[listener.fileno()] = listener
        self._poll.register(listener, select.EPOLLIN)
        self.target.addresses.append((address, listener.getsockname()[1]))

    def stop(self) -> None:
        """Have `run` return; may be called by another thread or a signal handler."""
        self._stopping = True
        os.write(self._waker, b"\0")

    def close(self) -> None:
        for link in list(self._links.values()):
            self._drop(link)
        self._resources.close()

    def run(self) -> None:
        """Serve until `stop`."""
        while not self._stopping:
            self.step(self._timeout())

    def step(self, timeout_s: float | None) -> None:
        """Wait for so long, at most, and do what is to be done."""
        for fd, events in self._poll.poll(timeout_s):
            if fd in self._listeners:
                self._accept(self._listeners[fd])
            elif (link := self._links.get(fd)) is not None:
                if events & select.EPOLLOUT:
                    link.send(unblocked=True)
                    self._begin(link)
                    self.target.make_ready(link.queue)
                if events & ~select.EPOLLOUT:
                    if not link.queue.closed:
                        link.receive(self._clock())
                    elif not link.discard():
                        self._drop(link)
        now = self._clock()
        self.target.on_timer(now)
        self._end_media(now)
        self._serve_ready(now)

    def _timeout(self) -> float | None:
        timer = self.next_timer()
        return None if timer is None else max(timer - self._clock(), 0) / 1e9

    def fileno(self) -> int:
        """Return a descriptor that is readable when `step` has something to do, which it has at `next_timer`, too."""
        return self._poll.fileno()

    def next_timer(self) -> int | None:
        times = [self._timed[0][0]] if self._timed else []
        if (timer := self.target.next_timer()) is not None:
            times.append(timer)
        return min(times, default=None)

    def sockets(self) -> list[TcpSocket]:
        """The connections of hosts, for those who ask the kernel about them."""
        return [link.socket for link in self._links.values()]

    # --- connections --------------------------------------------------------------------------------------

    def _accept(self, listener: TcpSocket) -> None:
        try:
            item, _ = listener.accept()
        except OSError:
            return  # It is gone already.
        if len(self._links) >= self._most_connections:
            self.target.counts["connections refused"] += 1
            item.close()
            return
        prepare(item)
        queue = self.target.accept(self._clock())
        link = _Link(item, queue, self._poll, 2 * self.config.under_way_bytes)
        self._links[link.fd] = self._by_queue[queue] = link

    def _drop(self, link: _Link) -> None:
        if self._links.get(link.fd) is not link:
            return  # It has gone before, and its number may be another's now.
        del self._links[link.fd]
        link.close()
        del self._by_queue[link.queue]
        self.target.forget(link.queue)
        link.waiting.clear()

    def _end_link(self, link: _Link, now: int) -> None:
        """Its queue is closed: it goes now if there is nothing to tell, else when the host has read it."""
        link.waiting.clear()
        if link.queue.error is None and link.queue.finished:
            self._drop(link)
            return
        if link.queue.finished:
            link.say_goodbye()
        if not link.gone_at:
            link.gone_at = now + _LINGER_NS
            self._at(link.gone_at, lambda: self._drop(link))

    def _serve_ready(self, now: int) -> None:
        while ready := self.target.take_ready():
            for queue in ready:
                link = self._by_queue.get(queue)
                if link is None:
                    continue
                while queue.events:
                    event = queue.events.popleft()
                    if isinstance(event, CommandReceived):
                        link.waiting.append(event.command)
                    else:
                        self._have_data(link, event.command, now)
                self._begin(link)
                link.send()
                if queue.closed:
                    self._end_link(link, now)

    # --- commands -----------------------------------------------------------------------------------------

    def _begin(self, link: _Link) -> None:
        """Let commands begin as long as their connection has memory for them."""
        waiting, queue = link.waiting, link.queue
        while waiting and link.under_way + queue.unsent_bytes < self.config.under_way_bytes:
            command = waiting.popleft()
            if not command.finished:  # It may have been aborted, or its connection is closed.
                self._begin_command(link, command)

    def _begin_command(self, link: _Link, command: IoCommand) -> None:
        store = self._stores[command.namespace.nguid]
        command.started = True
        now = self._clock()
        if command.opcode is IoOpcode.WRITE:
            if store.backend.is_transient:
                link.under_way += command.length
            link.queue.receive_data(command, store.backend.place(command.offset, command.length))
            return
        if command.opcode is IoOpcode.READ:
            link.under_way += command.length
            self._at(store.media.submit(command.length, now), lambda: self._read(link, store, command), now)
        else:
            self._at(store.media.submit(0, now), lambda: self._do_other(store, command), now)

    def _have_data(self, link: _Link, command: IoCommand, now: int) -> None:
        store = self._stores[command.namespace.nguid]
        if command.failure:
            self._end_write(link, store, command, command.failure, retry=True)
        else:
            finish = store.media.submit(command.length, now)
            self._at(finish, lambda: self._write(link, store, command), now)

    def _at(self, time_ns: int, action: Callable[[], None], now: int = 0) -> None:
        """Do it at its time, which may be now."""
        if time_ns <= now:
            action()
        else:
            heapq.heappush(self._timed, (time_ns, next(self._numbers), action))

    def _end_media(self, now: int) -> None:
        while self._timed and self._timed[0][0] <= now:
            heapq.heappop(self._timed)[2]()

    def _read(self, link: _Link, store: _Store, command: IoCommand) -> None:
        link.under_way -= command.length
        if command.finished:
            return
        try:
            link.queue.send_data(command, store.backend.read(command.offset, command.length))
        except MediaError as error:
            link.queue.complete(command, error.status)

    def _write(self, link: _Link, store: _Store, command: IoCommand) -> None:
        status = Status.SUCCESS
        try:
            store.backend.write(command.offset, command.place)
        except MediaError as error:
            status = error.status
        self._end_write(link, store, command, status)

    def _end_write(self, link: _Link, store: _Store, command: IoCommand, status: int, *, retry: bool = False) -> None:
        if store.backend.is_transient:
            link.under_way -= command.length
        command.place = memoryview(b"")
        link.queue.complete(command, status, retry=retry)

    def _do_other(self, store: _Store, command: IoCommand) -> None:
        status = Status.SUCCESS
        try:
            if command.opcode is IoOpcode.FLUSH:
                store.backend.flush()
            elif command.opcode is IoOpcode.WRITE_ZEROES:
                store.backend.zero(command.offset, command.length)
            else:
                for offset, length in command.ranges:
                    store.backend.zero(offset, length)
        except MediaError as error:
            status = error.status
        command.queue.complete(command, status)


def _load(path: str) -> TargetConfig:
    text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    return parse_target_config(json.loads(text))


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 when it was stopped, 2 where it could not begin."""
    parser = argparse.ArgumentParser(
        prog="python -m testbed.endpoints.storage.target", description="An NVMe/TCP target."
    )
    parser.add_argument("--config", required=True, metavar="FILE", help="JSON; - for standard input")
    options = parser.parse_args(arguments)
    try:
        server = TargetServer(_load(options.config))
    except (OSError, ValueError, ProgramError) as error:
        print(f"{options.config}: {error}", file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: server.stop())
    print(json.dumps({"listening": server.target.addresses}), flush=True)
    with contextlib.closing(server):
        server.run()
    print(json.dumps({"counts": dict(server.target.counts)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
