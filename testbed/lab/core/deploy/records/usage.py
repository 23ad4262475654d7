"""Who works with a lab right now, by the locks (flock(2)) that they hold and that end with them, however they end.

A run holds the lab that it measures on for as long as it needs it; several may. What changes the lab holds it alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from testbed.base.cleanup import closed_at_end
from testbed.base.errors import TestbedError
from testbed.lab.core.deploy.records.journal import writing_state

FILE_NAME = "in-use"
"""In a lab's state directory: empty, and locked by those who use the lab."""
_LONGEST = 80
"""Characters of a command line that an error shows."""


class LabInUse(TestbedError):
    """A lab that others need as it is, or that is being changed right now."""


@contextlib.contextmanager
def using(directory: Path, lab: str) -> Iterator[None]:
    """Need a lab as it is: no change of it begins meanwhile. `directory` is its state directory.

    Raises `LabInUse` where a change is under way, `StateError` where the lab is gone.
    """
    with _held(directory, lab, fcntl.LOCK_SH, f"the lab {lab} is being changed"):
        yield


@contextlib.contextmanager
def unused(directory: Path, lab: str) -> Iterator[None]:
    """Change a lab, which nobody may need as it is meanwhile. Raises `LabInUse` with who does."""
    with _held(directory, lab, fcntl.LOCK_EX, f"the lab {lab} is in use and cannot be changed"):
        yield


@contextlib.contextmanager
def _held(directory: Path, lab: str, how: int, refusal: str) -> Iterator[None]:
    path = directory / FILE_NAME
    with writing_state(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with closed_at_end(descriptor):
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LabInUse(f"{refusal}{holders_text(path)}", hint="wait for its end, or end it") from error
        yield


def holders_text(path: Path) -> str:
    """Name those who hold a lock on a file, for the end of a message: ": testbed run x.yml (process 71)"; "" where
    nobody can be told."""
    found = [f"{command_text(pid)} (process {pid})" for pid in holders(path)]
    return f": {', '.join(found)}" if found else ""


def holders(path: Path) -> list[int]:
    """Return the processes that hold a lock on a file, those of them that can be seen from here (proc_locks(5))."""
    try:
        inode = str(path.stat().st_ino)
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        words = line.split()  # "1: FLOCK ADVISORY WRITE 71 fd:01:1234 0 EOF"; who waits has an arrow before the kind
        if len(words) < 6 or words[1] != "FLOCK" or words[5].rpartition(":")[2] != inode:
            continue
        if _has_open(words[4], path):
            found.append(int(words[4]))
    return sorted(set(found))


def _has_open(pid: str, path: Path) -> bool:
    """Tell whether a process has a file open: another file system may have the same number for a file of its own."""
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as descriptors:
        return any(_is(Path(item.path), path) for item in descriptors)
    return False


def _is(descriptor: Path, path: Path) -> bool:
    try:
        return descriptor.samefile(path)
    except OSError:
        return False


def command_text(pid: int) -> str:
    """Return the command line of a process as a person would write it."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except OSError:
        return "a command"
    for place, word in enumerate(words):
        if Path(word).name == "testbed" or word.endswith("testbed/__main__.py"):
            words = ["testbed", *words[place + 1 :]]
            break
    text = " ".join(words)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
