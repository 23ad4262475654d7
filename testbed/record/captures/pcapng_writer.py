"""Writing captures as pcapng: packets of several ports in one file, each named after the port that it was seen at.

Source: draft-ietf-opsawg-pcapng, sections 4.1 (section header), 4.2 (interface description, with if_name and
if_tsresol) and 4.3 (enhanced packet). Blocks are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import BinaryIO

from testbed.protocols.captured.content import CapturedFrame

_SECTION, _INTERFACE, _PACKET = 0x0A0D0D0A, 1, 6
_BYTE_ORDER = 0x1A2B3C4D
_UNKNOWN_LENGTH = 0xFFFF_FFFF_FFFF_FFFF
_NAME, _RESOLUTION = 2, 9
_NANOSECONDS = 9
"""if_tsresol: ticks are 10^-9 s."""
_ETHERNET = 1


class PcapngWriter:
    """Writes frames to a stream. Its interfaces are the ports, in their order; their link type is `link_type`."""

    def __init__(self, stream: BinaryIO, ports: Sequence[str], link_type: int = _ETHERNET) -> None:
        self._stream = stream
        header = struct.pack("<IHHQ", _BYTE_ORDER, 1, 0, _UNKNOWN_LENGTH)
        stream.write(_block(_SECTION, header))
        for port in ports:
            options = _option(_NAME, port.encode()) + _option(_RESOLUTION, bytes([_NANOSECONDS])) + _option(0, b"")
            stream.write(_block(_INTERFACE, struct.pack("<HHI", link_type, 0, 0) + options))

    def write(self, port: int, frame: CapturedFrame) -> int:
        """Write a frame that was seen at the port of this number; returns the bytes that it takes of the file."""
        time_ns = frame.time_ns or 0
        head = struct.pack("<IIIII", port, time_ns >> 32, time_ns & 0xFFFF_FFFF, len(frame.data), frame.length)
        block = _block(_PACKET, head + _padded(frame.data))
        self._stream.write(block)
        return len(block)


def _block(kind: int, body: bytes) -> bytes:
    length = len(body) + 12
    return struct.pack("<II", kind, length) + body + struct.pack("<I", length)


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("<HH", code, len(value)) + _padded(value)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
