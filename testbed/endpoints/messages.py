"""Messages of a UDP or raw socket, received by Python's socket module: a system call for each.

Raw sockets are read so, and UDP sockets where the compiled mover is missing, which takes many for one call.
Source: cmsg(3), udp(7), ip(7), ipv6(7).
"""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Iterable
from typing import Final

from testbed.base.linux.socket_options import SOL_UDP, UDP_GRO
from testbed.protocols.datagram import Incoming

ECN_MASK: Final = 3
CE: Final = 3
"""ECN codepoint "congestion experienced" (RFC 3168)."""
_LONGEST_BYTES: Final = 1 << 16
"""The longest datagram, and the longest run of datagrams that UDP_GRO hands over as one."""
_CONTROL_BYTES: Final = 64
_TOS: Final = ((socket.IPPROTO_IP, socket.IP_TOS), (socket.IPPROTO_IPV6, socket.IPV6_TCLASS))


Message = tuple[memoryview, str, int, int, int]
"""A message of one call: data, remote address and port, TOS or traffic class, and the bytes of one datagram where
UDP_GRO joined several; the last two are 0 where the socket does not tell them."""


def read_control(control: Iterable[tuple[int, int, bytes]]) -> tuple[int, int]:
    """Return TOS or traffic class, and the bytes of a segment, of received control messages; 0 for what is missing."""
    tos = segment = 0
    for level, kind, data in control:
        value = int.from_bytes(data, sys.byteorder)
        if (level, kind) == (SOL_UDP, UDP_GRO):
            segment = value
        elif (level, kind) in _TOS:
            tos = value & 0xFF
    return tos, segment


def receive_messages(item: socket.socket, limit: int) -> tuple[list[Message], int]:
    """Receive up to `limit` messages without waiting. The errno tells why there are no more; 0: all went well."""
    found: list[Message] = []
    while len(found) < limit:
        try:
            data, control, _, name = item.recvmsg(_LONGEST_BYTES, _CONTROL_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            break
        except OSError as error:
            return found, error.errno or errno.EIO
        tos, segment = read_control(control)
        found.append((memoryview(data), str(name[0]), int(name[1]), tos, segment))
    return found, 0


def receive(item: socket.socket, limit: int) -> tuple[list[Incoming], list[int], int, int, int, int]:
    """Do as `mover.receive`, for the socket itself; nobody knows when the datagrams arrived."""
    messages, error = receive_messages(item, limit)
    found: list[Incoming] = []
    unanswerable = size = 0
    for data, remote, port, tos, segment in messages:
        if not port:
            unanswerable += 1
            continue
        size += len(data)
        step = segment or max(len(data), 1)
        for start in range(0, max(len(data), 1), step):
            found.append(Incoming(remote, port, data[start : start + step], tos & ECN_MASK == CE))
    return found, [], len(messages), size, unanswerable, error
