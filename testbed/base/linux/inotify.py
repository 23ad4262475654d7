"""Waiting for files to appear or grow: inotify(7), which Python does not wrap."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from testbed.base.descriptors import wait_readable

IN_MODIFY, IN_CREATE, IN_MOVED_TO = 0x2, 0x100, 0x80
IN_Q_OVERFLOW = 0x4000
IN_CLOEXEC, IN_NONBLOCK = 0o2000000, 0o4000

_libc = ctypes.CDLL(None, use_errno=True)
_EVENT = struct.Struct("=iIII")


class DirectoryWatch:
    """Events of files in some directories."""

    overflowed: bool
    """The kernel had no room for events, so some were not told; whoever reads this sets it back."""

    def __init__(self) -> None:
        self.overflowed = False
        self._fd = _libc.inotify_init1(IN_CLOEXEC | IN_NONBLOCK)
        if self._fd < 0:
            error = ctypes.get_errno()
            raise OSError(error, f"inotify_init1: {os.strerror(error)}")
        self._directories: dict[int, Path] = {}

    def fileno(self) -> int:
        return int(self._fd)

    def add(self, directory: Path, mask: int = IN_CREATE | IN_MOVED_TO) -> None:
        watch = _libc.inotify_add_watch(self._fd, str(directory).encode(), mask)
        if watch < 0:
            error = ctypes.get_errno()
            raise OSError(error, f"inotify_add_watch: {os.strerror(error)}", str(directory))
        self._directories[watch] = directory

    def read(self) -> Iterator[tuple[Path, str]]:
        """(directory, file name) of the events that are there now; the name is "" once the directory itself is gone."""
        try:
            data = os.read(self._fd, 65536)
        except BlockingIOError:
            return
        offset = 0
        while offset < len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, offset)
            self.overflowed |= bool(mask & IN_Q_OVERFLOW)
            offset += _EVENT.size
            name = data[offset : offset + length].rstrip(b"\0").decode()
            offset += length
            if watch in self._directories:
                yield self._directories[watch], name

    def wait(self, timeout_s: float) -> bool:
        """Tell whether an event came within `timeout_s`."""
        return wait_readable(self._fd, timeout_s)

    def close(self) -> None:
        os.close(self._fd)
