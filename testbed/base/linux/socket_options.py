"""Options of sockets that Python has no names for, set in the way that this package needs. Source: socket(7), ip(7),
ipv6(7), udp(7)."""

from __future__ import annotations

import ctypes
import errno
import socket
import struct
from contextlib import suppress

SO_ATTACH_FILTER = 26
SO_RCVBUFFORCE = 33
SO_TIMESTAMPNS = 35
SO_MEMINFO = 55
_MEMINFO = struct.Struct("=9I")
_MEMINFO_DROPS = 8
IP_MTU_DISCOVER = 10
IPV6_MTU_DISCOVER = 23
PMTUDISC_PROBE = 3
"""Never fragment, and believe the interface's MTU rather than what routers (or forgers) report."""
SOL_UDP = socket.IPPROTO_UDP
UDP_NO_CHECK6_RX = 102
UDP_SEGMENT = 103
UDP_GRO = 104
_REJECT_ALL = struct.pack("=HBBI", 0x06, 0, 0, 0)


def open_socket(address: str, kind: int, protocol: int = socket.IPPROTO_UDP) -> socket.socket:
    """A socket for UDP that does not wait, of `address`'s family, not bound yet."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, protocol)


def attach_filter(item: socket.socket, program: bytes) -> None:
    """Let `item` receive only what `program`, in classic BPF, passes."""
    code = ctypes.create_string_buffer(program, len(program))
    item.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("@HP", len(program) // 8, ctypes.addressof(code)))


def receive_nothing(item: socket.socket) -> None:
    attach_filter(item, _REJECT_ALL)


def set_receive_buffer(item: socket.socket, size: int) -> None:
    """Ask for a receive buffer: as many bytes as asked for with CAP_NET_ADMIN, else as many as net.core.rmem_max
    allows."""
    try:
        item.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, size)
    except PermissionError:
        item.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)


def receive_tos(item: socket.socket) -> None:
    """Have the TOS byte or traffic class of each packet received with it."""
    if item.family == socket.AF_INET6:
        item.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
    else:
        item.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)


def set_tos(item: socket.socket, tos: int) -> None:
    if item.family == socket.AF_INET6:
        item.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, tos)
    else:
        item.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)


def never_fragment(item: socket.socket) -> None:
    if item.family == socket.AF_INET6:
        item.setsockopt(socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, PMTUDISC_PROBE)
    else:
        item.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, PMTUDISC_PROBE)


def receive_without_checksum(item: socket.socket) -> None:
    """Let an IPv6 socket receive datagrams whose UDP checksum is 0 (RFC 6935; Linux 3.16)."""
    item.setsockopt(SOL_UDP, UDP_NO_CHECK6_RX, 1)


def enable_gro(item: socket.socket) -> bool:
    """Tell whether the kernel hands runs of datagrams over as one (Linux 5.0)."""
    return _set_udp(item, UDP_GRO, 1)


def has_gso(item: socket.socket) -> bool:
    """Tell whether the kernel cuts one message into datagrams (Linux 4.18)."""
    return _set_udp(item, UDP_SEGMENT, 0)


def _set_udp(item: socket.socket, option: int, value: int) -> bool:
    try:
        item.setsockopt(SOL_UDP, option, value)
    except OSError as error:
        if error.errno not in (errno.ENOPROTOOPT, errno.EINVAL):
            raise
        return False
    return True


def dropped_datagrams(item: socket.socket) -> int:
    """Return what the kernel has dropped because the receive buffer was full (SO_MEMINFO); 0 where it cannot tell."""
    with suppress(OSError):
        data = item.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, _MEMINFO.size)
        if len(data) == _MEMINFO.size:
            return int(_MEMINFO.unpack(data)[_MEMINFO_DROPS])
    return 0
