"""When SIGINT and SIGTERM may take effect: what makes or removes a part of a lab is not left half done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def signals_later() -> Iterator[None]:
    """Let signals take effect when the context ends.

    A pool that is interrupted while it starts a thread does not know the thread, and would not wait for its end; a
    file that is made right before an interruption would have nobody to remove it.
    """
    received: list[int] = []
    with _handling(lambda number, _frame: received.append(number)):
        yield
    if received:
        signal.raise_signal(received[0])


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back while an undo runs: a second Ctrl-C must not leave half of a lab."""
    with _handling(signal.SIG_IGN):
        yield


@contextmanager
def interrupted_once() -> Iterator[None]:
    """Let SIGINT or SIGTERM interrupt what is done here once; those that follow are held back until it has been undone.

    Between an error and the `uninterrupted` of its undo a second signal would leave what was made.
    """
    previous: dict[int, Callable[[int, FrameType | None], object]] = {}

    def interrupt(number: int, frame: FrameType | None) -> None:
        for each in previous:
            signal.signal(each, signal.SIG_IGN)
        previous[number](number, frame)

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            before = signal.getsignal(number)
            if callable(before):
                previous[number] = before
                signal.signal(number, interrupt)
    try:
        yield
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)


@contextmanager
def _handling(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> Iterator[None]:
    """Handle SIGINT and SIGTERM so; in another thread than the main one they do not reach us anyway."""
    previous: dict[signal.Signals, Callable[..., object] | int | None] = {}
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            previous[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)
