"""Transfers over streams: a connection for each channel, all in one loop. A transport says how a stream is made.

Connections are bound to the NIC's address and to the ports of the program.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from testbed.base.program_errors import TrafficError
from testbed.endpoints.worker.poll_loop import WatchingLoop
from testbed.endpoints.worker.program import Channel, Program, Step
from testbed.endpoints.worker.streams.channel_streams import CHUNK_BYTES, ReceivingEnd, SendingEnd, Stream
from testbed.endpoints.worker.streams.tcp_socket import fit_accepted
from testbed.endpoints.worker.traffic import Listener

if TYPE_CHECKING:
    from testbed.endpoints.worker.buffers import CollectiveBuffers

MOST_CONNECTING = 64
"""Connections that are set up at once, so that no listener's backlog overflows."""
_BACKLOG = 4096
_BROKEN = select.EPOLLERR | select.EPOLLHUP


class StreamTraffic(ABC):
    """Raises `TrafficError` where something cannot be set up. `Traffic` says what the methods do."""

    def __init__(
        self,
        program: Program,
        loop: WatchingLoop,
        buffers: CollectiveBuffers | None,
        listener: Listener,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._clock_ns = clock_ns
        self._loop = loop
        self._buffers = buffers
        self._listener = listener
        self._endpoints = {endpoint.rank: endpoint for endpoint in program.endpoints}
        self._traffic = memoryview(bytearray(CHUNK_BYTES))
        self._scratch = memoryview(bytearray(CHUNK_BYTES + 64))
        self._outgoing = [channel for channel in program.channels if channel.source in program.own]
        self._incoming = [channel for channel in program.channels if channel.destination in program.own]
        self._steps: dict[int, dict[int, Step]] = {}
        for step in program.steps:
            if step.channel is not None and step.destination in program.own:
                self._steps.setdefault(step.channel, {})[step.number] = step
        self._expected = {self._key(channel): channel for channel in self._incoming}
        self._to_connect: Iterator[Channel] = iter(())
        self._listeners: dict[int, Stream] = {}
        self._connecting: dict[int, tuple[Stream, Channel]] = {}
        self._sending: dict[int, SendingEnd] = {}
        self._receiving: dict[int, ReceivingEnd] = {}
        self._masks: dict[int, int] = {}

    # --- setting up --------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        return len(self._sending) == len(self._outgoing) and len(self._receiving) == len(self._incoming)

    def listen(self) -> None:
        wanted = {(self._endpoints[c.destination].address, c.destination_port) for c in self._incoming}
        for address, port in sorted(wanted):
            what = f"cannot listen at {address} port {port}"
            item = self._socket(what)
            try:
                item.bind((address, port))
                item.listen(_BACKLOG)
            except OSError as error:
                item.close()
                raise TrafficError(f"{what}: {_text(error)}") from error
            self._listeners[item.fileno()] = item
            self._loop.watch(item.fileno(), lambda _, item=item: self._accept(item))  # type: ignore[misc]

    def connect(self) -> None:
        self._to_connect = iter(self._outgoing)
        self._connect_more()

    def _connect_more(self) -> None:
        for channel in islice(self._to_connect, MOST_CONNECTING - len(self._connecting)):
            source, to = self._endpoints[channel.source], self._endpoints[channel.destination]
            what = f"{source} cannot connect from port {channel.source_port} to {to}"
            item = self._socket(what)
            fd = item.fileno()
            try:
                item.bind((source.address, channel.source_port))
                item.connect((to.address, channel.destination_port))
            except BlockingIOError:
                pass
            except OSError as error:
                item.close()
                raise TrafficError(f"{what}: {_text(error)}") from error
            self._connecting[fd] = item, channel
            self._watch(fd, select.EPOLLOUT)

    @abstractmethod
    def _socket(self, what: str) -> Stream:
        """One that never waits. Raises `TrafficError`; `what` is what it is for."""

    def _accept(self, listener: Stream) -> None:
        while True:
            try:
                item, peer = listener.accept()
                if isinstance(item, socket.socket):
                    fit_accepted(item)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno != errno.ECONNABORTED:
                    self._listener.on_failed(f"cannot accept a connection: {_text(error)}")
                    return
                continue
            channel = self._expected.get((*peer, *listener.getsockname()))
            if channel is None or channel.index in self._receiving:
                item.close()  # a stranger
                continue
            end = self._receiving[channel.index] = ReceivingEnd(
                item,
                self._endpoints[channel.source],
                self._steps.get(channel.index, {}),
                scratch=self._scratch,
                buffers=self._buffers,
                listener=self._listener,
                clock_ns=self._clock_ns,
            )
            self._serve(item.fileno(), end)

    def _key(self, channel: Channel) -> tuple[str, int, str, int]:
        source, to = self._endpoints[channel.source], self._endpoints[channel.destination]
        return source.address, channel.source_port, to.address, channel.destination_port

    def _on_connected(self, fd: int) -> None:
        item, channel = self._connecting.pop(fd)
        to = self._endpoints[channel.destination]
        if error := item.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._unwatch(fd)
            item.close()
            self._listener.on_failed(f"{self._endpoints[channel.source]} cannot reach {to}: {os.strerror(error)}")
            return
        end = self._sending[channel.index] = SendingEnd(
            item,
            to,
            traffic=self._traffic,
            buffers=self._buffers,
            listener=self._listener,
            clock_ns=self._clock_ns,
        )
        self._unwatch(fd)
        self._serve(fd, end)
        try:
            self._connect_more()
        except TrafficError as failure:
            self._listener.on_failed(failure.message)

    # --- moving ------------------------------------------------------------------------------------------

    def _serve(self, fd: int, end: SendingEnd | ReceivingEnd) -> None:
        def serve(events: int) -> None:
            try:
                if events & (select.EPOLLIN | _BROKEN):
                    end.read()
                if events & select.EPOLLOUT:
                    end.write()
            except TrafficError as error:
                self._broken(fd, error.message)
            except OSError as error:
                self._broken(fd, f"the connection with {end.peer} broke: {_text(error)}")
            else:
                self._adjust(fd, end)

        self._masks[fd] = select.EPOLLIN
        self._loop.watch(fd, serve)

    def _adjust(self, fd: int, end: SendingEnd | ReceivingEnd) -> None:
        mask = select.EPOLLIN | (select.EPOLLOUT if end.waiting else 0)
        if self._masks[fd] != mask:
            self._masks[fd] = mask
            self._loop.modify(fd, mask)

    def _broken(self, fd: int, reason: str) -> None:
        self._unwatch(fd)
        self._listener.on_failed(reason)

    def send(self, step: Step) -> None:
        assert step.channel is not None
        end = self._sending[step.channel]
        idle = not end.waiting
        end.put(step)
        if idle and (fd := end.connection.fileno()) in self._masks:
            try:
                end.write()
            except OSError as error:
                self._broken(fd, f"the connection with {end.peer} broke: {_text(error)}")
                return
            self._adjust(fd, end)

    def turn(self, now: int) -> None:  # noqa: B027 - of `Traffic`
        """Everything happens when the loop tells."""

    # --- the end -----------------------------------------------------------------------------------------

    def halt(self) -> None:
        for fd in list(self._masks):
            self._unwatch(fd)

    def close(self) -> None:
        self.halt()
        for fd, listener in self._listeners.items():
            self._loop.unwatch(fd)
            listener.close()
        self._listeners.clear()
        for item, _ in self._connecting.values():
            item.close()
        self._connecting.clear()
        for sender in self._sending.values():
            sender.connection.close()
        for receiver in self._receiving.values():
            receiver.connection.close()
        self._sending.clear()
        self._receiving.clear()

    def _watch(self, fd: int, events: int) -> None:
        self._masks[fd] = events
        self._loop.watch(fd, lambda _: self._on_connected(fd), events)

    def _unwatch(self, fd: int) -> None:
        if self._masks.pop(fd, None) is not None:
            self._loop.unwatch(fd)


def _text(error: OSError) -> str:
    return error.strerror or str(error)
