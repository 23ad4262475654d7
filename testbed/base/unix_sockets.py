"""Sockets in a directory, however long its path is: sockaddr_un has room for 108 bytes (unix(7))."""

from __future__ import annotations

import os
import socket


def socket_path(directory_fd: int, name: str) -> str:
    """A socket in an open directory, by a path that always fits."""
    return f"/proc/self/fd/{directory_fd}/{name}"


def connect_in(item: socket.socket, directory: str | os.PathLike[str], name: str) -> None:
    """Connect to the socket `name` in a directory. Raises `OSError`."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        item.connect(socket_path(descriptor, name))
    finally:
        os.close(descriptor)
