"""Connections of browsers that are given up: of who reads nothing for a while, or answers no ping.

A server that closes a connection lets what waits for it go first (asyncio, `Transport.close`). For who has stopped to
read, that is never, and under TLS it is half a minute more: such a connection is ended at once instead, and what waited
for it is forgotten. So a stalled page costs memory for so long, and no longer.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

STALLED_S = 30.0
"""The time in which something of what waits for a browser has to be read by it."""


class StallTimer:
    """Ends a connection whose browser has read nothing for `STALLED_S`, while more waits than may be sent ahead.

    A slow browser is left alone: whoever has read some of it since gets as much time again.
    """

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._left_bytes = 0

    def start(self, transport: asyncio.Transport) -> None:
        """Begin to wait: too much is there to be sent."""
        self.stop()
        self._left_bytes = transport.get_write_buffer_size()
        self._timer = asyncio.get_running_loop().call_later(STALLED_S, self._look, transport)

    def stop(self) -> None:
        """Wait no longer: it is being read, or gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self, transport: asyncio.Transport) -> None:
        self._timer = None
        if transport.get_write_buffer_size() < self._left_bytes and not transport.is_closing():
            self.start(transport)
        else:
            transport.abort()


class GivenUpWhenStalled(asyncio.Protocol):
    """The part of a connection that gives it up with a browser that stalls. It stands before the protocol's class."""

    transport: asyncio.Transport

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._stall = StallTimer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall.start(self.transport)

    def resume_writing(self) -> None:
        self._stall.stop()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stall.stop()
        super().connection_lost(exc)


class BrowserConnection(GivenUpWhenStalled, HttpToolsProtocol):
    """An HTTP connection that is given up with a browser that stalls."""


class BrowserWebSocket(GivenUpWhenStalled, WebSocketsSansIOProtocol):
    """A WebSocket that is given up with a browser that stalls, or answers no ping (RFC 6455, 5.5.2) in time."""

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()
