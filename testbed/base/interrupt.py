"""Ctrl-C as an event instead of an exception at a random line.

While a scenario runs, the first SIGINT or SIGTERM only makes `Interrupt.fileno()` readable, so that
the runner can stop its children and keep what they measured. A second one is handled as it was before, by the command
line for instance, and raises KeyboardInterrupt.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any, Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """A context that catches the signals, in the main thread; elsewhere it only offers `request`."""

    def __init__(self) -> None:
        self.requested = False
        self._reader, self._writer = os.pipe()
        self._previous: dict[signal.Signals, Any] = {}

    def fileno(self) -> int:
        """A descriptor that is readable once an interrupt was requested."""
        return self._reader

    def request(self) -> None:
        if not self.requested:
            self.requested = True
            os.write(self._writer, b"!")

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            if signal.getsignal(number) == self._on_signal:  # else the second one has changed it for good
                signal.signal(number, handler)
        os.close(self._reader)
        os.close(self._writer)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self.requested:
            self.request()
            return
        before = self._previous[signal.Signals(number)]
        if callable(before):  # it may see to it that what is undone now is not interrupted again
            before(number, frame)
        raise KeyboardInterrupt
