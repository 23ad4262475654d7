"""The network namespace in which this process opens sockets. A socket stays in the one that it was opened in
(network_namespaces(7)), so that one process can own the endpoints of many hosts.

It is that of the calling thread; a process that moves between namespaces has one thread.
"""

from __future__ import annotations

import ctypes
import os

_CLONE_NEWNET = 0x4000_0000
_libc = ctypes.CDLL(None, use_errno=True)
_entered = -1
"""The descriptor of the namespace that this process is in; -1 where it never left its own."""


def entered() -> int:
    """Return the descriptor of the namespace that this process is in; -1 for the one that it was started in."""
    return _entered


def enter(fd: int) -> None:
    """Open sockets in this namespace from now on; -1, the one that a process is started in, changes nothing.

    Raises `OSError` where this process may not (CAP_SYS_ADMIN), or `fd` is no namespace.
    """
    global _entered  # noqa: PLW0603 - it mirrors what the kernel keeps for the thread
    if fd in (-1, _entered):
        return
    if _libc.setns(fd, _CLONE_NEWNET):
        reason = ctypes.get_errno()
        raise OSError(reason, os.strerror(reason), "setns")
    _entered = fd


def forget(fd: int) -> None:
    """Close the descriptor of a namespace. Its number may soon be that of another one."""
    global _entered  # noqa: PLW0603
    if fd == _entered:
        _entered = -2
    os.close(fd)
