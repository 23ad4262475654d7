"""The process that has the endpoints of hosts, and serves the programs on them: its sockets, and its turns."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from testbed.base.unix_sockets import peer_of
from testbed.endpoints import namespace
from testbed.endpoints.agent import Agent
from testbed.endpoints.libfabric.connection import ProgramConnection
from testbed.endpoints.libfabric.program_memory import ProgramMemory
from testbed.endpoints.libfabric.rails import ProvidedRail
from testbed.endpoints.libfabric.settings import HostSettings, ProviderSettings, RailSettings
from testbed.endpoints.libfabric.wire import ProviderWireError
from testbed.endpoints.loop import Loop
from testbed.endpoints.sockets import Marking, SocketConfig
from testbed.protocols.uet.config import UetConfig

MOST_OUTPUT_BYTES: Final = 1 << 20
"""A program that takes no more replies has no more requests taken."""
MOST_UNTOLD_BYTES: Final = 64 << 20
"""Replies for a program that takes none, of which there is no end where peers write with data: it is cut off."""
MOST_CONNECTIONS: Final = 1024
"""The connections of programs on one host."""
MOST_UNEXPECTED: Final = 1 << 14
MOST_UNEXPECTED_BYTES: Final = 256 << 20
"""Messages that wait for their receive at each endpoint, and their bytes: programs of MPI send before anybody asks."""
_CHUNK: Final = 1 << 18
_CHUNKS_PER_TURN: Final = 8
_READABLE: Final = select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR


class ProviderServer:
    """Serves the programs of some hosts. Raises `OSError` where a socket cannot be opened, having opened none.

    `settings` say which hosts; `loop` drives the endpoints, and is closed by whoever made it.
    """

    def __init__(self, settings: ProviderSettings, loop: Loop) -> None:
        self.loop = loop
        self.agent = Agent(loop=loop)
        self._settings = settings
        self._clients: dict[int, _Client] = {}
        self._listeners: list[tuple[socket.socket, Path]] = []
        self._namespaces: list[int] = []
        self.buffer = memoryview(bytearray(_CHUNK))
        """Requests of programs are read into it: to make as large a buffer for each time takes longer than to read."""
        self.connections = 0
        """The number of those that programs have opened."""
        self.broken = 0
        """The number of those that were ended for what they said."""
        loop.set_tick(settings.tick_ns, gathers=True)
        try:
            for host in settings.hosts:
                self._serve(host)
        except BaseException:
            self.close(patience_ns=0)
            raise

    def _serve(self, host: HostSettings) -> None:
        if host.namespace:  # it stays open: sockets may be opened in it later
            fd = os.open(host.namespace, os.O_RDONLY | os.O_CLOEXEC)
            self._namespaces.append(fd)
            namespace.enter(fd)
        rails = [self._open(rail) for rail in host.rails]
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        path = Path(host.socket)
        self._listeners.append((listener, path))
        path.unlink(missing_ok=True)
        listener.bind(host.socket)
        path.chmod(0o600)
        listener.listen(256)
        self.loop.watch(listener.fileno(), lambda mask: self._accept(listener, rails, host.name))

    def _open(self, rail: RailSettings) -> ProvidedRail:
        limits = {"max_unexpected": MOST_UNEXPECTED, "max_unexpected_bytes": MOST_UNEXPECTED_BYTES}
        given = {"max_incoming_bytes": MOST_UNEXPECTED_BYTES, **limits, **rail.config}
        config = UetConfig(**given, least_rtts_ns=rail.least_rtts_ns)  # type: ignore[arg-type]
        dscp, control = self._settings.dscp, self._settings.control_dscp
        marking = Marking(data=dscp, retransmission=dscp, control=control)
        fep = self.agent.open(
            rail.address,
            config,
            sockets=SocketConfig(marking=marking),
            delay_ns=rail.delays_ns or 0,
            paced=True,
        )
        return ProvidedRail(rail.name, fep, self._settings.job_id)

    def _accept(self, listener: socket.socket, rails: list[ProvidedRail], host: str) -> None:
        try:
            item, _ = listener.accept()
        except OSError:
            return
        try:
            pid, uid = peer_of(item)
            if uid not in (0, os.geteuid()) or pid <= 0:
                raise PermissionError(f"a program of user {uid}")
            if len(self._clients) >= MOST_CONNECTIONS * len(self._settings.hosts):
                raise OSError("too many connections")
            memory = ProgramMemory(pid)
            if _has_hung_up(item):
                memory.close()
                raise ProcessLookupError("its program has ended, and the memory may be that of another")
        except OSError as error:
            _complain(f"{host}: a connection is refused: {error}")
            item.close()
            return
        self.connections += 1
        item.setblocking(False)
        client = _Client(self, item, ProgramConnection(rails, memory), f"{host}, process {pid}")
        self._clients[item.fileno()] = client
        self.loop.watch(item.fileno(), client.on_event, touches=False)

    def forget(self, fd: int) -> None:
        """A client is closed."""
        del self._clients[fd]

    def collect(self) -> None:
        """Tell programs what has ended."""
        now = time.monotonic_ns()
        for client in list(self._clients.values()):
            client.collect(now)

    def turn(self, until: int | None = None) -> None:
        """Wait for events until `until` (ns) at most, and do what they ask for."""
        self.loop.take_events(until)
        self.collect()
        self.loop.serve()

    def counters(self) -> Mapping[str, int]:
        """Return what was counted at all endpoints, and of connections."""
        found: Counter[str] = Counter(connections=self.connections, open=len(self._clients), broken=self.broken)
        for fep in self.agent.feps.values():
            fep.peers.settle()
            found.update(fep.counters)
            found.update(fep.peers.sent())
        return found

    def close(self, *, patience_ns: int) -> None:
        """End: sockets are removed, and peers told, as far as that is possible in the time."""
        for listener, path in self._listeners:
            with contextlib.suppress(KeyError, OSError):
                self.loop.unwatch(listener.fileno())
            listener.close()
            with contextlib.suppress(OSError):
                path.unlink()
        self._listeners.clear()
        for client in list(self._clients.values()):
            client.close()
        self.agent.close(patience_ns=patience_ns)
        for fd in self._namespaces:
            namespace.forget(fd)
        self._namespaces.clear()


class _Client:
    """The socket of a connection."""

    def __init__(self, server: ProviderServer, item: socket.socket, connection: ProgramConnection, name: str) -> None:
        self._server = server
        self._socket = item
        self._connection = connection
        self._name = name
        self._events = select.EPOLLIN
        self._is_closed = False

    def on_event(self, mask: int) -> None:
        """There is something to read, or room to write."""
        if mask & select.EPOLLOUT:
            self._flush()
        if mask & _READABLE and not self._is_closed:
            self._read(mask)

    def _read(self, mask: int) -> None:
        ended = False
        buffer = self._server.buffer
        for _ in range(_CHUNKS_PER_TURN):
            try:
                count = self._socket.recv_into(buffer)
            except BlockingIOError:
                break
            except OSError:
                ended = True
                break
            if not count:
                ended = True
                break
            try:
                self._connection.receive(bytes(buffer[:count]), time.monotonic_ns())
                self._touch()
            except ProviderWireError as error:
                self._break(error)
                return
            if count < _CHUNK or len(self._connection.output) > MOST_OUTPUT_BYTES:
                ended = False
                break
        if ended:
            self.close()
        else:
            self._flush()

    def collect(self, now: int) -> None:
        """Tell the program what has ended."""
        if self._is_closed:
            return
        try:
            if self._connection.collect(now):
                self._touch()
        except ProviderWireError as error:  # of a request that has waited
            self._break(error)
            return
        if self._connection.output:
            self._flush()
        if len(self._connection.output) > MOST_UNTOLD_BYTES and not self._is_closed:
            self._break(ProviderWireError("it takes no replies"))

    def _break(self, error: ProviderWireError) -> None:
        self._server.broken += 1
        _complain(f"{self._name}: its connection ends: {error}")
        self.close()

    def _flush(self) -> None:
        output = self._connection.output
        if output:
            try:
                sent = self._socket.send(output)
                del output[:sent]
            except BlockingIOError:
                pass
            except OSError:
                self.close()
                return
        events = select.EPOLLIN if len(output) <= MOST_OUTPUT_BYTES else 0
        if output:
            events |= select.EPOLLOUT
        if events != self._events:
            self._events = events
            self._server.loop.modify(self._socket.fileno(), events)

    def close(self) -> None:
        """Free all that the program had."""
        if self._is_closed:
            return
        self._is_closed = True
        fd = self._socket.fileno()
        self._server.loop.unwatch(fd)
        self._server.forget(fd)
        self._socket.close()
        self._touch()
        self._connection.close(time.monotonic_ns())

    def _touch(self) -> None:
        """The endpoint may have been given work."""
        fep = self._connection.fep
        if fep is not None:
            self._server.loop.touch(fep)


def _has_hung_up(item: socket.socket) -> bool:
    """Tell whether the other end is closed. While it is not, its process ID is not given to another."""
    poll = select.poll()
    poll.register(item, 0)
    return bool(poll.poll(0))


def _complain(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
