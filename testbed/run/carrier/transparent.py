"""Sockets that have addresses of other hosts: listeners that take what is steered to them, and connections in the name
of who opened them. They need CAP_NET_ADMIN. Source: ip(7), IP_TRANSPARENT; ipv6(7); tcp(7)."""

from __future__ import annotations

import errno
import socket
import struct
from ipaddress import IPv4Address, IPv6Address

from testbed.base.cleanup import on_failure
from testbed.run.carrier.frames import Address, ConnectionEnds

_IP_TRANSPARENT, _IPV6_TRANSPARENT = 19, 75
BACKLOG = 4096
LINGER_NOT = struct.pack("ii", 1, 0)


def listen(family: int, buffer_bytes: int) -> socket.socket:
    """A socket that takes connections to any address, once they are led to it. Its port is any. Raises `OSError`."""
    item = _transparent(family, buffer_bytes)
    with on_failure(item.close):
        if family == socket.AF_INET6:
            item.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        item.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", 0))
        item.listen(BACKLOG)
    return item


def connect(ends: ConnectionEnds, buffer_bytes: int) -> socket.socket:
    """A socket that is being connected from the first end to the second. Raises `OSError`."""
    family = socket.AF_INET if ends.source.version == 4 else socket.AF_INET6
    item = _transparent(family, buffer_bytes)
    with on_failure(item.close):
        item.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        item.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        item.bind((str(ends.source), ends.source_port))
        refusal = item.connect_ex((str(ends.destination), ends.destination_port))
        if refusal not in (0, errno.EINPROGRESS):
            raise OSError(refusal, "connect")
    return item


def ends_of(item: socket.socket, family: int) -> ConnectionEnds:
    """The ends of a connection that a listener has taken, as its opener sees them. Raises `OSError`."""
    near, far = item.getpeername(), item.getsockname()
    return ConnectionEnds(_address(near[0], family), near[1], _address(far[0], family), far[1])


def _address(text: str, family: int) -> Address:
    return IPv4Address(text) if family == socket.AF_INET else IPv6Address(text)


def _transparent(family: int, buffer_bytes: int) -> socket.socket:
    """A socket that does not wait, and keeps no more than it must: what waits in it is in no window."""
    item = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    with on_failure(item.close):
        level, option = (
            (socket.IPPROTO_IP, _IP_TRANSPARENT)
            if family == socket.AF_INET
            else (socket.IPPROTO_IPV6, _IPV6_TRANSPARENT)
        )
        item.setsockopt(level, option, 1)
        for size in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            item.setsockopt(socket.SOL_SOCKET, size, buffer_bytes)
    return item


def abort(item: socket.socket) -> None:
    """Close a connection at once: its program is told that it was reset."""
    item.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
    item.close()
