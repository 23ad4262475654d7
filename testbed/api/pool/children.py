"""The children of a station and of its seats: forked, ended with their parent, and reaped."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

PARCELS, WORKERS = "parcels", "workers"
"""The directories of a station, below that in which it is started."""
_PR_SET_PDEATHSIG = 1


def die_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when its parent ends (prctl(2)); end now where it has ended."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def as_child(do: Callable[[], object], *, dies_with: int | None = None) -> None:
    """Do it as a child, and end: interrupts are for the station, which ends its children. `dies_with` is the station
    where it is not to outlive that.
    """
    code = 1
    try:
        if dies_with is not None:
            die_with(dies_with)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        descriptor = os.open(os.devnull, os.O_RDONLY)
        os.dup2(descriptor, 0)
        do()
        code = 0
    except BaseException as error:  # it must not go on as the station
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        sys.stderr.flush()
        os._exit(code)


def reaped() -> Iterator[int]:
    """Yield the numbers of the children that have ended."""
    with suppress(ChildProcessError):
        while True:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            yield pid
