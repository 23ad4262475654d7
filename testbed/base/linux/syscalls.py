"""The Linux system calls that Python 3.11 does not wrap: setns, unshare, mount, umount2, openat2.

Each raises `OSError` with the call's errno. `unshare` and `setns` act on the calling *thread* alone
(namespaces(7)), which is what lets one process work inside hundreds of namespaces without a
process each.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from testbed.base.cleanup import closed_at_end

CLONE_NEWNET = 0x40000000
CLONE_NEWNS = 0x00020000
CLONE_FS = 0x00000200
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
MS_BIND = 4096
MS_REC = 16384
MS_SHARED = 1 << 20
MS_SLAVE = 1 << 19
MS_PRIVATE = 1 << 18
MNT_DETACH = 2
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
"""Numbers of system calls that have no function in older C libraries; they are the same on every architecture."""
_FS_CLOEXEC = 1
_FSCONFIG_CMD_CREATE = 6

_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 0x02, 0x04, 0x08
_OPEN_HOW = struct.Struct("=QQQ")
"""struct open_how: flags, mode, resolve."""
_libc = ctypes.CDLL(None, use_errno=True)
_T = TypeVar("_T")


def _check(result: int, call: str, path: str | None = None) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{call}: {os.strerror(error)}", path)


def unshare(flags: int) -> None:
    """unshare(2) for the calling thread."""
    _check(_libc.unshare(flags), "unshare")


def setns(fd: int, flags: int) -> None:
    """setns(2) for the calling thread."""
    _check(_libc.setns(fd, flags), "setns")


def mount(source: str, target: str, filesystem: str | None, flags: int, data: str | None = None) -> None:
    """mount(2)."""
    kind, options = (None if text is None else text.encode() for text in (filesystem, data))
    _check(_libc.mount(source.encode(), target.encode(), kind, flags, options), "mount", target)


def umount(target: str, flags: int = MNT_DETACH) -> None:
    """umount2(2)."""
    _check(_libc.umount2(target.encode(), flags), "umount2", target)


def unmount_all(target: str) -> None:
    """Unmount all that is mounted on `target`, one over the other. Nothing mounted there, or no such path, is fine."""
    try:
        while True:
            umount(target)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOENT):
            raise


def detached_mount(filesystem: str) -> int:
    """Mount a file system nowhere, and return a descriptor of its root: fsopen(2), fsconfig(2), fsmount(2), Linux 5.2.

    Raises `OSError`.
    """
    context = _libc.syscall(_FSOPEN, filesystem.encode(), _FS_CLOEXEC)
    _check(min(context, 0), "fsopen", filesystem)
    with closed_at_end(context):
        _check(_libc.syscall(_FSCONFIG, context, _FSCONFIG_CMD_CREATE, None, None, 0), "fsconfig", filesystem)
        root: int = _libc.syscall(_FSMOUNT, context, _FS_CLOEXEC, 0)
        _check(min(root, 0), "fsmount", filesystem)
    return root


def open_beneath(directory: int, path: str, flags: int) -> int:
    """Open a path below a directory, and return the descriptor: neither `..` nor a link leads out of it, whoever
    changes the tree meanwhile (openat2(2)). Raises `OSError`."""
    how = _OPEN_HOW.pack(flags | os.O_CLOEXEC, 0, _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS)
    found: int = _libc.syscall(_OPENAT2, directory, os.fsencode(path), how, len(how))
    _check(min(found, 0), "openat2", path)
    return found


def in_thread(function: Callable[[], _T]) -> _T:
    """Run `function` in a thread of its own, so that it may change namespaces, and hand back its result.

    The thread ends with the call: no other code ever runs in a namespace it did not choose. An interrupt
    waits until the thread has ended, so that whoever undoes its work undoes all of it.
    """
    outcome: list[_T] = []
    failure: list[BaseException] = []
    gate = threading.Lock()
    begun = threading.Event()
    finished = threading.Event()
    abandoned = threading.Event()

    def run() -> None:
        with gate:
            if abandoned.is_set():
                return
            begun.set()
        try:
            outcome.append(function())
        except BaseException as error:  # handed to the caller, whatever it is
            failure.append(error)
        finally:
            finished.set()

    thread = threading.Thread(target=run, name="namespace", daemon=True)
    try:
        thread.start()
        thread.join()
    except BaseException:
        with gate:
            abandoned.set()
        while begun.is_set() and not finished.is_set():
            with suppress(KeyboardInterrupt):
                finished.wait()
        raise
    if failure:
        raise failure[0]
    return outcome[0]
