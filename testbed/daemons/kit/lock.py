"""A lock on a file or directory, which whoever serves there holds as long as it lives (flock(2))."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def hold(path: Path, *, create: bool = False) -> int | None:
    """Hold the lock of a directory or file until the descriptor that comes back is closed, or this process ends.

    None where another one does. `create` makes the file where it is not there. Raises `OSError`.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def is_held(path: Path) -> bool:
    """Tell whether some process holds it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
