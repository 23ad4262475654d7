"""Writing a file in one step: whoever reads it finds the old content or the new one, never half of either; and where
files are that come with testbed, and those that it makes once.

The content goes into a temporary file beside the place, which is renamed onto it once it is whole (rename(2)). What
is interrupted or fails leaves the old file as it was and nothing beside it; a writer that was killed may leave its
temporary file, which `remains_of` finds.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from pathlib import Path

CHECKOUT = Path(os.path.realpath(__file__)).parents[2]
"""The directory that the package `testbed` is in: of a checkout, its root."""
SHIPPED_FOLDERS = ("topologies", "scenarios")
"""The folders of the files that come with testbed. A scenario names its topology by `../topologies/`, so that they stay
side by side."""
SYSTEM_CACHE = Path("/var/cache/testbed")
_SUFFIX = ".new"
_numbers = itertools.count()


def cache_directory() -> Path:
    """$TESTBED_CACHE_DIR or /var/cache/testbed; for who may not write there, the user's own cache."""
    if given := os.environ.get("TESTBED_CACHE_DIR"):
        return Path(given)
    if os.geteuid() == 0:
        return SYSTEM_CACHE
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "testbed"


def write_atomically(path: Path, content: bytes | str, *, mode: int = 0o666, durable: bool = True) -> None:
    """Replace the file `path` by one with this content (text as UTF-8), or raise an `OSError` that names `path`.

    `mode` is that of the new file, less the umask, as for any file that is created. A `durable` file and its name are
    on the disk when this returns, so that a power cut does not lose them; without it only other processes are sure
    to see all or nothing. Several writers of one path do not disturb each other: the last one's content stays.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{next(_numbers)}{_SUFFIX}")
    try:
        _replace(path, temporary, data, mode, durable)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def _replace(path: Path, temporary: Path, data: bytes, mode: int, durable: bool) -> None:
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            if durable:
                os.fsync(descriptor)
        temporary.replace(path)
    except BaseException:  # a Ctrl-C too
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    if durable:
        _sync_directory(path.parent)


def remains_of(path: Path) -> list[Path]:
    """Temporary files of `path`: those of writers that are at it now, and of those that were killed."""
    prefix = f".{path.name}."
    try:
        beside = sorted(path.parent.iterdir())
    except FileNotFoundError:
        return []
    return [item for item in beside if item.name.startswith(prefix) and item.name.endswith(_SUFFIX)]


def _sync_directory(directory: Path) -> None:
    """Make the rename itself durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_remains(directory: Path) -> None:
    """Remove the temporary files below a directory whose writers were killed; those of writers that live stay."""
    for path in directory.rglob(f".*{_SUFFIX}"):
        writer = re.fullmatch(rf"\..+\.(\d+)-\d+\{_SUFFIX}", path.name)
        if writer is None or not Path("/proc", writer[1]).exists():
            path.unlink(missing_ok=True)
