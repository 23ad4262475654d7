"""A feed as server-sent events: slow and idle pages cost bounded memory, and end."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from testbed.api.console.stream import events
from testbed.api.console.stream.events import FeedAnswer
from testbed.api.console.stream.feed import Feed

PAGES = 200


class Page:
    """A page that reads as long as `reading` is set."""

    def __init__(self, feed: Feed, last: str = "") -> None:
        self.reading = asyncio.Event()
        self.reading.set()
        self.leaving = asyncio.Event()
        self.chunks: list[bytes] = []
        self.waiting = 0
        self.ended = 0
        self._stream = FeedAnswer(feed, last, self._end)
        self.task = asyncio.ensure_future(self._stream({}, self._receive, self._send))

    def _end(self) -> None:
        self.ended += 1

    async def _receive(self) -> dict[str, Any]:
        await self.leaving.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.waiting = max(self.waiting, len(message.get("body", b"")))
        await self.reading.wait()
        self.chunks.append(message.get("body", b""))

    @property
    def text(self) -> str:
        return b"".join(self.chunks).decode()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await story()

    asyncio.run(bounded())


def test_a_page_gets_a_snapshot_then_messages_and_then_the_end() -> None:
    async def story() -> None:
        feed = Feed(lambda: b'"now"')
        page = Page(feed)
        await until(lambda: "snapshot" in page.text)
        assert feed.listeners == 1
        feed.publish("tick", b"1")
        await until(lambda: "event: tick" in page.text)
        feed.close()
        await page.task
        assert (page.ended, feed.listeners) == (1, 0)

    run(story)


def test_a_page_that_leaves_ends_its_stream() -> None:
    async def story() -> None:
        feed = Feed(lambda: b"0")
        page = Page(feed)
        await until(lambda: feed.listeners == 1)
        page.leaving.set()
        await page.task
        assert (page.ended, feed.listeners) == (1, 0)

    run(story)


def test_pages_that_do_not_read_hold_one_message_each_and_get_a_snapshot_once_they_do() -> None:
    async def story() -> None:
        feed = Feed(lambda: b'"everything"')
        pages = [Page(feed) for _ in range(PAGES)]
        await until(lambda: all("everything" in page.text for page in pages))
        for page in pages:
            page.reading.clear()
        for number in range(5_000):
            feed.publish("tick", b"%d" % number)
            await asyncio.sleep(0)
        message = len(b"id: 000000000000-5000\nevent: tick\ndata: 5000\n\n")
        assert all(page.waiting <= max(message, 100) for page in pages)
        assert feed.kept_bytes <= 256 * message
        chunks = len(pages[0].chunks)
        for page in pages:
            page.reading.set()
        await until(lambda: all(page.text.count("everything") == 2 for page in pages))
        assert len(pages[0].chunks) <= chunks + 3  # not the 5,000 that it missed
        feed.close()
        await asyncio.gather(*(page.task for page in pages))

    run(story)


def test_a_page_that_never_reads_again_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "STALLED_S", 0.01)

    async def story() -> None:
        feed = Feed(lambda: b"0")
        page = Page(feed)
        await until(lambda: "snapshot" in page.text)
        page.reading.clear()
        feed.publish("tick", b"1")
        await page.task
        assert (page.ended, feed.listeners) == (1, 0)

    run(story)


def test_silence_is_filled_with_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "QUIET_S", 0.01)

    async def story() -> None:
        feed = Feed(lambda: b"0")
        page = Page(feed)
        await until(lambda: ": quiet" in page.text)
        feed.close()
        await page.task

    run(story)
