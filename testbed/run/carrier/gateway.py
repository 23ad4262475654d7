"""The gateway of one process: the sockets of the programs of its hosts, and which carried connection each belongs to.

A connection that a program opens to a carried address ends here, at a listener of its host's namespace, and begins
again at the other host, as a connection from the program's own address. In between it is frames between two messengers.
Who sends them is not believed: an OPEN has to name an address of its sender's host and one of the NIC that it came to.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import os
import select
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from random import Random

from testbed.base.cleanup import on_failure
from testbed.endpoints import namespace
from testbed.endpoints.loop import Loop
from testbed.run.carrier import transparent
from testbed.run.carrier.configuration import CarriedNic, CarrierConfiguration
from testbed.run.carrier.frames import (
    HEADER_BYTES,
    NUMBER_LIMIT,
    Address,
    ConnectionEnds,
    Frame,
    FrameError,
    FrameKind,
    decode,
    encode,
)
from testbed.run.carrier.messengers.messenger import ArrivedMessage, DataFlow, Messenger, Undelivered
from testbed.run.carrier.protocol import (
    CarriedConnection,
    ConnectionLimits,
    ConnectionState,
    accept_connection,
    open_connection,
)
from testbed.run.carrier.steering import Steering

MOST_ENDS = 16_384
"""ConnectionEnds of connections of one process; further programs wait until others have ended."""
SPARE_DESCRIPTORS = 256
SOCKET_BUFFER_BYTES = 1 << 18
"""The buffers of each socket to a program, which Linux doubles."""
MOST_ACCEPTED = 64
"""Connections that a listener hands over in one turn."""
LISTEN_AGAIN_NS = 1_000_000_000
"""After it has been without a descriptor, a process looks again whether it gets some."""
OpenMessenger = Callable[[str], Messenger]
_Key = tuple[str, str, int, bool]
"""Addresses of our endpoint and the peer's, the connection's number, and whether it was opened here."""


@dataclass(slots=True, eq=False)
class CarriedEnd:
    """One end of a carried connection: its program's socket, and how frames get to the other end."""

    connection: CarriedConnection
    messenger: Messenger
    peer: str
    flow: DataFlow
    socket: socket.socket
    fd: int
    events: int = 0

    @property
    def key(self) -> _Key:
        return self.messenger.address, self.peer, self.connection.number, self.connection.is_opener


@dataclass(slots=True, eq=False)
class CarrierHost:
    """A host that this process works for. `namespace` is a descriptor."""

    name: str
    namespace: int
    listeners: dict[int, socket.socket] = field(default_factory=dict)
    """By family."""
    messengers: dict[Address, Messenger] = field(default_factory=dict)
    """By each address of a NIC."""
    rails: dict[int, Messenger] = field(default_factory=dict)
    steering: Steering | None = None


class Gateway:
    """Opens everything when it is made, and raises `OSError` or `CapabilityError` where something cannot be."""

    def __init__(self, configuration: CarrierConfiguration, loop: Loop, open_messenger: OpenMessenger) -> None:
        self.counters: Counter[str] = Counter()
        """`opened` and `accepted` connections, those `refused` and `reset`, `bytes` that programs wrote, `messages`
        that they went as, and `strays`: what came and is no frame, or of no connection."""
        self._configuration = configuration
        self._loop = loop
        self._limits = ConnectionLimits(
            window_bytes=configuration.window_bytes,
            data_bytes=configuration.data_bytes,
            patience_ns=configuration.patience_ns,
        )
        self._owners = {ip_address(text): host for text, host in configuration.owners.items()}
        self._nics: dict[Address, CarriedNic] = {
            ip_address(text): nic for nic in configuration.nics for text in nic.addresses
        }
        self._host_of_endpoint = {nic.endpoint: nic.host for nic in configuration.nics}
        self._scratch = bytearray(HEADER_BYTES + configuration.data_bytes)
        self._ends: dict[_Key, CarriedEnd] = {}
        self._timers: list[tuple[int, int, CarriedEnd]] = []
        self._timer_number = 0
        self._numbers = Random(int.from_bytes(os.urandom(8), "big")).randrange(NUMBER_LIMIT)
        self._limit = MOST_ENDS
        self._most_ends = self._limit
        self._is_full = False
        self._listen_at: int | None = None
        """When to listen again, though no connection may have ended by then."""
        self._hosts: dict[str, CarrierHost] = {}
        self._messengers: dict[str, tuple[Messenger, CarrierHost]] = {}
        """By the address of the endpoint."""
        self._news: list[tuple[Sized, Messenger, CarrierHost]] = []
        """The completions of each messenger, which are looked at in every turn."""
        with on_failure(self.close):
            for name, path in configuration.namespaces.items():
                self._open_host(name, path, open_messenger)

    def limit_descriptors(self, most: int) -> None:
        """Keep to so many descriptors in all."""
        self._limit = self._most_ends = max(1, min(MOST_ENDS, most - SPARE_DESCRIPTORS))

    def _open_host(self, name: str, path: str, open_messenger: OpenMessenger) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        host = self._hosts[name] = CarrierHost(name, fd)
        namespace.enter(fd)
        for nic in self._configuration.nics:
            if nic.host != name:
                continue
            messenger = open_messenger(nic.endpoint)
            self._messengers[messenger.address] = messenger, host
            self._news.append((messenger.completions, messenger, host))
            host.rails.setdefault(nic.rail, messenger)
            host.messengers |= {ip_address(text): messenger for text in nic.addresses}
        foreign = [address for address, nic in self._nics.items() if nic.host != name]
        for family in {socket.AF_INET if address.version == 4 else socket.AF_INET6 for address in foreign}:
            listener = host.listeners[family] = transparent.listen(family, SOCKET_BUFFER_BYTES)
            self._watch(host, family, listener)
        host.steering = Steering(fd, host.listeners, foreign)

    # --- what a main loop asks of it ---------------------------------------------------------------------

    @property
    def ends(self) -> int:
        """The ends of connections that are there."""
        return len(self._ends)

    def next_timer(self) -> int | None:
        """Return when `turn` is to be called, though nothing has happened by then (ns of `time.monotonic_ns`)."""
        first = self._timers[0][0] if self._timers else None
        if self._listen_at is None:
            return first
        return self._listen_at if first is None else min(first, self._listen_at)

    def turn(self) -> None:
        """Take what has come, and do what is due."""
        for completions, messenger, host in self._news:
            if completions:
                self._poll(messenger, host)
        if self._timers and self._timers[0][0] <= time.monotonic_ns():
            self._handle_timers(time.monotonic_ns())
        if self._listen_at is not None and self._listen_at <= time.monotonic_ns():
            self._listen_at = None
            self._most_ends = self._limit  # there may be descriptors again, whatever has ended
            self._listen_again()

    def _poll(self, messenger: Messenger, host: CarrierHost) -> None:
        for event in messenger.poll():
            if isinstance(event, ArrivedMessage):
                self._on_message(messenger, host, event)
            elif isinstance(event.context, CarriedEnd):
                end = event.context
                if isinstance(event, Undelivered):
                    end.connection.drop(event.reason)
                else:
                    end.flow.on_told()
                self._settle(end)

    def _handle_timers(self, now: int) -> None:
        while self._timers and self._timers[0][0] <= now:
            _, _, end = heapq.heappop(self._timers)
            end.connection.handle_timer(now)
            self._settle(end)

    def messenger_counters(self) -> dict[str, int]:
        """Return what all endpoints have counted together."""
        total: Counter[str] = Counter()
        for messenger, _ in self._messengers.values():
            total.update(messenger.counters())
        return dict(total)

    def close(self) -> None:
        """End everything at once: programs are told that their connections were reset."""
        for end in list(self._ends.values()):
            self._forget(end)
            with contextlib.suppress(OSError):
                transparent.abort(end.socket)
        for host in self._hosts.values():
            if host.steering is not None:
                host.steering.close()
            for listener in host.listeners.values():
                if not self._is_full:
                    with contextlib.suppress(KeyError):
                        self._loop.unwatch(listener.fileno())
                listener.close()
            namespace.forget(host.namespace)
        self._hosts.clear()

    # --- programs ----------------------------------------------------------------------------------------

    def _on_listener(self, host: CarrierHost, family: int, _events: int) -> None:
        for _ in range(MOST_ACCEPTED):
            if len(self._ends) >= self._most_ends:
                self._stop_listening()
                return
            try:
                item, _ = host.listeners[family].accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._most_ends = max(1, len(self._ends))
                    self._stop_listening(time.monotonic_ns() + LISTEN_AGAIN_NS)
                return  # it was reset before it was taken
            self._take(host, family, item)

    def _watch(self, host: CarrierHost, family: int, listener: socket.socket) -> None:
        # What gives an endpoint work says so itself: nobody else is asked after each event of a program's socket.
        self._loop.watch(listener.fileno(), partial(self._on_listener, host, family), touches=False)

    def _stop_listening(self, listen_at: int | None = None) -> None:
        """Let programs wait in the listeners' queues until a connection has ended, or until `listen_at`."""
        if listen_at is not None:
            self._listen_at = listen_at
        if self._is_full:
            return
        self._is_full = True
        for host in self._hosts.values():
            for listener in host.listeners.values():
                self._loop.unwatch(listener.fileno())

    def _listen_again(self) -> None:
        if not self._is_full:
            return
        self._is_full = False
        for host in self._hosts.values():
            for family, listener in host.listeners.items():
                self._watch(host, family, listener)

    def _take(self, host: CarrierHost, family: int, item: socket.socket) -> None:
        """Carry a connection that a program of a host has opened."""
        item.setblocking(False)
        try:
            item.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ends = transparent.ends_of(item, family)
        except OSError:  # it has gone meanwhile
            item.close()
            return
        nic = self._nics.get(ends.destination)
        if nic is None or nic.host == host.name or self._owners.get(ends.source) != host.name:
            transparent.abort(item)
            return
        messenger = host.messengers.get(ends.source) or host.rails.get(nic.rail) or next(iter(host.rails.values()))
        flow = messenger.open_flow(nic.endpoint)
        number = self._next_number(messenger, nic.endpoint)
        connection = open_connection(number, ends, self._limits, time.monotonic_ns(), word=flow.word)
        self.counters["opened"] += 1
        self._add(CarriedEnd(connection, messenger, nic.endpoint, flow, item, item.fileno()), self._on_program)

    def _next_number(self, messenger: Messenger, peer: str) -> int:
        while True:
            self._numbers = (self._numbers + 1) % NUMBER_LIMIT
            if (messenger.address, peer, self._numbers, True) not in self._ends:
                return self._numbers

    def _add(self, end: CarriedEnd, callback: Callable[[CarriedEnd, int], None], events: int = 0) -> None:
        self._ends[end.key] = end
        end.events = events or select.EPOLLET
        self._loop.watch(end.fd, partial(callback, end), end.events, touches=False)
        self._settle(end)

    def _on_program(self, end: CarriedEnd, events: int) -> None:
        """A program has written, read or gone."""
        if events & select.EPOLLERR and (reason := end.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)):
            end.connection.fail(reason)
        elif events & ~select.EPOLLOUT:
            self._read(end)
        self._settle(end)

    def _read(self, end: CarriedEnd) -> None:
        connection, flow, scratch = end.connection, end.flow, self._scratch
        while (room := connection.room) and flow.is_ready:
            try:
                size = end.socket.recv_into(memoryview(scratch)[HEADER_BYTES : HEADER_BYTES + room])
            except BlockingIOError:
                return
            except OSError as error:
                connection.fail(error.errno or errno.ECONNRESET)
                return
            if not size:
                connection.read_end()
                return
            flow.send(memoryview(bytes(connection.read(scratch, size))), end)
            self.counters["bytes"] += size
            self.counters["messages"] += 1
            if size < room:
                return

    def _write(self, end: CarriedEnd) -> None:
        connection = end.connection
        try:
            while (data := connection.to_write) is not None:
                connection.written(end.socket.send(data))
            if connection.end_due:
                end.socket.shutdown(socket.SHUT_WR)
                connection.write_end()
        except BlockingIOError:
            pass
        except OSError as error:
            connection.fail(error.errno or errno.ECONNRESET)

    def _settle(self, end: CarriedEnd) -> None:
        """Do all that has become possible, and see to it that we hear of what is next."""
        connection = end.connection
        if connection.state is ConnectionState.OPEN:
            self._write(end)
        for frame in connection.take_frames():
            end.messenger.tell(end.peer, frame, end)
        if connection.state is ConnectionState.CLOSED:
            self._end(end)
            return
        if connection.timer_at is not None:
            self._timer_number += 1
            heapq.heappush(self._timers, (connection.timer_at, self._timer_number, end))
        if connection.state is ConnectionState.CONNECTING:
            return
        events = select.EPOLLIN if connection.room and end.flow.is_ready else 0
        if connection.to_write is not None:
            events |= select.EPOLLOUT
        events = events or select.EPOLLET  # errors alone, and each once
        if events != end.events:
            end.events = events
            self._loop.modify(end.fd, events)

    def _end(self, end: CarriedEnd) -> None:
        if not self._forget(end):
            return
        if end.connection.was_reset:
            self.counters["reset"] += 1
            transparent.abort(end.socket)
        else:
            end.socket.close()
        if self._is_full and len(self._ends) < self._most_ends:
            self._listen_again()

    def _forget(self, end: CarriedEnd) -> bool:
        """Know an end no more; False where that was done before."""
        if self._ends.get(end.key) is not end:
            return False
        del self._ends[end.key]
        self._loop.unwatch(end.fd)
        end.flow.close(at_once=end.connection.was_reset)
        return True

    # --- frames ------------------------------------------------------------------------------------------

    def _on_message(self, messenger: Messenger, host: CarrierHost, arrival: ArrivedMessage) -> None:
        try:
            frame = decode(arrival.message)
        except FrameError:
            self.counters["strays"] += 1
            return
        end = self._ends.get((messenger.address, arrival.peer, frame.number, not frame.from_opener))
        if end is None:
            self._on_stranger(messenger, host, arrival.peer, frame)
            return
        was_opening = end.connection.state is ConnectionState.OPENING
        end.connection.on_frame(frame, time.monotonic_ns())
        if was_opening and end.connection.state is ConnectionState.OPEN:
            try:
                end.flow.connect(end.connection.peer_word)
                end.flow.on_told()  # who answers has heard
            except ValueError:
                end.connection.fail(errno.EPROTO)
        self._settle(end)

    def _on_stranger(self, messenger: Messenger, host: CarrierHost, peer: str, frame: Frame) -> None:
        """Take a frame of no connection that is there."""
        if frame.kind is FrameKind.OPEN:
            reason = self._refusal(messenger, host, peer, frame.ends)
            if reason or (reason := self._accept(messenger, host, peer, frame)):
                self.counters["refused"] += 1
                messenger.tell(peer, encode(Frame(FrameKind.REFUSED, False, frame.number, reason)), None)
            return
        self.counters["strays"] += 1
        if frame.kind in (FrameKind.DATA, FrameKind.OPENED):  # of all others the end is the end
            message = encode(Frame(FrameKind.RESET, not frame.from_opener, frame.number, errno.ECONNRESET))
            messenger.tell(peer, message, None)

    def _refusal(self, messenger: Messenger, host: CarrierHost, peer: str, ends: ConnectionEnds | None) -> int:
        """Return why nobody is asked for a connection (an errno), 0 where somebody is."""
        if ends is None or host.messengers.get(ends.destination) is not messenger:
            return errno.EADDRNOTAVAIL
        owner = self._host_of_endpoint.get(peer)
        if owner is None or owner == host.name or self._owners.get(ends.source) != owner:
            return errno.EACCES
        return errno.ENOBUFS if len(self._ends) >= self._most_ends else 0

    def _accept(self, messenger: Messenger, host: CarrierHost, peer: str, frame: Frame) -> int:
        """Ask the program that is to listen; why that is not possible (an errno), or 0."""
        assert frame.ends is not None
        namespace.enter(host.namespace)
        try:
            item = transparent.connect(frame.ends, SOCKET_BUFFER_BYTES)
        except OSError as error:
            return error.errno or errno.ECONNREFUSED
        flow = messenger.open_flow(peer)
        try:
            flow.connect(frame.word)
        except ValueError:
            flow.close(at_once=True)
            item.close()
            return errno.EPROTO
        connection = accept_connection(frame, self._limits, word=flow.word)
        self.counters["accepted"] += 1
        end = CarriedEnd(connection, messenger, peer, flow, item, item.fileno())
        self._add(end, self._on_connecting, select.EPOLLOUT)
        return 0

    def _on_connecting(self, end: CarriedEnd, _events: int) -> None:
        """The program that is to listen has answered, or is out of reach."""
        if end.connection.state is not ConnectionState.CONNECTING:
            self._on_program(end, _events)
            return
        reason = end.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if reason:
            self.counters["refused"] += 1
            end.connection.refused(reason)
        else:
            end.connection.connected()
        self._settle(end)

    def summary(self) -> Mapping[str, int]:
        """Return what was counted, with what the endpoints have."""
        return {**self.counters, **self.messenger_counters()}
