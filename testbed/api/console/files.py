"""The files that a page may see and change: those below the directories that the console was started with.

A path from a browser is opened with openat2(2) and RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS: the kernel itself follows
neither `..` out of the directory nor any link, also where somebody changes the tree meanwhile.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from testbed.api.console.answers import RefusedRequest, not_found
from testbed.base.cleanup import closed_at_end
from testbed.base.errors import TestbedError
from testbed.base.linux.syscalls import open_beneath

MOST_BYTES = 1 << 20
"""The largest text that is shown or taken."""
MOST_LISTED = 2_000
MOST_DEPTH = 4
_TEXTS = (".yml", ".yaml")


class ChangedMeanwhile(RefusedRequest):
    """A file that is not as the page has read it."""

    def __init__(self, path: str) -> None:
        super().__init__(409, f"{path} was changed meanwhile", hint="load it anew, and change it again", code="changed")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """A file below a start directory. `modified` is seconds since the epoch."""

    path: str
    name: str
    modified: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TextFile:
    """The text of a file; `etag` is a digest of it."""

    path: str
    text: str
    etag: str


class StartDirectories:
    """The directories that the console was started with. Paths of pages begin with the name of one of them; others are
    those that somebody types who thinks of the first."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots: dict[str, Path] = {}
        for root in roots:
            whole = root.resolve()
            name = whole.name or "root"
            while name in self._roots and self._roots[name] != whole:
                name += "_"
            self._roots[name] = whole

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the directories, in the order in which they were given."""
        return tuple(self._roots)

    @property
    def roots(self) -> tuple[Path, ...]:
        """The directories themselves."""
        return tuple(self._roots.values())

    def path(self, text: str) -> Path:
        """Return the file or directory that a page means.

        Raises `RefusedRequest` for one that is not below, is reached by a link, or is not there.
        """
        with _descriptor(*self._split(text), os.O_PATH) as (_, path):
            return path

    def shown(self, path: Path) -> str | None:
        """Return what pages call a file; None where it is not below a start directory."""
        whole = path.absolute()
        for name, root in self._roots.items():
            if whole.is_relative_to(root):
                return str(PurePosixPath(name, *whole.relative_to(root).parts))
        return None

    def read(self, text: str) -> TextFile:
        """Return the text of a topology or a scenario. Raises `RefusedRequest`, for other files, too: a console may be
        started in a directory that has more than those."""
        if PurePosixPath(text).suffix not in _TEXTS:
            raise not_found(f"{text} is no {' or '.join(_TEXTS)} file")
        with _descriptor(*self._split(text), os.O_RDONLY) as (descriptor, _):
            content = _content(descriptor, text)
        try:
            return TextFile(path=text, text=content.decode(), etag=_etag(content))
        except UnicodeDecodeError as error:
            raise RefusedRequest(400, f"{text} is no text") from error

    def write(self, text: str, content: str, etag: str) -> str:
        """Replace a topology or scenario that the page has read with `etag`, or make a new one where that is "".

        Returns the new tag. Raises `RefusedRequest`, and `ChangedMeanwhile`.
        """
        root, parts = self._split(text)
        if not parts or PurePosixPath(parts[-1]).suffix not in _TEXTS:
            raise RefusedRequest(400, f"{text}: only {' and '.join(_TEXTS)} files are written here")
        encoded = content.encode()
        if len(encoded) > MOST_BYTES:
            raise RefusedRequest(413, f"the text is larger than {MOST_BYTES >> 20} MiB")
        with _descriptor(root, parts[:-1], os.O_RDONLY | os.O_DIRECTORY) as (directory, _):
            owner = self._check_unchanged(directory, parts[-1], text, etag)
            name = f".{parts[-1]}.{os.getpid()}"
            file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=directory)
            try:
                with os.fdopen(file, "wb") as stream:
                    _give(file, owner or os.fstat(directory), is_file=owner is not None)
                    stream.write(encoded)
                os.rename(name, parts[-1], src_dir_fd=directory, dst_dir_fd=directory)
            except BaseException:
                with suppress(OSError):
                    os.unlink(name, dir_fd=directory)
                raise
        return _etag(encoded)

    @staticmethod
    def _check_unchanged(directory: int, name: str, text: str, etag: str) -> os.stat_result | None:
        """Return whose the file is, and None where there is none."""
        try:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
        except FileNotFoundError as error:
            if etag:
                raise ChangedMeanwhile(text) from error
            return None
        except OSError as error:
            raise not_found(f"there is no file {text}") from error
        with closed_at_end(file):
            if not etag or _etag(_content(file, text)) != etag:
                raise ChangedMeanwhile(text)
            return os.fstat(file)

    def listed(self, suffixes: Sequence[str] = _TEXTS) -> list[ListedFile]:
        """Return the files of some suffixes below the start directories; links are not followed.

        Those that lie higher come first: what is deep below is less often what somebody looks for, such as test data.
        """
        found: list[ListedFile] = []
        for name, root in self._roots.items():
            for path, modified in _walk(root, MOST_DEPTH):
                if path.suffix in suffixes and len(found) < MOST_LISTED:
                    shown = str(PurePosixPath(name, *path.relative_to(root).parts))
                    found.append(ListedFile(path=shown, name=path.name, modified=modified))
        return sorted(found, key=lambda item: (item.path.count("/"), item.path))

    def _split(self, text: str) -> tuple[Path, tuple[str, ...]]:
        """Return the start directory that a path begins with, else the first of them, and the rest of the path.

        Raises `RefusedRequest`.
        """
        path = PurePosixPath(text)
        if "\0" in text or path.is_absolute() or ".." in path.parts or not path.parts:
            raise not_found(f"there is no file {text!r} below the directories of this console")
        if (root := self._roots.get(path.parts[0])) is not None:
            return root, path.parts[1:]
        if not self._roots:
            raise not_found(f"there is no file {text!r}")
        return self.roots[0], path.parts


class _descriptor:  # noqa: N801  # a context, as open is
    """Open a path beneath a directory for as long as the context lasts. Raises `RefusedRequest`."""

    def __init__(self, root: Path, parts: Sequence[str], flags: int) -> None:
        self._root, self._parts, self._flags = root, parts, flags
        self._descriptor = -1

    def __enter__(self) -> tuple[int, Path]:
        shown = "/".join((self._root.name, *self._parts))
        try:
            with closed_at_end(os.open(self._root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as directory:
                flags = self._flags if self._flags & os.O_PATH else self._flags | os.O_NONBLOCK  # openat2 is strict
                self._descriptor = open_beneath(directory, "/".join(self._parts) or ".", flags)
        except OSError as error:
            if error.errno == errno.ENOSYS:
                raise TestbedError(
                    "no file is opened for a page without openat2(2), which this kernel lacks"
                ) from error
            raise not_found(f"there is no file {shown}") from error
        return self._descriptor, self._root.joinpath(*self._parts)

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def _give(file: int, like: os.stat_result, *, is_file: bool) -> None:
    """Give a file that root has made to whoever had the one before, or has its directory: they edit it with their own
    editor, too."""
    with suppress(OSError):
        os.fchown(file, like.st_uid, like.st_gid)
        if is_file:
            os.fchmod(file, stat.S_IMODE(like.st_mode) & 0o777)


def _content(descriptor: int, shown: str) -> bytes:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise not_found(f"{shown} is no file")
    if status.st_size > MOST_BYTES:
        raise RefusedRequest(413, f"{shown} is larger than {MOST_BYTES >> 20} MiB")
    return os.read(descriptor, MOST_BYTES + 1)


def _etag(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _walk(directory: Path, depth: int) -> Iterator[tuple[Path, float]]:
    try:
        with os.scandir(directory) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in found:
        if entry.name.startswith(".") or entry.is_symlink():
            continue
        if entry.is_dir(follow_symlinks=False):
            if depth > 1:
                yield from _walk(Path(entry.path), depth - 1)
        elif entry.is_file(follow_symlinks=False):
            with suppress(OSError):
                yield Path(entry.path), entry.stat(follow_symlinks=False).st_mtime
