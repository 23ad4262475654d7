"""The loop that waits by rsocket's poll, with the kernel's in its place: both know ordinary descriptors alike."""

import os
import select
import time
from collections.abc import Iterator, Mapping

import pytest

from testbed.base.program_errors import TrafficError
from testbed.endpoints.worker.poll_loop import PollLoop
from testbed.endpoints.worker.streams import rsocket


def kernel_poll(events: Mapping[int, int], timeout_ms: int) -> list[tuple[int, int]]:
    poller = select.poll()
    for fd, mask in events.items():
        poller.register(fd, mask)
    return poller.poll(None if timeout_ms < 0 else timeout_ms)


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[PollLoop]:
    monkeypatch.setattr(rsocket, "poll", kernel_poll)
    found = PollLoop()
    yield found
    found.close()


def test_it_calls_what_is_watched_until_it_is_not(loop: PollLoop) -> None:
    reader, writer = os.pipe()
    seen: list[int] = []
    loop.watch(reader, seen.append)
    assert not loop.run_once()
    os.write(writer, b"x")
    assert loop.run_once() and loop.run_once()
    assert seen == [select.POLLIN] * 2, "level-triggered"
    loop.modify(reader, 0)
    assert not loop.run_once()
    loop.modify(reader, select.POLLIN)
    loop.unwatch(reader)
    assert not loop.run_once()
    os.close(reader)
    os.close(writer)


def test_a_callback_may_stop_watching_another(loop: PollLoop) -> None:
    pipes = [os.pipe(), os.pipe()]
    called: list[int] = []

    def only(mine: int, other: int) -> None:
        called.append(mine)
        loop.unwatch(other)

    (a, _), (b, _) = pipes
    loop.watch(a, lambda _: only(a, b))
    loop.watch(b, lambda _: only(b, a))
    for _, writer in pipes:
        os.write(writer, b"x")
    loop.run_once()
    assert len(called) == 1
    for ends in pipes:
        for fd in ends:
            os.close(fd)


def test_it_wakes_at_a_deadline_once(loop: PollLoop) -> None:
    deadline = time.monotonic_ns() + 2_000_000
    assert loop.run_once(deadline), "the timer"
    assert time.monotonic_ns() >= deadline
    assert not loop.run_once(deadline), "the timer has been read"


def test_without_the_library_traffic_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rsocket, "_LIBRARY", "libthatisnot.so.1")
    rsocket._library.cache_clear()
    try:
        with pytest.raises(TrafficError, match="no sockets over RDMA here"):
            rsocket.RSocket()
    finally:
        rsocket._library.cache_clear()
