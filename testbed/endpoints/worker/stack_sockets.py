"""Sockets of our own TCP, with the calls of the kernel's that workers make, and a loop that knows which are ready.

What sends and reads over connections (`streams`, `http`) is the same for both. Nothing here waits, or does I/O: a stack
(`protocols.tcp.stack`) has the bytes, and whoever drives its host calls `StackLoop.serve`.
"""

from __future__ import annotations

import errno
import os
import select
import socket
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from typing import Any, Final, Protocol

from testbed.protocols.errors import UsageError
from testbed.protocols.tcp.connection import TcpConnection, TcpState
from testbed.protocols.tcp.segment import WORD
from testbed.protocols.tcp.stack import TcpListener, TcpStack

_ERRORS: Final = {"refused": errno.ECONNREFUSED, "reset": errno.ECONNRESET, "timed out": errno.ETIMEDOUT}
_BROKEN: Final = select.EPOLLERR | select.EPOLLHUP
_INFO: Final = Struct("=8x24I4Q6I4Q2I2Q4I")
"""struct tcp_info up to `tcpi_snd_wnd` (include/uapi/linux/tcp.h), as `streams.tcp_info` reads it."""
_US: Final = 1000
"""ns."""
_MOST_CALLS: Final = 1_000_000
"""Callbacks without time passing, before that counts as a mistake."""
_FIRST_NUMBER: Final = 1 << 20
"""Numbers of sockets lie above this, so that none is that of a descriptor."""
_EPHEMERAL: Final = (32_768, 61_000)
"""Ports of connections that were not bound to one (ip_local_port_range)."""


class StackSite(Protocol):
    """The ground that stacks stand on: `datagrams.hosting.Hosting` says what the first two do."""

    def now(self) -> int: ...

    def touch(self, endpoint: Any) -> None: ...

    def call_at(self, when: int, action: Callable[[int], None]) -> None:
        """Have `action(now)` called at a time of its clock."""


class Watched(Protocol):
    """Whatever a loop can tell of."""

    def fileno(self) -> int: ...

    def events(self) -> int:
        """Return what epoll(7) would tell of it."""


class StackLoop:
    """Tells of sockets of stacks which are ready, as a loop by epoll does: as long as they are."""

    def __init__(self) -> None:
        self.stacks: dict[str, TcpStack] = {}
        """The stacks of this host, by address."""
        self.on_ready: Callable[[], None] = lambda: None
        """Called where something is ready though no segment has come: it is to see to it that `serve` is called."""
        self._sockets: dict[int, Watched] = {}
        self._of: dict[TcpConnection | TcpListener, int] = {}
        self._callbacks: dict[int, Callable[[int], None]] = {}
        self._masks: dict[int, int] = {}
        self._active: deque[int] = deque()
        self._inside: dict[int, StackPoll] = {}
        """The poll that a socket is registered with."""
        self._next = _FIRST_NUMBER

    @property
    def changed(self) -> Mapping[str, deque[Any]]:
        """Return, by address, the queues of what `serve` has to look at."""
        return {address: stack.changed for address, stack in self.stacks.items()}

    def watch(self, fd: int, callback: Callable[[int], None], events: int = select.EPOLLIN) -> None:
        """Call `callback` with the events of `fd` whenever one of `events` (or an error) is there."""
        self._callbacks[fd] = callback
        self._masks[fd] = events
        self._active.append(fd)

    def modify(self, fd: int, events: int) -> None:
        """Watch `fd` for other events."""
        self._masks[fd] = events
        self._active.append(fd)

    def unwatch(self, fd: int) -> None:
        """Watch `fd` no longer."""
        del self._callbacks[fd]
        del self._masks[fd]

    def run_once(self, until: int | None = 0) -> bool:
        """Serve what is ready: there is nothing to wait for."""
        return self.serve()

    def serve(self) -> bool:
        """Tell of all sockets that are ready, until none is. Whether there were any."""
        count, active = 0, self._active
        for stack in self.stacks.values():
            changed = stack.changed
            while changed:
                what = changed.popleft()
                what.noted = False
                number = self._of.get(what)
                if number is not None:
                    active.append(number)
        while active:
            fd = active.popleft()
            inside = self._inside.get(fd)
            if inside is not None:
                inside.note(fd)
                fd = inside.fileno()
            callback, item = self._callbacks.get(fd), self._sockets.get(fd)
            if callback is None or item is None:
                continue
            events = item.events() & (self._masks[fd] | _BROKEN)
            if events:
                count += 1
                if count > _MOST_CALLS:
                    raise RuntimeError(f"socket {fd} stays ready, and nobody does anything about it")
                callback(events)
                if fd in self._callbacks and item.events() & (self._masks[fd] | _BROKEN):
                    active.append(fd)
        return count > 0

    def close(self) -> None:
        """Forget all sockets."""
        self._callbacks.clear()
        self._masks.clear()
        self._active.clear()

    def add(self, item: Watched) -> int:
        """Return the number of something new to be watched, which is no descriptor of this machine."""
        self._next += 1
        self._sockets[self._next] = item
        return self._next

    def activate(self, fd: int) -> None:
        """Look at it when `serve` is called next."""
        self._active.append(fd)

    def item(self, fd: int) -> Watched | None:
        """Return what has this number."""
        return self._sockets.get(fd)

    def put_inside(self, fd: int, poll: StackPoll | None) -> None:
        """Have a poll tell of a socket; None: no longer."""
        if poll is None:
            self._inside.pop(fd, None)
        else:
            self._inside[fd] = poll
            self._active.append(fd)

    def bind(self, what: TcpConnection | TcpListener, item: StackSocket) -> None:
        """Have a socket looked at when something happens to its connection, or at its port."""
        self._of[what] = item.fileno()

    def remove(self, item: Watched, what: TcpConnection | TcpListener | None = None) -> None:
        """Forget what is closed."""
        self._sockets.pop(item.fileno(), None)
        if what is not None:
            self._of.pop(what, None)


class StackPoll:
    """An epoll of sockets of stacks: `select.epoll`, as far as it is used here. It never waits."""

    def __init__(self, loop: StackLoop) -> None:
        self._loop = loop
        self._masks: dict[int, int] = {}
        self._maybe: dict[int, None] = {}
        """Sockets that something has happened to since they were last found not to be ready, in that order."""
        self._fd = loop.add(self)

    def fileno(self) -> int:
        return self._fd

    def register(self, fd: Any, events: int) -> None:
        """Take a socket, or its number; descriptors of this machine are none of its affair."""
        number = fd if isinstance(fd, int) else fd.fileno()
        if self._loop.item(number) is not None:
            self._masks[number] = events
            self._loop.put_inside(number, self)

    def modify(self, fd: int, events: int) -> None:
        self._masks[fd] = events
        self._loop.activate(fd)

    def unregister(self, fd: Any) -> None:
        number = fd if isinstance(fd, int) else fd.fileno()
        self._masks.pop(number, None)
        self._maybe.pop(number, None)
        self._loop.put_inside(number, None)

    def note(self, fd: int) -> None:
        """Something has happened to one of its sockets."""
        self._maybe[fd] = None

    def events(self) -> int:
        return select.EPOLLIN if self.poll() else 0

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        """Return the sockets that are ready, and what for."""
        found = []
        for fd in list(self._maybe):
            item, mask = self._loop.item(fd), self._masks.get(fd)
            events = 0 if item is None or mask is None else item.events() & (mask | _BROKEN)
            if events:
                found.append((fd, events))
            else:
                del self._maybe[fd]
        return found

    def close(self) -> None:
        for fd in self._masks:
            self._loop.put_inside(fd, None)
        self._masks.clear()
        self._maybe.clear()
        self._loop.remove(self)


class StackTimer:
    """Becomes readable at a time of the site's clock, as `endpoints.timer.Timer` does at one of the machine's."""

    def __init__(self, site: StackSite, loop: StackLoop) -> None:
        self._site = site
        self._loop = loop
        self._armed = -1
        self._fired = False
        self.fd = loop.add(self)

    def fileno(self) -> int:
        return self.fd

    def events(self) -> int:
        return select.EPOLLIN if self._fired else 0

    def wake_by(self, deadline: int) -> None:
        """Fire at `deadline` or before it."""
        if 0 <= self._armed <= deadline:
            return
        self._armed = deadline
        self._site.call_at(max(deadline, self._site.now()), self._on_due)

    def _on_due(self, now: int) -> None:
        if 0 <= self._armed <= now:
            self._armed = -1
            self._fired = True
            self._loop.activate(self.fd)
            self._loop.on_ready()

    def fired(self) -> None:
        """Note that it has expired."""
        self._fired = False

    def close(self) -> None:
        self._armed = -1
        self._loop.remove(self)


class StackSocket:
    """A socket whose calls never wait. Raises `OSError` as the kernel's does, and `BlockingIOError` for not now."""

    def __init__(self, site: StackSite, loop: StackLoop, congestion_control: str) -> None:
        self._site = site
        self._loop = loop
        self._congestion_control = congestion_control
        self._stack: TcpStack | None = None
        self._port = 0
        self._listener: TcpListener | None = None
        self._connection: TcpConnection | None = None
        self._resets = True
        """Closing resets the connection, as SO_LINGER of 0 s has it."""
        self._fd = loop.add(self)

    def fileno(self) -> int:
        """Return its number in the loop; -1 once it is closed."""
        return self._fd

    def setblocking(self, flag: bool) -> None:
        """Do nothing: it never blocks."""

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        """Take SO_LINGER; all else is as it is."""
        if level == socket.SOL_SOCKET and option == socket.SO_LINGER:
            self._resets = value == Struct("ii").pack(1, 0)

    def getsockopt(self, level: int, option: int, size: int = 0) -> Any:
        """Return SO_ERROR, or TCP_INFO as the kernel packs it. Raises `OSError` for anything else."""
        if (level, option) == (socket.SOL_SOCKET, socket.SO_ERROR):
            connection = self._connection
            return 0 if connection is None else _ERRORS.get(connection.error, 0)
        if (level, option) == (socket.IPPROTO_TCP, socket.TCP_INFO) and self._connection is not None:
            return _info(self._connection, self._site.now())[: size or None]
        raise _error(errno.ENOPROTOOPT)

    def bind(self, address: tuple[str, int]) -> None:
        self._stack = self._loop.stacks.get(address[0])
        if self._stack is None:
            raise _error(errno.EADDRNOTAVAIL)
        self._port = address[1]

    def connect_ex(self, address: tuple[str, int]) -> int:
        """Begin to open a connection; the number of the error."""
        try:
            self.connect(address)
        except OSError as error:
            return error.errno or 0
        return 0

    def getpeername(self) -> tuple[str, int]:
        connection = self._connection
        if connection is None or connection.state is TcpState.CLOSED:
            raise _error(errno.ENOTCONN)
        return connection.remote, connection.remote_port

    def shutdown(self, how: int) -> None:
        """Send nothing more; receiving goes on."""
        connection = self._open_connection()
        if how != socket.SHUT_RD:
            self._bound.close(connection)
            self._site.touch(self._bound)

    def listen(self, backlog: int) -> None:
        try:
            self._listener = self._bound.listen(self._port, self._congestion_control)
        except UsageError as error:
            raise _error(errno.EADDRINUSE) from error
        self._loop.bind(self._listener, self)

    def accept(self) -> tuple[StackSocket, tuple[str, int]]:
        listener = self._listener
        if listener is None:
            raise _error(errno.EINVAL)
        if not listener.accepted:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        connection = listener.accepted.popleft()
        item = StackSocket(self._site, self._loop, self._congestion_control)
        item._stack, item._port, item._connection = self._stack, self._port, connection
        self._loop.bind(connection, item)
        return item, (connection.remote, connection.remote_port)

    def connect(self, address: tuple[str, int]) -> None:
        """Begin to open a connection: raises `BlockingIOError` where that is under way."""
        stack = self._bound
        if not self._port:
            free = (port for port in range(*_EPHEMERAL) if stack.is_free(port, address[0], address[1]))
            self._port = next(free, 0)
            if not self._port:
                raise _error(errno.EADDRNOTAVAIL)
        try:
            self._connection = stack.connect(self._port, address[0], address[1], self._congestion_control)
        except UsageError as error:
            raise _error(errno.EADDRNOTAVAIL) from error
        self._loop.bind(self._connection, self)
        self._site.touch(stack)
        raise BlockingIOError(errno.EINPROGRESS, os.strerror(errno.EINPROGRESS))

    def getsockname(self) -> tuple[str, int]:
        return self._bound.address, self._port

    def events(self) -> int:
        if self._listener is not None:
            return select.EPOLLIN if self._listener.accepted else 0
        connection = self._connection
        if connection is None:
            return 0
        if connection.state is TcpState.CLOSED:
            return select.EPOLLIN | select.EPOLLOUT | (_BROKEN if connection.error else select.EPOLLHUP)
        found = 0
        if connection.receiver.readable or connection.receiver.finished:
            found = select.EPOLLIN
        if connection.is_writable:
            found |= select.EPOLLOUT
        return found

    # --- bytes -------------------------------------------------------------------------------------------

    def send(self, data: bytes | bytearray | memoryview) -> int:
        return self.sendmsg((data,))

    def sendmsg(self, buffers: Iterable[bytes | bytearray | memoryview]) -> int:
        """Take what there is room for of these buffers, one after another; how many bytes that was."""
        connection = self._open_connection()
        stack = self._bound
        written = 0
        for buffer in buffers:
            size = len(buffer)
            if not size:
                continue
            room = connection.writable_bytes
            if room <= 0:
                break
            written += stack.write(connection, bytes(buffer[:room]))
            if size > room:
                break
        if not written:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        self._site.touch(stack)
        return written

    def recv(self, most: int) -> bytes:
        """Return what there is, `most` at most; nothing at the end."""
        connection = self._readable_connection()
        found: list[bytes] = []
        while most > 0:
            data = connection.receiver.read(most)
            if not data:
                break
            found.append(data)
            most -= len(data)
        self._on_read(connection)
        return found[0] if len(found) == 1 else b"".join(found)

    def recv_into(self, buffer: memoryview | bytearray, nbytes: int = 0, flags: int = 0) -> int:
        """Read what is there, at most `nbytes` (0: as the buffer is long); 0 at the end. With MSG_TRUNC nothing is
        copied (tcp(7))."""
        connection = self._readable_connection()
        receiver, copies = connection.receiver, not flags & socket.MSG_TRUNC
        left = nbytes or len(buffer)
        count = 0
        while left > 0:
            data = receiver.read(left)
            size = len(data)
            if not size:
                break
            if copies:
                buffer[count : count + size] = data
            count += size
            left -= size
        self._on_read(connection)
        return count

    def recvmsg_into(self, buffers: Iterable[memoryview]) -> tuple[int, list[Any], int, None]:
        """Read what is there into these buffers, one after another."""
        count, receiver = 0, self._readable_connection().receiver
        for buffer in buffers:
            if count and not receiver.readable:
                break
            got = self.recv_into(buffer)
            count += got
            if got < len(buffer):
                break
        return count, [], 0, None

    def close(self) -> None:
        """Let go of the connection, or of the port."""
        if self._fd < 0:
            return
        stack, connection = self._stack, self._connection
        if stack is not None and self._listener is not None:
            stack.unlisten(self._listener)
        elif stack is not None and connection is not None and connection.state is not TcpState.CLOSED:
            if self._resets:
                stack.abort(connection)
            else:
                stack.close(connection)
            self._site.touch(stack)
        self._loop.remove(self, connection if self._listener is None else self._listener)
        self._fd = -1

    @property
    def _bound(self) -> TcpStack:
        if self._stack is None:
            raise _error(errno.EINVAL)
        return self._stack

    def _open_connection(self) -> TcpConnection:
        connection = self._connection
        if connection is None:
            raise _error(errno.ENOTCONN)
        if connection.state is TcpState.CLOSED:
            raise _error(_ERRORS.get(connection.error, errno.EPIPE))
        return connection

    def _readable_connection(self) -> TcpConnection:
        connection = self._connection
        if connection is None:
            raise _error(errno.ENOTCONN)
        receiver = connection.receiver
        if receiver.readable or receiver.finished:
            return connection
        if connection.state is TcpState.CLOSED:
            if connection.error:
                raise _error(_ERRORS[connection.error])
            return connection
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    def _on_read(self, connection: TcpConnection) -> None:
        if connection.state is TcpState.CLOSED:
            return
        stack = self._bound
        stack.on_read(connection, self._site.now())
        if connection.urgent:
            self._site.touch(stack)


class StackSockets:
    """Opens the sockets of one host's program."""

    in_real_time = False
    """Nothing here takes this machine's time."""

    def __init__(self, site: StackSite, loop: StackLoop) -> None:
        self._site = site
        self._loop = loop

    def open(self, congestion_control: str | None, tos: int, what: str) -> StackSocket:
        """Open a socket; the class that its packets are of is the network's affair."""
        return StackSocket(self._site, self._loop, congestion_control or "cubic")

    def enter(self) -> None:
        """Do nothing: the kernel opens none of them."""

    def now(self) -> int:
        return self._site.now()

    def poll(self) -> StackPoll:
        return StackPoll(self._loop)

    def timer(self) -> StackTimer:
        return StackTimer(self._site, self._loop)


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _info(connection: TcpConnection, now: int) -> bytes:
    """Return struct tcp_info of a connection; what nobody reads is 0."""
    sender, receiver, rtt = connection.sender, connection.receiver, connection.rtt
    sender.settle_times(now)
    words = [0] * 24
    words[2] = connection.mss
    words[15] = rtt.srtt_ns // _US
    words[18] = connection.control.window
    words[23] = sender.retransmitted_segments
    least_us = rtt.least_ns // _US if rtt.least_ns else WORD - 1
    return _INFO.pack(
        *words,
        *(0, 0, sender.acked_bytes + 1, 0),  # with the SYN
        *(0, 0, 0, least_us, receiver.received, sender.sent_segments),
        *(0, sender.busy_ns // _US, sender.receive_limited_ns // _US, 0),
        *(0, sender.marked_segments),
        *(0, 0),
        *(sender.duplicate_sacks, sender.rack.reorderings, receiver.out_of_order, 0),
    )
