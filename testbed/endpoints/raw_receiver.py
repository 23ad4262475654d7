"""A raw socket that takes packets with their headers, as many of them as a filter in the kernel (classic BPF) passes.

It sees what a UDP socket does not: packets that are shorter than they claim, and the IPv4 header. It needs CAP_NET_RAW.
Source: raw(7); Linux, Documentation/networking/filter.rst.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

from testbed.base.cleanup import on_failure
from testbed.base.linux.socket_options import (
    attach_filter,
    dropped_datagrams,
    open_socket,
    receive_tos,
    set_receive_buffer,
)
from testbed.endpoints.messages import Message, receive_messages

_MOST_PACKETS = 64
_STALE_READS = 256

# Instructions of classic BPF: A and X are its registers, M its scratch memory.
LOAD_HALF_AT_X = 0x48  # A = halfword at [X + k]
LOAD_LENGTH = 0x80  # A = length of the packet
LOAD_X_IP_HEADER = 0xB1  # X = 4 * (byte at [k] & 15)
LOAD_X = 0x01  # X = k
LOAD_A_MEMORY = 0x60
STORE_A = 0x02
A_TO_X = 0x07
SUBTRACT_X = 0x1C
JUMP_EQUAL = 0x15
JUMP_GREATER_X = 0x2D
RETURN = 0x06
WHOLE_PACKET = 0xFFFF_FFFF


def assemble(instructions: Sequence[tuple[int, int, int, int]]) -> bytes:
    """The program of these instructions: code, how many to skip if true and if false, and k (struct sock_filter)."""
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)


class RawReceiver:
    """A raw socket for UDP packets to one IP address. Opening it raises `PermissionError` without CAP_NET_RAW.

    An IPv4 packet begins with its IP header, an IPv6 packet behind it.
    """

    def __init__(self, address: str, program: bytes, receive_buffer_bytes: int) -> None:
        self.ipv6 = ":" in address
        self._socket = open_socket(address, socket.SOCK_RAW)
        with on_failure(self._socket.close):
            attach_filter(self._socket, program)
            set_receive_buffer(self._socket, receive_buffer_bytes)
            if self.ipv6:
                receive_tos(self._socket)
            self._socket.bind((address, 0))
        for _ in range(_STALE_READS):  # what came in before filter and address were set is not for us
            if not self.read():
                break

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def overflows(self) -> int:
        """Packets that the kernel dropped because this process did not receive them in time."""
        return dropped_datagrams(self._socket)

    def read(self) -> list[Message]:
        """Receive some packets."""
        return receive_messages(self._socket, _MOST_PACKETS)[0]

    def close(self) -> None:
        self._socket.close()
