"""Segments of TCP on the wire (RFC 9293, section 3.1), with the options that Linux has: MSS, window scale, SACK
permitted and SACK blocks (RFC 2018), and timestamps (RFC 7323).

The checksum is 0: whoever carries segments sees to it, as a NIC does.
"""

from __future__ import annotations

import struct
from typing import Final

from testbed.protocols.errors import DecodeError, truncated

FIN: Final = 0x01
SYN: Final = 0x02
RST: Final = 0x04
PSH: Final = 0x08
ACK: Final = 0x10
ECE: Final = 0x40
CWR: Final = 0x80

HEADER_BYTES: Final = 20
TIMESTAMP_BYTES: Final = 12
"""Timestamps with their padding, which every segment of a connection has."""
MOST_SACK_BLOCKS: Final = 3
"""The most that fit beside timestamps (RFC 2018, section 3)."""
MOST_WINDOW_SCALE: Final = 14
WORD: Final = 1 << 32

_END: Final = 0
_NOTHING: Final = 1
_MSS: Final = 2
_WINDOW_SCALE: Final = 3
_SACK_PERMITTED: Final = 4
_SACK: Final = 5
_TIMESTAMPS: Final = 8
_HEADER: Final = struct.Struct("!HHIIBBHHH")
_STAMPS: Final = struct.Struct("!BBBBII")
_PAIR: Final = struct.Struct("!II")


class TcpSegment:
    """One segment. Sequence numbers and timestamps are those of the wire, of 32 bits; 0 or -1 where an option is not
    there."""

    def __init__(
        self,
        source_port: int,
        destination_port: int,
        sequence: int,
        ack: int,
        flags: int,
        window: int,
        payload: bytes = b"",
    ) -> None:
        self.source_port = source_port
        self.destination_port = destination_port
        self.sequence = sequence
        self.ack = ack
        self.flags = flags
        self.window = window
        """As it stands in the header, before it is scaled."""
        self.payload = payload
        self.mss = 0
        self.window_scale = -1
        self.sack_permitted = False
        self.has_timestamps = False
        self.tsval = 0
        self.tsecr = 0
        self.sack: tuple[tuple[int, int], ...] = ()
        """Blocks that have arrived: the first number of each, and that behind its last one."""

    def __repr__(self) -> str:
        names = ((SYN, "SYN"), (FIN, "FIN"), (RST, "RST"), (PSH, "PSH"), (ACK, "ACK"), (ECE, "ECE"), (CWR, "CWR"))
        words = "|".join(name for bit, name in names if self.flags & bit) or "0"
        ends = f"{self.source_port}->{self.destination_port}"
        return f"<{ends} {words} seq {self.sequence} ack {self.ack} win {self.window}, {len(self.payload)} bytes>"


def encode_header(segment: TcpSegment) -> bytes:
    """Return the header of a segment with its options; its payload follows it."""
    options = b""
    if segment.mss:
        options += struct.pack("!BBH", _MSS, 4, segment.mss)
    if segment.sack_permitted:
        options += bytes((_NOTHING, _NOTHING, _SACK_PERMITTED, 2))
    if segment.has_timestamps:
        options += _STAMPS.pack(_NOTHING, _NOTHING, _TIMESTAMPS, 10, segment.tsval, segment.tsecr)
    if segment.window_scale >= 0:
        options += bytes((_NOTHING, _WINDOW_SCALE, 3, segment.window_scale))
    if segment.sack:
        options += bytes((_NOTHING, _NOTHING, _SACK, 2 + 8 * len(segment.sack)))
        for first, end in segment.sack:
            options += _PAIR.pack(first, end)
    return (
        _HEADER.pack(
            segment.source_port,
            segment.destination_port,
            segment.sequence,
            segment.ack,
            (HEADER_BYTES + len(options)) << 2,
            segment.flags,
            segment.window,
            0,
            0,
        )
        + options
    )


def decode_segment(data: bytes | memoryview) -> TcpSegment:
    """Read a segment. Raises `DecodeError` for what is none, and nothing else, whatever the bytes.

    Options that are not known are passed over (RFC 9293, section 3.2); so is one of a length that it cannot have.
    """
    length = len(data)
    if length < HEADER_BYTES:
        raise truncated("a TCP header", HEADER_BYTES, length)
    source, destination, sequence, ack, offset, flags, window, _, _ = _HEADER.unpack_from(data)
    header_bytes = offset >> 4 << 2
    if not HEADER_BYTES <= header_bytes <= length:
        raise DecodeError(12, f"a header of {header_bytes} bytes in a segment of {length}")
    segment = TcpSegment(source, destination, sequence, ack, flags, window, bytes(data[header_bytes:]))
    if header_bytes > HEADER_BYTES:
        _read_options(segment, bytes(data[HEADER_BYTES:header_bytes]))
    return segment


def _read_options(segment: TcpSegment, options: bytes) -> None:
    place, end = 0, len(options)
    while place < end:
        kind = options[place]
        if kind == _END:
            return
        if kind == _NOTHING:
            place += 1
            continue
        if place + 1 >= end:
            raise DecodeError(HEADER_BYTES + place, f"option {kind} has no length")
        size = options[place + 1]
        if size < 2 or place + size > end:
            raise DecodeError(HEADER_BYTES + place + 1, f"option {kind} is said to have {size} bytes")
        _read_option(segment, kind, options[place + 2 : place + size])
        place += size


def _read_option(segment: TcpSegment, kind: int, value: bytes) -> None:
    length = len(value)
    if kind == _TIMESTAMPS and length == 8:
        segment.has_timestamps = True
        segment.tsval, segment.tsecr = _PAIR.unpack(value)
    elif kind == _SACK and length and not length % 8:
        segment.sack = tuple((first, end) for first, end in _PAIR.iter_unpack(value))
    elif kind == _MSS and length == 2:
        segment.mss = int.from_bytes(value, "big")
    elif kind == _WINDOW_SCALE and length == 1:
        segment.window_scale = min(value[0], MOST_WINDOW_SCALE)
    elif kind == _SACK_PERMITTED and not length:
        segment.sack_permitted = True


def unwrap(number: int, near: int) -> int:
    """Return the number of 64 bits whose lower 32 bits are `number` and that is nearest to `near`."""
    return near + ((number - near + (WORD >> 1)) & (WORD - 1)) - (WORD >> 1)
