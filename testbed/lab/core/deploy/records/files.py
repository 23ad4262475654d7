"""Files of the state directory, which several commands share: locked while one of them changes what they say."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from testbed.base.cleanup import closed_at_end
from testbed.base.files import write_atomically
from testbed.lab.core.deploy.records.journal import writing_state

LAB_SCHEMA = 1
"""The schema of `lab.json`. It changes only when the meaning of a field does: new fields get defaults, and fields that
are unknown are ignored."""


@contextlib.contextmanager
def locked(path: Path, *, wait: bool) -> Iterator[None]:
    """An flock(2) on `path` that survives the file's removal by another holder.

    Who comes second waits, or gets `BlockingIOError`.
    """
    while True:
        with closed_at_end(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)) as fd:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            try:
                same = path.stat().st_ino == os.fstat(fd).st_ino
            except FileNotFoundError:
                same = False
            if same:
                yield
                return


def write_state(path: Path, content: str, *, durable: bool = True) -> None:
    """Replace a file of the state directory, as `write_atomically` does. Raises `StateError`."""
    with writing_state(path):
        write_atomically(path, content, durable=durable)
