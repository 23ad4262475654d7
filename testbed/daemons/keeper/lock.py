"""The lock that tells whether a lab's keeper runs: it holds it as long as it lives."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

_NAME = "lock"


def hold(directory: Path) -> bool:
    """Hold the lock until this process ends; False where another one does."""
    descriptor = os.open(directory / _NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    return True


def is_held(directory: Path) -> bool:
    """Tell whether some process holds the lock."""
    try:
        descriptor = os.open(directory / _NAME, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
