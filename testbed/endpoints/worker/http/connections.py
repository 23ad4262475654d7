"""Connections of requests: the client's end, which has one request under way, and the server's, which answers it.

An end owns its socket, never waits, and tells its owner what has happened. Whatever the peer sends is read by
`readers`, which bounds it; what it does not take is bounded by `MOST_UNSENT_BYTES`.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable

from testbed.endpoints.worker.http.messages import ANSWER_HEAD, LAST_CHUNK, REFUSAL, encode_request, encode_token
from testbed.endpoints.worker.http.readers import AnswerReader, HttpError, RequestReader
from testbed.endpoints.worker.poll_loop import WatchingLoop
from testbed.endpoints.worker.program import Request
from testbed.endpoints.worker.streams.tcp_info import read_tcp_info
from testbed.endpoints.worker.streams.tcp_socket import TcpSocket

MOST_UNSENT_BYTES = 1 << 20
"""A server lets a client go that leaves so much of its answer unread, beyond what the kernel buffers."""
READ_BYTES = 1 << 16
_SEND_BEFORE_CLOSE = struct.pack("ii", 0, 0)
_BROKEN = select.EPOLLERR | select.EPOLLHUP


class HttpConnection(ABC):
    """One end of a connection. `retransmits` are the segments that it sent again, once it is closed."""

    def __init__(self, item: TcpSocket, loop: WatchingLoop, events: int) -> None:
        self.socket = item
        self.closed = False
        self.retransmits = 0
        self._loop = loop
        self._unsent = bytearray()
        self._events = events
        loop.watch(item.fileno(), self._serve, events)

    def _serve(self, events: int) -> None:
        try:
            if events & select.EPOLLOUT:
                self._on_room()
            if not self.closed and events & (select.EPOLLIN | _BROKEN):
                self._on_readable()
        except HttpError as error:
            self._on_garbage(str(error))
        except OSError as error:
            self._on_error(os.strerror(error.errno) if error.errno else str(error))

    @abstractmethod
    def _on_readable(self) -> None:
        """Read what has arrived. Raises `HttpError` and `OSError`."""

    @abstractmethod
    def _on_error(self, reason: str) -> None:
        """Let go of a connection that is of no use any more."""

    def _on_garbage(self, reason: str) -> None:
        """Do what is to be done where the peer does not speak HTTP as it should."""
        self._on_error(reason)

    def _on_room(self) -> None:
        self._flush()

    def _write(self, data: bytes) -> None:
        """Send, or keep until there is room. Raises `OSError`."""
        if not self._unsent:
            with contextlib.suppress(BlockingIOError):
                data = data[self.socket.send(data) :]
        if data:
            self._unsent += data
            self._watch(self._events | select.EPOLLOUT)

    def _flush(self) -> None:
        while self._unsent:
            try:
                del self._unsent[: self.socket.send(self._unsent)]
            except BlockingIOError:
                self._watch(select.EPOLLIN | select.EPOLLOUT)
                return
        self._watch(select.EPOLLIN)

    def _watch(self, events: int) -> None:
        if events != self._events:
            self._events = events
            self._loop.modify(self.socket.fileno(), events)

    def halt(self) -> None:
        """Read and write nothing any more; what the kernel knows of the connection stays."""
        if not self.closed:
            self.closed = True
            self._loop.unwatch(self.socket.fileno())
            self.retransmits = read_tcp_info(self.socket).retransmits

    def close(self) -> None:
        """Halt, and close the socket."""
        self.halt()
        self.socket.close()


class ClientConnection(HttpConnection):
    """Carries one request after another. `tell` hears of the end of each, with the reason why it failed or None."""

    def __init__(
        self,
        item: TcpSocket,
        loop: WatchingLoop,
        *,
        tell: Callable[[ClientConnection, str | None], None],
        clock_ns: Callable[[], int],
    ) -> None:
        self.request: Request | None = None
        self.reader = AnswerReader()
        self._tell = tell
        self._clock_ns = clock_ns
        self._connected = False
        self._tokens = 0
        super().__init__(item, loop, select.EPOLLOUT)

    def send(self, request: Request, host: str) -> None:
        """Send a request; it goes as soon as the connection is there. Raises `OSError`."""
        self.request = request
        self.reader.expect(tokens=request.tokens, chunk_bytes=request.chunk_bytes)
        data = encode_request(request.number, host, request.size_bytes)
        if self._connected:
            self._write(data)
        else:
            self._unsent += data

    def _on_room(self) -> None:
        if not self._connected:
            error = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                raise OSError(error, os.strerror(error))
            self._connected = True
        self._flush()

    def _on_readable(self) -> None:
        try:
            data = self.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise HttpError("it closed the connection")
        self.reader.feed(data, self._clock_ns())
        if self.reader.complete and self.request is not None:
            self._tell(self, None)

    def _on_error(self, reason: str) -> None:
        self.close()
        self._tell(self, reason)


class ServerConnection(HttpConnection):
    """Answers the requests of one client. `tell` hears of each that has arrived, `refuse` why it was closed."""

    def __init__(
        self,
        item: TcpSocket,
        loop: WatchingLoop,
        *,
        tell: Callable[[ServerConnection, int], None],
        refuse: Callable[[ServerConnection, str], None],
        most_body_bytes: int,
    ) -> None:
        self.request: Request | None = None
        """The request that it is answering."""
        self.sent_tokens = 0
        self._reader = RequestReader(most_body_bytes)
        self._tell = tell
        self._refuse = refuse
        super().__init__(item, loop, select.EPOLLIN)

    def begin(self, request: Request) -> None:
        """Answer this request from now on."""
        self.request = request
        self.sent_tokens = 0

    def send_token(self) -> None:
        """Send the next token, with the answer's header before the first and its end behind the last."""
        request = self.request
        assert request is not None
        data = encode_token(request.chunk_bytes)
        if not self.sent_tokens:
            data = ANSWER_HEAD + data
        self.sent_tokens += 1
        if self.sent_tokens == request.tokens:
            data += LAST_CHUNK
            self.request = None
            self._reader.answered()
        try:
            self._write(data)
        except OSError as error:
            self._on_error(error.strerror or str(error))
            return
        if len(self._unsent) > MOST_UNSENT_BYTES:
            self._on_error("it does not read its answer")

    def _on_readable(self) -> None:
        try:
            data = self.socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            done = self.request is None and self._reader.between
            self._on_error("" if done else "it went away before it had its answer")
            return
        self._reader.feed(data)
        if self._reader.number is not None:
            self._tell(self, self._reader.number)

    def refuse(self, reason: str) -> None:
        """Answer that a request makes no sense, if nothing was answered yet, and close."""
        if not self.closed and self.request is None and not self._unsent:
            with contextlib.suppress(OSError):  # it may have gone already
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _SEND_BEFORE_CLOSE)
                self.socket.send(REFUSAL)
        self._on_error(reason)

    def _on_garbage(self, reason: str) -> None:
        self.refuse(reason)

    def _on_error(self, reason: str) -> None:
        self.close()
        self._refuse(self, reason)
