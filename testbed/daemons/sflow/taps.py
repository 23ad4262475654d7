"""Sampling of a port without queues of the data path, by a packet socket whose filter drops all but a few (packet(7)).

The kernel runs the filter before it copies anything: a packet that is not sampled costs a few instructions. Nothing
tells there which port a packet came in by, nor how deep a queue was.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress

from testbed.base.cleanup import on_failure
from testbed.base.datapath.abi import SAMPLE_BYTES

_ETH_P_ALL = 0x0003
_SO_ATTACH_FILTER = 26
_SOL_PACKET, _PACKET_AUXDATA = 263, 8
_AUXDATA = struct.Struct("=IIIHHHH")
_OUTGOING = 4  # PACKET_OUTGOING
_LD_ABS, _JEQ, _JGT, _RET = 0x20, 0x15, 0x25, 0x06
_PACKET_TYPE, _RANDOM = (-0x1000 + offset & 0xFFFF_FFFF for offset in (4, 56))
"""Words that a filter may load beside the packet (SKF_AD_PKTTYPE and SKF_AD_RANDOM of linux/filter.h)."""
_MOST_AT_ONCE = 64


class _Program(ctypes.Structure):
    """struct sock_fprog of linux/filter.h."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def sampling_filter(sampling: int) -> bytes:
    """The filter's instructions (struct sock_filter): what the port sends, one packet in `sampling`."""
    below = min((1 << 32) // sampling, (1 << 32) - 1)
    return b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (_LD_ABS, 0, 0, _PACKET_TYPE),
            (_JEQ, 0, 2, _OUTGOING),
            (_LD_ABS, 0, 0, _RANDOM),
            (_JGT, 0, 1, below),
            (_RET, 0, 0, 0),
            (_RET, 0, 0, SAMPLE_BYTES),
        )
    )


class PortTap:
    """The samples of one port. Made by a thread inside of its namespace. Raises `OSError`."""

    def __init__(self, interface: str, sampling: int) -> None:
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, 0)
        with on_failure(self._socket.close):
            code = sampling_filter(sampling)
            buffer = ctypes.create_string_buffer(code, len(code))
            program = _Program(len(code) // 8, ctypes.cast(buffer, ctypes.c_void_p))
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, bytes(program))
            self._socket.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
            self._socket.bind((interface, _ETH_P_ALL))

    def take(self) -> Iterator[tuple[bytes, int]]:
        """Yield the first bytes and the length of each frame that was sampled since."""
        for _ in range(_MOST_AT_ONCE):
            try:
                header, ancillary, _, _ = self._socket.recvmsg(SAMPLE_BYTES, 64)
            except OSError:  # nothing there; or the port is down, which is no reason to end
                return
            lengths = [_AUXDATA.unpack_from(data)[1] for _, kind, data in ancillary if kind == _PACKET_AUXDATA]
            yield header, lengths[0] if lengths else len(header)

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()
