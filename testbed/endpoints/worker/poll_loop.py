"""A loop that waits by rsocket's poll, for streams over RDMA, which epoll does not know.

It has as much of `testbed.endpoints.loop.Loop` as a worker with streams needs.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable
from typing import Protocol

from testbed.endpoints.timer import Timer
from testbed.endpoints.worker.streams import rsocket

_TIMER_BYTES = 8
"""timerfd_create(2): how often it has fired."""


class WatchingLoop(Protocol):
    """The part of a loop that a transport's sockets, and the worker's command line, need."""

    def watch(self, fd: int, callback: Callable[[int], None], events: int = select.EPOLLIN) -> None: ...

    def modify(self, fd: int, events: int) -> None: ...

    def unwatch(self, fd: int) -> None: ...

    def run_once(self, until: int | None = 0) -> bool: ...

    def close(self) -> None: ...


class PollLoop:
    """Waits by rsocket's poll. Events have the values of epoll(7), which are those of poll(2)."""

    def __init__(self) -> None:
        self._timer = Timer()
        self._callbacks: dict[int, Callable[[int], None]] = {}
        self._events: dict[int, int] = {self._timer.fd: select.POLLIN}

    def watch(self, fd: int, callback: Callable[[int], None], events: int = select.EPOLLIN) -> None:
        """Call `callback` with the events of `fd` whenever one of `events` (or an error) is there."""
        self._callbacks[fd] = callback
        self._events[fd] = events

    def modify(self, fd: int, events: int) -> None:
        """Watch `fd` for other events."""
        self._events[fd] = events

    def unwatch(self, fd: int) -> None:
        """Watch `fd` no longer. It is to be called before `fd` is closed."""
        del self._callbacks[fd]
        del self._events[fd]

    def run_once(self, until: int | None = 0) -> bool:
        """Wait for events, at most until `until` (ns of CLOCK_MONOTONIC; 0: not at all; None: as long as it takes), and
        handle them. Whether there were any."""
        timeout_ms = 0 if until is not None and until <= time.monotonic_ns() else -1
        if until is not None and timeout_ms:
            self._timer.wake_by(until)
        found = rsocket.poll(self._events, timeout_ms)
        for fd, events in found:
            if fd == self._timer.fd:
                with contextlib.suppress(BlockingIOError):
                    os.read(fd, _TIMER_BYTES)  # poll is level-triggered
                self._timer.fired()
            elif (callback := self._callbacks.get(fd)) is not None:
                callback(events)
        return bool(found)

    def close(self) -> None:
        self._timer.close()
