"""Waiting for one file descriptor. `select` refuses numbers from 1024 on, which a process with a large lab has."""

from __future__ import annotations

import select
from typing import Protocol


class HasDescriptor(Protocol):
    """Something with a file descriptor: a file, a socket, a pipe."""

    def fileno(self) -> int:
        """The number of its descriptor."""


def wait_readable(item: HasDescriptor | int, timeout_s: float | None = None) -> bool:
    """Wait until `item` has something to read, or its other end is gone; tell whether that came within `timeout_s`.

    None waits for as long as it takes.
    """
    return _wait(item, select.POLLIN, timeout_s)


def wait_writable(item: HasDescriptor | int, timeout_s: float | None = None) -> bool:
    """Wait until `item` takes something, or fails; tell whether that came within `timeout_s`."""
    return _wait(item, select.POLLOUT, timeout_s)


def _wait(item: HasDescriptor | int, event: int, timeout_s: float | None) -> bool:
    poll = select.poll()
    poll.register(item, event)
    return bool(poll.poll(None if timeout_s is None else max(0.0, timeout_s * 1e3)))
