"""Which signals a command obeys: none after its outcome, and no Ctrl-C while a command in a node has our terminal. And
how it ends."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn


def stand_by_the_outcome() -> None:
    """Ignore SIGINT and SIGTERM from here to the end of the process.

    What was asked for is done. A signal now could only make the exit status say that it was not: Python puts
    SIGINT back to the default action before it ends, and would die of it.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def terminal_handed_over() -> Iterator[None]:
    """Leave Ctrl-C to the command in the node: we ignore it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def nobody_reads() -> int:
    """Have what is still to be printed go nowhere, since whoever read it is gone; returns the exit code of a shell for
    what SIGPIPE has ended."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 128 + signal.SIGPIPE


def code_of(status: int) -> int:
    """Return the exit code of a shell for a program that `subprocess` says ended so: 128 + n for signal n."""
    return status if status >= 0 else 128 - status


def leave(ended: SystemExit) -> NoReturn:
    """End the process with the exit code that it asked for, without taking every module of it apart first, which takes
    a fifth of a short command. Threads that are at work are waited for, and what is registered for the end is done."""
    if not isinstance(ended.code, int):
        raise ended
    threading._shutdown()  # type: ignore[attr-defined]  # as Python begins its own end
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(BrokenPipeError):
            stream.flush()
    os._exit(ended.code)
