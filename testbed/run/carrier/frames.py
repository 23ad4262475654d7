"""The frames that two carriers exchange, each of which is one message of their transport: a header of 16 bytes, and a
body that the kind of frame says.

| bytes | field |
|---|---|
| 0 | version, 1 |
| 1 | kind |
| 2 | 1 from the end that opened the connection, 0 from the other |
| 3 | 0 |
| 4 to 7 | number of the connection, which its opener chose |
| 8 to 15 | value |

The value of DATA is its sequence number, that of FIN how many frames of DATA there are, that of CREDIT what has been
taken since the beginning, and that of REFUSED and RESET an errno; of all others it is 0. OPEN has the receive window of
its sender, a word for the transport, and both ends of the connection; OPENED the first two. DATA has 1 byte or more.
Numbers are in network byte order; addresses have 16 bytes, those of IPv4 mapped into IPv6 (RFC 4291, section 2.5.5.2).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

VERSION = 1
_HEADER = struct.Struct("!BBBBIQ")
HEADER_BYTES = _HEADER.size
_WINDOW = struct.Struct("!IQ")
_ENDS = struct.Struct("!16sH16sH")
NUMBER_LIMIT = 1 << 32
LEAST_WINDOW_BYTES = 1 << 12
MOST_WINDOW_BYTES = 1 << 28
LARGEST_ERRNO = 4095
"""MAX_ERRNO of linux/err.h."""
Address = IPv4Address | IPv6Address


class FrameError(ValueError):
    """Bytes that are no frame; its text says why."""


class FrameKind(IntEnum):
    OPEN = 1
    """Connect to the program that listens at the second end."""
    OPENED = 2
    REFUSED = 3
    """Nobody listens there, or it is out of reach."""
    DATA = 4
    CREDIT = 5
    """The program has taken data: as much may follow."""
    FIN = 6
    """No more data comes in this direction."""
    RESET = 7
    """The connection has ended at once, in both directions."""


class ConnectionEnds(NamedTuple):
    """The addresses and ports of a connection: first of who opened it, then of who listens."""

    source: Address
    source_port: int
    destination: Address
    destination_port: int

    def __str__(self) -> str:
        return f"{_text(self.source, self.source_port)} -> {_text(self.destination, self.destination_port)}"


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame. What its kind does not have is 0, None or empty."""

    kind: FrameKind
    from_opener: bool
    number: int
    value: int = 0
    data: bytes = b""
    window: int = 0
    """The bytes that the sender of OPEN or OPENED takes ahead of its program."""
    word: int = 0
    """64 bits that the transport of its sender tells the other's."""
    ends: ConnectionEnds | None = None


def encode(frame: Frame) -> bytes:
    """Return the bytes of a frame."""
    header = _HEADER.pack(VERSION, frame.kind, frame.from_opener, 0, frame.number, frame.value)
    if frame.kind is FrameKind.DATA:
        return header + frame.data
    if frame.kind is FrameKind.OPENED:
        return header + _WINDOW.pack(frame.window, frame.word)
    if frame.kind is not FrameKind.OPEN:
        return header
    ends = frame.ends
    assert ends is not None
    return (
        header
        + _WINDOW.pack(frame.window, frame.word)
        + _ENDS.pack(mapped(ends.source), ends.source_port, mapped(ends.destination), ends.destination_port)
    )


def write_data_header(room: bytearray, *, from_opener: bool, number: int, sequence: int) -> None:
    """Write the header of a frame of DATA in front of data that is in `room` from `HEADER_BYTES` on."""
    _HEADER.pack_into(room, 0, VERSION, FrameKind.DATA, from_opener, 0, number, sequence)


def decode(message: bytes | memoryview) -> Frame:
    """Return the frame of a message; its data are copied. Raises `FrameError` for anything that `encode` never made."""
    if len(message) < HEADER_BYTES:
        raise FrameError(f"{len(message)} bytes are no header")
    version, code, sender, zero, number, value = _HEADER.unpack_from(message)
    if version != VERSION:
        raise FrameError(f"version {version}")
    if sender > 1 or zero:
        raise FrameError("a reserved bit is set")
    try:
        kind = FrameKind(code)
    except ValueError:
        raise FrameError(f"kind {code}") from None
    from_opener, size = bool(sender), len(message) - HEADER_BYTES
    if kind is FrameKind.DATA:
        if not size:
            raise FrameError("DATA without data")
        return Frame(kind, from_opener, number, value, bytes(message[HEADER_BYTES:]))
    if kind in (FrameKind.OPEN, FrameKind.OPENED):
        return _decode_opening(message, kind, from_opener, number, value)
    if size:
        raise FrameError(f"{kind.name} with {size} bytes behind it")
    if kind in (FrameKind.REFUSED, FrameKind.RESET) and value > LARGEST_ERRNO:
        raise FrameError(f"errno {value}")
    if kind is FrameKind.REFUSED and from_opener:
        raise FrameError("who opens refuses nothing")
    return Frame(kind, from_opener, number, value)


def _decode_opening(message: bytes | memoryview, kind: FrameKind, from_opener: bool, number: int, value: int) -> Frame:
    is_open = kind is FrameKind.OPEN
    if len(message) != HEADER_BYTES + _WINDOW.size + (_ENDS.size if is_open else 0):
        raise FrameError(f"{kind.name} with {len(message) - HEADER_BYTES} bytes behind it")
    if value or from_opener is not is_open:
        raise FrameError(f"{kind.name} with a value, or from the wrong end")
    window, word = _WINDOW.unpack_from(message, HEADER_BYTES)
    if not LEAST_WINDOW_BYTES <= window <= MOST_WINDOW_BYTES:
        raise FrameError(f"a window of {window} bytes")
    ends = _decode_ends(message) if is_open else None
    return Frame(kind, from_opener, number, 0, b"", window, word, ends)


def _decode_ends(message: bytes | memoryview) -> ConnectionEnds:
    packed, source_port, packed_too, destination_port = _ENDS.unpack_from(message, HEADER_BYTES + _WINDOW.size)
    source, destination = _address(packed), _address(packed_too)
    if source.version != destination.version:
        raise FrameError("an end of IPv4, and one of IPv6")
    if not source_port or not destination_port:
        raise FrameError("port 0")
    for address in (source, destination):
        if address.is_unspecified or address.is_multicast or address.is_loopback or address.is_link_local:
            raise FrameError(f"{address} is no address of a NIC")
    return ConnectionEnds(source, source_port, destination, destination_port)


def mapped(address: Address) -> bytes:
    """Return the 16 bytes of an address."""
    return address.packed if address.version == 6 else bytes(10) + b"\xff\xff" + address.packed


def _address(packed: bytes) -> Address:
    address = IPv6Address(packed)
    return address.ipv4_mapped or address


def _text(address: Address, port: int) -> str:
    return f"{address}:{port}" if address.version == 4 else f"[{address}]:{port}"
