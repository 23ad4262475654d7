"""The removal of what a pause agent leaves in its run directory once it has gone."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from testbed.base.cleanup import closed_at_end
from testbed.daemons.portd.attachment import DIRECTORY_NAME
from testbed.daemons.portd.companion import LOG_NAME, SOCKET_NAME


def remove(run_directory: Path) -> None:
    """Remove socket, log and directory of labs; the latter only if no lab is in it."""
    for name in (SOCKET_NAME, LOG_NAME):
        (run_directory / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        (run_directory / DIRECTORY_NAME).rmdir()


def remove_unwanted(run_directory: Path) -> None:
    """Do as `remove` for an agent that nobody waited for, and remove the run directory if that was all there was.

    Where a command holds the run directory, it is about to start an agent or to end one: what is there is its own.
    """
    with (
        contextlib.suppress(OSError),
        closed_at_end(os.open(run_directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as descriptor,
    ):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove(run_directory)
        run_directory.rmdir()
