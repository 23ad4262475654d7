"""The cache of what takes long to make: a directory for each, under the hash of its inputs, whole or not there.

An entry is made beside its place and renamed into it, so that what was interrupted is never taken for whole. Its
manifest has the size and the SHA-256 of each file, which are compared before it is used: sizes always, hashes once
in a boot or when a file's time has changed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from testbed.base.cleanup import closed_at_end, on_failure
from testbed.base.files import cache_directory, write_atomically
from testbed.lab.core.deploy.records.files import locked
from testbed.vm.errors import ImageError

MANIFEST = "manifest.json"
_CHECKED = ".checked"


def cached(
    kind: str, fingerprint: str, make: Callable[[Path], dict[str, Any]], *, rebuild: bool = False
) -> tuple[Path, bool]:
    """The entry `kind`-`fingerprint`, made by `make(directory)` if it is not there or is damaged; whether it was made.

    `make` returns what the manifest is to say beside the files. Entries of the same kind with other inputs go.
    """
    parent = cache_directory() / kind
    entry, unfinished = parent / fingerprint, parent / f"{fingerprint}.unfinished"
    parent.parent.mkdir(parents=True, exist_ok=True)
    with locked(parent.with_name(f"{kind}.lock"), wait=True):
        if not rebuild and entry.exists() and not damage(entry):
            return entry, False
        for old in parent.iterdir() if parent.exists() else ():
            remove_tree(old)
        unfinished.mkdir(parents=True)
        with on_failure(remove_tree, unfinished), room_on(parent):
            facts = make(unfinished)
            _write_manifest(unfinished, facts)
        unfinished.rename(entry)
        return entry, True


def remove_tree(directory: Path) -> None:
    """Remove a directory of ours. Never goes through a mount: what is behind one is not ours, it may be all of /dev."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    if inside := [mount for mount in mounts if mount.startswith(f"{directory.resolve()}/")]:
        raise ImageError(f"something is mounted in {directory}: {', '.join(inside)}", hint="umount it first")
    if directory.exists():
        shutil.rmtree(directory)


@contextlib.contextmanager
def scratch(kind: str) -> Iterator[Path]:
    """A directory on the cache's disk while the context lasts. Those that somebody who was killed left behind go."""
    parent = cache_directory()
    parent.mkdir(parents=True, exist_ok=True)
    for old in parent.glob(f"scratch-{kind}-*"):
        with contextlib.suppress(OSError), _held(old):
            remove_tree(old)
    directory = Path(tempfile.mkdtemp(dir=parent, prefix=f"scratch-{kind}-"))
    try:
        with _held(directory):
            yield directory
    finally:
        remove_tree(directory)


@contextlib.contextmanager
def _held(directory: Path) -> Iterator[None]:
    """Hold a lock on a directory. Raises `BlockingIOError` if somebody else does."""
    with closed_at_end(os.open(directory, os.O_RDONLY | os.O_DIRECTORY)) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


def whole(kind: str, fingerprint: str) -> Path | None:
    """The entry if it is there and not damaged. Raises `ImageError` saying what is wrong with one that is damaged."""
    entry = cache_directory() / kind / fingerprint
    if not entry.exists():
        return None
    if why := damage(entry):
        raise ImageError(f"the cached {kind} is damaged: {why}", hint="testbed vm build makes it anew")
    return entry


def damage(entry: Path) -> str:
    """Return what is wrong with an entry, "" if nothing is."""
    try:
        files: dict[str, dict[str, Any]] = json.loads((entry / MANIFEST).read_text())["files"]
        state = {name: _state(entry / name) for name in files}
    except (OSError, ValueError, KeyError) as error:
        return f"{entry}: {error}"
    for name, facts in files.items():
        if state[name][0] != facts["bytes"]:
            return f"{entry / name} has {state[name][0]} bytes instead of {facts['bytes']}"
    seen = json.dumps([_boot(), state])
    with contextlib.suppress(OSError):
        if (entry / _CHECKED).read_text() == seen:
            return ""
    for name, facts in files.items():
        if _hash(entry / name) != facts["sha256"]:
            return f"{entry / name} is not what was built"
    with contextlib.suppress(OSError):  # who may not write checks again
        write_atomically(entry / _CHECKED, seen, durable=False)
    return ""


def manifest(entry: Path) -> dict[str, Any]:
    """Return what `make` said of an entry."""
    facts: dict[str, Any] = json.loads((entry / MANIFEST).read_text())
    return facts


@contextlib.contextmanager
def room_on(path: Path) -> Iterator[None]:
    """Raise `ImageError` where the disk of `path`, on which the context writes, turns out to be full."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise disk_full(path) from error
        raise


def disk_full(path: Path) -> ImageError:
    elsewhere = ", or set TESTBED_CACHE_DIR to another disk" if path.is_relative_to(cache_directory()) else ""
    return ImageError(f"no space left on the disk of {path}", hint=f"make room{elsewhere}")


def _write_manifest(directory: Path, facts: dict[str, Any]) -> None:
    files = {
        str(path.relative_to(directory)): {"bytes": path.stat().st_size, "sha256": _hash(path)}
        for parent, _, names in os.walk(directory)
        for path in (Path(parent, name) for name in sorted(names))
        if path.is_file() and not path.is_symlink()
    }
    (directory / MANIFEST).write_text(json.dumps({**facts, "files": files}, indent=2) + "\n")


def _state(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns, status.st_ino]


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _hash(path: Path) -> str:
    """SHA-256 of a file. Holes of a sparse file are zeros that need not be read."""
    digest, zeros = hashlib.sha256(), bytes(1 << 20)
    with path.open("rb") as file:
        end, at = path.stat().st_size, 0
        while at < end:
            try:
                data = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                data = end
            while at < data:
                size = min(len(zeros), data - at)
                digest.update(zeros[:size])
                at += size
            if at == end:
                break
            hole = os.lseek(file.fileno(), at, os.SEEK_HOLE)
            file.seek(at)
            while at < hole:
                chunk = file.read(min(1 << 20, hole - at))
                if not chunk:
                    return ""
                digest.update(chunk)
                at += len(chunk)
    return digest.hexdigest()
