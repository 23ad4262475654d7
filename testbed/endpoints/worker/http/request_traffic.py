"""The requests of one program: clients begin theirs when they are due, and servers answer token by token.

Arrivals wait for nothing (an open loop). A client keeps connections open and takes the one that was used last for the
next request to the same server, or opens another where all are busy, as HTTP clients do. Times are ns of
CLOCK_MONOTONIC.

A token that is due late is sent late, and the ones behind it are not: a server computes on while it cannot send. How
late the timers of both were served is counted, since it is this machine's doing and not the network's.
"""

from __future__ import annotations

import errno
import heapq
import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.base.program_errors import TrafficError
from testbed.endpoints.real_time import REAL_TIME
from testbed.endpoints.worker.http.connections import ClientConnection, ServerConnection
from testbed.endpoints.worker.http.messages import SERVER_PORT
from testbed.endpoints.worker.poll_loop import WatchingLoop
from testbed.endpoints.worker.program import Program, Request
from testbed.endpoints.worker.streams.tcp_socket import KernelSockets, SocketSource, TcpSocket, fit_accepted
from testbed.endpoints.worker.traffic import Listener
from testbed.endpoints.worker.transports.tcp import TcpSettings
from testbed.workload.metrics.statistics import percentile

SOURCE_PORTS = (10_000, 20_000)
"""Connections are from these ports, below those of channels and Linux's ephemeral range, in an order by the seed."""
MOST_CONNECTIONS = 8192
"""The most connections that a host's servers have open; further ones are closed at once."""
_BACKLOG = 4096
_PORT_TRIES = 64


@dataclass(slots=True)
class _Course:
    """The course of a request that has begun here. `failure` "": nothing went wrong so far."""

    request: Request
    lateness_ns: int
    tokens_ns: list[int] = field(default_factory=list)
    failure: str = ""


class RequestTraffic:
    """Raises `TrafficError` where something cannot be set up; what goes wrong with a request is told by the report."""

    def __init__(
        self,
        program: Program,
        loop: WatchingLoop,
        listener: Listener,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        sockets: SocketSource | None = None,
    ) -> None:
        assert isinstance(program.transport, TcpSettings)
        self._settings = program.transport
        self._sockets = KernelSockets() if sockets is None else sockets
        self._loop = loop
        self._listener = listener
        self._clock_ns = clock_ns
        self._addresses = {endpoint.rank: endpoint.address for endpoint in program.endpoints}
        self._waiting = [one for one in reversed(program.requests) if one.client in program.own]
        """Requests that are to begin here, the next one last."""
        self._served = {one.number: one for one in program.requests if one.server in program.own}
        self._left = len(self._waiting)
        self._begin_ns: int | None = None
        self._alone = not program.steps and self._sockets.in_real_time
        """Whatever else a program does, such as adding arrays up, is not worth that others wait for it."""
        self._in_real_time = False
        self._courses: dict[int, _Course] = {}
        self._idle: dict[tuple[int, int], list[ClientConnection]] = {}
        self._clients: set[ClientConnection] = set()
        self._servers: set[ServerConnection] = set()
        self._listeners: list[TcpSocket] = []
        self._due: list[tuple[int, int, ServerConnection]] = []
        """When each answer's next token is to be sent, with the request's number."""
        rng = random.Random(f"http {program.seed} {min(program.own, default=0)}")
        self._next_port = SOURCE_PORTS[0] + int(rng.random() * (SOURCE_PORTS[1] - SOURCE_PORTS[0]))
        self._token_lateness_ns: list[int] = []
        self._opened = 0
        self._refusals = 0
        self._retransmits = 0
        self._most_body_bytes = max((one.size_bytes for one in self._served.values()), default=0) + 1024

    @property
    def left(self) -> int:
        """Return how many requests of this host's clients are not over."""
        return self._left

    # --- setting up --------------------------------------------------------------------------------------

    def listen(self) -> None:
        """Be reachable wherever an own rank serves."""
        for address in sorted({self._addresses[one.server] for one in self._served.values()}):
            what = f"cannot listen at {address} port {SERVER_PORT}"
            item = self._sockets.open(self._settings.congestion_control, self._settings.tos, what)
            self._listeners.append(item)
            try:
                item.bind((address, SERVER_PORT))
                item.listen(_BACKLOG)
            except OSError as error:
                raise TrafficError(f"{what}: {error.strerror or error}") from error
            self._loop.watch(item.fileno(), lambda _, item=item: self._accept(item))  # type: ignore[misc]

    def begin(self, at_ns: int) -> None:
        """Begin requests from this time on."""
        self._begin_ns = at_ns
        if self._alone and not self._in_real_time:
            self._in_real_time = True
            REAL_TIME.begin()

    # --- time --------------------------------------------------------------------------------------------

    def turn(self, now: int) -> None:
        """Do whatever is due by now."""
        while self._waiting and (due := self._start_of(self._waiting[-1])) is not None and due <= now:
            self._ask(self._waiting.pop(), due)
        while self._due and self._due[0][0] <= now:
            due, number, connection = heapq.heappop(self._due)
            request = connection.request
            if connection.closed or request is None or request.number != number:
                continue
            self._token_lateness_ns.append(self._clock_ns() - due)
            connection.send_token()
            if connection.request is request and not connection.closed:
                heapq.heappush(self._due, (due + request.tpot_ns, number, connection))

    def next_due(self) -> int | None:
        """Return when `turn` is to be called, though nothing has happened by then."""
        times = [self._due[0][0]] if self._due else []
        if self._waiting and (due := self._start_of(self._waiting[-1])) is not None:
            times.append(due)
        return min(times, default=None)

    def _start_of(self, request: Request) -> int | None:
        return None if self._begin_ns is None else self._begin_ns + request.start_ns

    # --- clients -----------------------------------------------------------------------------------------

    def _ask(self, request: Request, due: int) -> None:
        course = self._courses[request.number] = _Course(request, self._clock_ns() - due)
        idle = self._idle.get((request.client, request.server))
        try:
            connection = idle.pop() if idle else self._connect(request)
            connection.send(request, self._addresses[request.server])
        except TrafficError as error:
            self._end(course, error.message)
        except OSError as error:
            self._end(course, error.strerror or str(error))

    def _connect(self, request: Request) -> ClientConnection:
        source, to = self._addresses[request.client], self._addresses[request.server]
        for _ in range(_PORT_TRIES):
            port = self._next_port
            self._next_port = port + 1 if port + 1 < SOURCE_PORTS[1] else SOURCE_PORTS[0]
            item = self._sockets.open(self._settings.congestion_control, self._settings.tos, f"no connection to {to}")
            try:
                item.bind((source, port))
                item.connect((to, SERVER_PORT))
            except BlockingIOError:
                pass
            except OSError as error:
                item.close()
                if error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
                    continue
                raise
            self._opened += 1
            connection = ClientConnection(item, self._loop, tell=self._on_answer, clock_ns=self._clock_ns)
            self._clients.add(connection)
            return connection
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))

    def _on_answer(self, connection: ClientConnection, failure: str | None) -> None:
        """An answer is complete, or the connection is gone."""
        request, connection.request = connection.request, None
        if connection.closed:
            self._clients.discard(connection)
            self._retransmits += connection.retransmits
        if request is None:
            for idle in self._idle.values():
                if connection in idle:
                    idle.remove(connection)
            return
        course = self._courses[request.number]
        course.tokens_ns = connection.reader.tokens_ns
        self._end(course, failure or "")
        if failure is None and connection.reader.keeps_alive:
            self._idle.setdefault((request.client, request.server), []).append(connection)
        elif failure is None:
            connection.close()
            self._clients.discard(connection)
            self._retransmits += connection.retransmits

    def _end(self, course: _Course, failure: str) -> None:
        course.failure = failure
        self._left -= 1
        self._listener.on_bytes(course.request.tokens * course.request.chunk_bytes)

    # --- servers -----------------------------------------------------------------------------------------

    def _accept(self, listener: TcpSocket) -> None:
        while True:
            try:
                item, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.ECONNABORTED:
                    continue
                self._listener.on_failed(f"cannot accept a connection: {error.strerror or error}")
                return
            if len(self._servers) >= MOST_CONNECTIONS:
                item.close()
                self._refusals += 1
                continue
            fit_accepted(item)
            self._servers.add(
                ServerConnection(
                    item,
                    self._loop,
                    tell=self._on_request,
                    refuse=self._on_refused,
                    most_body_bytes=self._most_body_bytes,
                )
            )

    def _on_request(self, connection: ServerConnection, number: int) -> None:
        request = self._served.pop(number, None)
        if request is None:
            connection.refuse("it asks for what is not to be asked here, or twice")
            return
        connection.begin(request)
        heapq.heappush(self._due, (self._clock_ns() + request.prefill_ns, number, connection))

    def _on_refused(self, connection: ServerConnection, reason: str) -> None:
        self._servers.discard(connection)
        self._retransmits += connection.retransmits
        self._refusals += bool(reason)

    # --- the end -----------------------------------------------------------------------------------------

    def report(self) -> dict[str, Any]:
        """Return what became of the requests that began here, in columns; times are in ns from the begin.

        A request that is under way has the tokens that have arrived.
        """
        for connection in self._clients:
            if connection.request is not None:
                self._courses[connection.request.number].tokens_ns = connection.reader.tokens_ns
        begin = self._begin_ns or 0
        courses = list(self._courses.values())
        return {
            "number": [one.request.number for one in courses],
            "lateness_ns": [one.lateness_ns for one in courses],
            "first_ns": [one.tokens_ns[0] - begin if one.tokens_ns else -1 for one in courses],
            "gaps_ns": [[b - a for a, b in zip(one.tokens_ns, one.tokens_ns[1:], strict=False)] for one in courses],
            "failure": [one.failure for one in courses],
        }

    def counters(self) -> Mapping[str, float]:
        """Return what else was counted. Lateness is in us, of the tokens that were sent here."""
        late = self._token_lateness_ns
        return {
            "http_connections": self._opened,
            "http_retransmits": self._retransmits,
            "http_refusals": self._refusals,
            "token_lateness_p99_us": (percentile(late, 0.99) or 0) / 1e3,
            "token_lateness_max_us": max(late, default=0) / 1e3,
        }

    def halt(self) -> None:
        if self._in_real_time:
            self._in_real_time = False
            REAL_TIME.end()
        for connection in (*self._clients, *self._servers):
            if not connection.closed:
                connection.halt()
                self._retransmits += connection.retransmits
        for item in self._listeners:
            if item.fileno() >= 0:
                self._loop.unwatch(item.fileno())
                item.close()
        self._due.clear()
        self._waiting.clear()

    def close(self) -> None:
        """Leave nothing behind, whatever the state."""
        self.halt()
        for connection in (*self._clients, *self._servers):
            connection.socket.close()
        self._clients.clear()
        self._servers.clear()
