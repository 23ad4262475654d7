"""Sockets of the kernel's TCP as this project uses them: they never wait, send at once, and leave no TIME_WAIT."""

from __future__ import annotations

import errno
import select
import socket
import struct
import time
from typing import Protocol

from testbed.base.program_errors import TrafficError
from testbed.endpoints import namespace
from testbed.endpoints.timer import Timer
from testbed.endpoints.worker.stack_sockets import StackPoll, StackSocket, StackTimer

TcpSocket = socket.socket | StackSocket
"""A socket of the kernel's TCP, or of our own; none of its calls waits."""
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


class SocketSource(Protocol):
    """Opens the sockets of a host's program."""

    @property
    def in_real_time(self) -> bool:
        """Tell whether what is late here is late in the network, too."""

    def open(self, congestion_control: str | None, tos: int, what: str) -> TcpSocket:
        """Open a socket; `what` is what it is for, in errors. Raises `TrafficError`."""

    def enter(self) -> None:
        """Have what the kernel opens by itself opened where these sockets are."""

    def now(self) -> int:
        """Return the time of the clock that they live by (ns)."""

    def poll(self) -> select.epoll | StackPoll:
        """Return what tells which of several sockets are ready."""

    def timer(self) -> Timer | StackTimer:
        """Return what becomes readable at a time of the clock."""


class KernelSockets:
    """Opens sockets in the network namespace that this process was in when this was made."""

    in_real_time = True

    def __init__(self) -> None:
        self._namespace = namespace.entered()

    def open(self, congestion_control: str | None, tos: int, what: str) -> socket.socket:
        self.enter()  # connections follow one another, between turns for other hosts
        return open_socket(congestion_control, tos, what)

    def enter(self) -> None:
        namespace.enter(self._namespace)

    def now(self) -> int:
        return time.monotonic_ns()

    def poll(self) -> select.epoll:
        return select.epoll()

    def timer(self) -> Timer:
        return Timer()


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


def fit_accepted(item: TcpSocket) -> None:
    """Give a connection that was accepted what it does not inherit from its listener. Raises `OSError`."""
    item.setblocking(False)
    item.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
    item.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
