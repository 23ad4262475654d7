"""A feed as server-sent events (HTML Living Standard, 9.2), to one page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.types import Receive, Scope, Send

from testbed.api.console.stream.feed import Feed

QUIET_S = 15.0
"""After so long without a message a comment is sent: who waits for nothing would never hear that the page is gone."""
STALLED_S = 30.0
"""The time that a page may take to read one message; after it, the connection is closed."""
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
_FIRST = b"retry: 1000\n\n"


class FeedAnswer:
    """An answer that goes on until the page or the feed ends. `ended` is called when it has."""

    def __init__(self, feed: Feed, last: str, ended: Callable[[], None]) -> None:
        self._feed = feed
        self._place = feed.place_of(last)
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send (ASGI, HTTP): one message at a time, so that what waits for a slow page is one message."""
        leaving = asyncio.ensure_future(_gone(receive))
        sending = asyncio.ensure_future(self._send(send))
        self._feed.listeners += 1
        try:
            await asyncio.wait((leaving, sending), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        except (TimeoutError, OSError):
            pass
        finally:
            self._feed.listeners -= 1
            leaving.cancel()
            sending.cancel()
            await asyncio.gather(leaving, sending, return_exceptions=True)
            self._ended()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
        await _write(send, _FIRST)
        while True:
            for sent in self._feed.after(self._place):
                await _write(send, sent.content)
                self._place = sent.number
            if self._feed.closed:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                return
            if not await self._feed.wait(self._place, QUIET_S):
                await _write(send, b": quiet\n\n")


async def _write(send: Send, content: bytes) -> None:
    message = {"type": "http.response.body", "body": content, "more_body": True}
    async with asyncio.timeout(STALLED_S):  # wait_for of Python 3.11 may lose a cancellation
        await send(message)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
