"""Many pages in one browser, which has six connections to a server: each can ask, and streams are shared out."""

from typing import Any

import pytest
from waiting import until

from .conftest import LAB

pytestmark = [pytest.mark.browser, pytest.mark.netns, pytest.mark.frr, pytest.mark.process, pytest.mark.timeout(600)]
PAGES, STREAMS = 7, 5
PATIENCE_MS = 60_000
LIVE = "() => consoleApp.live.get().connected && consoleApp.live.get().shown !== null"


def test_a_page_more_than_a_browser_has_connections_waits_for_a_stream_alone(served: Any) -> None:
    pages = [served.context.new_page() for _ in range(PAGES)]
    try:
        for page in pages:
            page.set_default_timeout(PATIENCE_MS)
            page.goto(f"{served.address}#/labs/{LAB}/table")
            page.locator(".rows tbody tr").first.wait_for()  # which it has asked for
        for page in pages[:STREAMS]:
            page.wait_for_function(LIVE)
        for page in pages[STREAMS:]:
            page.get_by_text("Nothing moves on this page yet").wait_for()
        pages.pop(0).close()
        waiting = pages[STREAMS - 1 :]
        assert len(waiting) == PAGES - STREAMS
        crowded = "() => consoleApp.live.get().crowded"
        until(lambda: not all(page.evaluate(crowded) for page in waiting), "one of them has the place")
    finally:
        for page in pages:
            page.close()


def test_without_places_for_streams_a_page_gets_no_answer(served: Any) -> None:
    """What happens without the guard: a stream on each connection, and none for anything else."""
    pages = [served.context.new_page() for _ in range(PAGES)]
    try:
        for page in pages:
            page.set_default_timeout(PATIENCE_MS)
            page.add_init_script("Object.defineProperty(Navigator.prototype, 'locks', {get: () => undefined});")
        for page in pages[:-1]:
            page.goto(f"{served.address}#/labs/{LAB}/table", wait_until="commit", timeout=PATIENCE_MS)
            page.wait_for_function("() => globalThis.consoleApp?.stream.source?.readyState === EventSource.OPEN")
        asked = """() => Promise.race([fetch('/api/console').then(() => true),
          new Promise(done => setTimeout(() => done(false), 5000))])"""
        assert pages[0].evaluate(asked) is False
    finally:
        for page in pages:
            page.close()
