"""Unix sockets: those in a directory however long its path is, for which sockaddr_un has 108 bytes, and who connects to
them (unix(7))."""

from __future__ import annotations

import os
import socket
import struct

from testbed.base.cleanup import closed_at_end, on_failure

_CREDENTIALS = struct.Struct("=iII")
"""struct ucred."""


def socket_path(directory_fd: int, name: str) -> str:
    """A socket in an open directory, by a path that always fits."""
    return f"/proc/self/fd/{directory_fd}/{name}"


def open_connection(
    directory: str | os.PathLike[str], name: str, kind: int = socket.SOCK_STREAM, timeout_s: float | None = None
) -> socket.socket:
    """Return a connection to the socket `name` in a directory. Raises `OSError`."""
    item = socket.socket(socket.AF_UNIX, kind | socket.SOCK_CLOEXEC)
    with on_failure(item.close):
        item.settimeout(timeout_s)
        connect_in(item, directory, name)
    return item


def connect_in(item: socket.socket, directory: str | os.PathLike[str], name: str) -> None:
    """Connect to the socket `name` in a directory. Raises `OSError`."""
    with closed_at_end(os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)) as descriptor:
        item.connect(socket_path(descriptor, name))


def peer_of(item: socket.socket) -> tuple[int, int]:
    """Return the process id and the user id of who has connected, as they were then (SO_PEERCRED). Raises `OSError`."""
    pid, uid, _ = _CREDENTIALS.unpack(item.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid
