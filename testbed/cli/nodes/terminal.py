"""Who Ctrl-C is for while a command runs in a node with our terminal."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def terminal_handed_over() -> Iterator[None]:
    """Leave Ctrl-C to the command in the node: we ignore it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
