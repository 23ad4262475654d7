"""Reading requests and answers from bytes that may be anything: no I/O and no clock.

`httptools` (llhttp, the parser of Node.js) reads the protocol: a token takes 0.4 us of CPU where h11 takes 13, and
there are thousands of them a second. It keeps headers of any length, so that what is fed to it is counted here.
"""

from __future__ import annotations

from typing import Any

import httptools

from testbed.endpoints.worker.http.messages import LONGEST_FRAMING, MOST_HEAD_BYTES, REQUEST_NUMBER


class HttpError(Exception):
    """The peer does not speak HTTP/1.1 as it should. The text says what is wrong."""


class RequestReader:
    """Reads the requests of one connection, one after another. Raises `HttpError`; then the connection is of no use.

    `number` is that of the request that has arrived and is to be answered; None: none has.
    """

    def __init__(self, most_body_bytes: int) -> None:
        self.number: int | None = None
        self._most_body_bytes = most_body_bytes
        self._parser: Any = httptools.HttpRequestParser(self)
        self._head_bytes = 0
        self._body_bytes = 0
        self._in_head = True
        self._named: bytes | None = None

    @property
    def between(self) -> bool:
        """Tell whether nothing of a request has arrived since the last one."""
        return self._in_head and not self._head_bytes

    def feed(self, data: bytes) -> None:
        """Read what has arrived. A client sends nothing before it has its answer."""
        if self.number is not None:
            raise HttpError("a request comes before the last one is answered")
        if self._in_head:
            self._head_bytes += len(data)
        _feed(self._parser, data)
        if self._in_head and self._head_bytes > MOST_HEAD_BYTES:
            raise HttpError("its header does not end")

    def answered(self) -> None:
        """Be ready for the next request."""
        self.number = None
        self._head_bytes = 0
        self._in_head = True

    # --- what the parser calls; whatever it raises ends `feed` -------------------------------------------

    def on_message_begin(self) -> None:
        if self.number is not None:
            raise HttpError("a request comes before the last one is answered")
        self._named = None
        self._body_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == REQUEST_NUMBER:
            self._named = value

    def on_headers_complete(self) -> None:
        self._in_head = False

    def on_body(self, data: bytes) -> None:
        self._body_bytes += len(data)
        if self._body_bytes > self._most_body_bytes:
            raise HttpError(f"its body has more than {self._most_body_bytes} bytes")

    def on_message_complete(self) -> None:
        named = self._named
        if named is None or not named.isdigit() or len(named) > 9:
            raise HttpError("it has no number")
        self.number = int(named)


class AnswerReader:
    """Reads the answers of one connection. Raises `HttpError`; then the connection is of no use.

    `expect` says what the next answer is to have; `tokens_ns` then gets the time of each token, and `complete` is true
    once all of it is there.
    """

    def __init__(self) -> None:
        self.tokens_ns: list[int] = []
        self.complete = False
        self.keeps_alive = False
        """The connection may carry another request after this answer."""
        self._parser: Any = httptools.HttpResponseParser(self)
        self._expecting = False
        self._tokens = 0
        self._chunk_bytes = 1
        self._got_bytes = 0
        self._room_bytes = 0
        self._now = 0

    def expect(self, *, tokens: int, chunk_bytes: int) -> None:
        """Take the next answer for one of so many tokens, each of which has so many bytes."""
        self.tokens_ns = []
        self.complete = False
        self._expecting = True
        self._tokens, self._chunk_bytes = tokens, chunk_bytes
        self._got_bytes = 0
        self._room_bytes = MOST_HEAD_BYTES + LONGEST_FRAMING * tokens * chunk_bytes

    def feed(self, data: bytes, now: int) -> None:
        """Read what has arrived by `now`."""
        if not self._expecting:
            raise HttpError("it says something that nobody asked for")
        self._room_bytes -= len(data)
        if self._room_bytes < 0:
            raise HttpError("its answer is too long")
        self._now = now
        _feed(self._parser, data)

    # --- what the parser calls; whatever it raises ends `feed` -------------------------------------------

    def on_message_begin(self) -> None:
        if not self._expecting:
            raise HttpError("it answers twice")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status != 200:
            raise HttpError(f"it answers with status {status}")
        self.keeps_alive = bool(self._parser.should_keep_alive())

    def on_body(self, data: bytes) -> None:
        self._got_bytes += len(data)
        tokens = self._got_bytes // self._chunk_bytes
        if self._got_bytes > self._tokens * self._chunk_bytes:
            raise HttpError(f"its answer has more than {self._tokens} tokens")
        self.tokens_ns += [self._now] * (tokens - len(self.tokens_ns))

    def on_message_complete(self) -> None:
        if self._got_bytes != self._tokens * self._chunk_bytes:
            raise HttpError(f"its answer ends after {len(self.tokens_ns)} of {self._tokens} tokens")
        self._expecting = False
        self.complete = True


def _feed(parser: Any, data: bytes) -> None:
    try:
        parser.feed_data(data)
    except httptools.HttpParserCallbackError as error:
        raise error.__context__ if isinstance(error.__context__, HttpError) else HttpError(str(error)) from None
    except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
        raise HttpError(f"this is no HTTP: {error}") from None
