"""Sockets of the kernel's TCP as this project uses them: they never wait, send at once, and leave no TIME_WAIT."""

from __future__ import annotations

import errno
import socket
import struct

from testbed.base.program_errors import TrafficError

_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


def open_socket(congestion_control: str | None, tos: int, what: str) -> socket.socket:
    """Open a socket in the network namespace that this process is in; `what` is what it is for, in errors.

    Raises `TrafficError` where the kernel does not have the congestion control, or refuses the socket.
    """
    item = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        item.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        item.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        item.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        item.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        if congestion_control is not None:
            item.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion_control.encode())
    except OSError as error:
        item.close()
        if error.errno in (errno.ENOENT, errno.EPERM):
            raise TrafficError(
                f"this kernel lets nobody use the congestion control {congestion_control or ''!r}; `testbed doctor`"
                " lists what it has, and the lab VM's has dctcp and bbr"
            ) from error
        raise TrafficError(f"{what}: {error.strerror or error}") from error
    return item


def has_congestion_control(name: str) -> bool:
    """Tell whether this kernel has a congestion control; one that is a module is loaded by asking as root."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as item:
        try:
            item.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        except OSError as error:
            return error.errno == errno.EPERM
    return True


def fit_accepted(item: socket.socket) -> None:
    """Give a connection that was accepted what it does not inherit from its listener. Raises `OSError`."""
    item.setblocking(False)
    item.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
    item.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
