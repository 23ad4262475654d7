"""Frames of a scale-up link in the lab, out of their bytes.

All have an Ethernet header, EtherType 0x88B6 (local experimental 2; two leaves that are one partner of a link group
use it too, with a destination of their own, `OTHER_USERS`) and a frame check sequence of the lab's own at their end,
for a veth has none. It is the CRC-32 of IEEE 802.3, 3.2.9 over all bytes before it. An inverted one says that the
frame is poisoned: a station before this one has found it damaged, and it is passed on so that its last receiver drops
it.

    data       prefix 4, header of the transaction 8 or 16, payload, FCS 4
    CC_Update  prefix 4, count 1, reserved 1, up to ten times {VC 5, reserved 7, S_CC 20}, zeros, FCS 4; 64 bytes in all
    control    four times 8 bytes, each a CtlOS or zeros, lab time in ns 8, reserved 2, FCS 4; 60 bytes in all

The prefix is {0x7, sequence number 20}, as in the preamble of a frame under LLR, and {LLR-eligible 1, `HeaderKind` 2,
VC 5}; without LLR the sequence number is 0. A real port has the CtlOS between its bytes, and the layout of CC_Update
is not public: both are the lab's own. `decode_` raises `DecodeError` and nothing else, whatever the bytes. What is
sent is made in C (`domain.native`), but for the last word of an end (`encode_gone`).
"""

from __future__ import annotations

import enum
import zlib
from typing import Final, NamedTuple

from testbed.protocols.errors import DecodeError, truncated
from testbed.protocols.scale_up.ctlos import (
    CONTROL_CHARACTER,
    CTLOS_BYTES,
    GONE,
    O_CODE,
    Ctlos,
    CtlosType,
    decode_ctlos,
)
from testbed.protocols.scale_up.cyclic import CYCLE_MASK
from testbed.protocols.scale_up.headers import (
    Data,
    Header,
    HeaderKind,
    decode_header,
    header_bytes,
)

ETHERTYPE: Final = 0x88B6
OTHER_USERS: Final = bytes.fromhex("0180c200000e")
"""Destination of frames with the same EtherType that are not of a scale-up link (`testbed.daemons.lag`)."""
ETHERNET_BYTES: Final = 14
PREFIX_BYTES: Final = 4
FCS_BYTES: Final = 4
CONTROL_FRAME_BYTES: Final = 60
CTLOS_SLOTS: Final = 4
CC_UPDATE_BYTES: Final = 64
CC_UPDATE_COUNTS: Final = 10
LEAST_BYTES: Final = ETHERNET_BYTES + PREFIX_BYTES + FCS_BYTES
_PREFIX_NIBBLE: Final = 7
_ELIGIBLE: Final = 0x80
_TIME_AT: Final = ETHERNET_BYTES + CTLOS_SLOTS * CTLOS_BYTES
_COUNTS_AT: Final = ETHERNET_BYTES + PREFIX_BYTES + 2
_TYPE: Final = ETHERTYPE.to_bytes(2, "big")
_ALL_ONES: Final = 0xFFFF_FFFF


class FrameCheck(enum.IntEnum):
    """The verdict of a frame's FCS."""

    GOOD = 0
    POISONED = 1
    BAD = 2


class LinkPrefix(NamedTuple):
    """The four bytes between the Ethernet header and the rest of a data frame or CC_Update."""

    kind: HeaderKind
    vc: int
    """5 bits."""
    sequence: int | None
    """20 bits; None: not eligible for LLR."""


class DataFrame(NamedTuple):
    """A frame with a transaction, or several of one destination and VC."""

    destination: bytes
    """6 bytes."""
    source: bytes
    vc: int
    header: Header
    payload: bytes = b""
    sequence: int | None = None
    """20 bits; None: not eligible for LLR."""
    check: FrameCheck = FrameCheck.GOOD


class CcUpdateFrame(NamedTuple):
    """CC_Update: the credits that the sender has consumed so far."""

    destination: bytes
    source: bytes
    counts: tuple[tuple[int, int], ...]
    """VC, and its counter S_CC of 20 bits; at most ten."""
    sequence: int | None = None
    check: FrameCheck = FrameCheck.GOOD


class ControlFrame(NamedTuple):
    """Control ordered sets in a frame of their own, which passes all others by in the lab."""

    destination: bytes
    source: bytes
    items: tuple[Ctlos, ...]
    """One to four."""
    sent_ns: int
    """When it was sent, in lab time, 64 bits."""
    check: FrameCheck = FrameCheck.GOOD


LinkFrame = DataFrame | CcUpdateFrame
"""A frame that has a prefix, and is numbered under LLR."""
Frame = LinkFrame | ControlFrame


def check_frame(data: Data) -> FrameCheck:
    """Compare the FCS of a frame with its bytes. A frame of less than four bytes is bad."""
    if len(data) < FCS_BYTES:
        return FrameCheck.BAD
    right = zlib.crc32(data[:-FCS_BYTES])
    found = int.from_bytes(data[-FCS_BYTES:], "little")
    if found == right:
        return FrameCheck.GOOD
    return FrameCheck.POISONED if found == right ^ _ALL_ONES else FrameCheck.BAD


def encode_gone(destination: bytes, source: bytes, sent_ns: int) -> bytes:
    """The control frame that says that nobody serves its sender any more (`GONE`)."""
    signal = bytes([CONTROL_CHARACTER, CtlosType.LINK_SIGNAL, 0, 0, O_CODE, GONE.reason, 0, 0])
    sets = signal.ljust(CTLOS_SLOTS * CTLOS_BYTES, b"\0")
    body = destination + source + _TYPE + sets + sent_ns.to_bytes(8, "big") + bytes(2)
    return body + zlib.crc32(body).to_bytes(FCS_BYTES, "little")


def is_control(data: Data) -> bool:
    """Tell whether a frame with the EtherType of scale-up links begins with a CtlOS."""
    return len(data) > ETHERNET_BYTES and data[ETHERNET_BYTES] == CONTROL_CHARACTER


def decode_prefix(data: Data) -> LinkPrefix:
    """The prefix of a data frame or CC_Update, whatever its FCS says. Raises `DecodeError`."""
    if len(data) < LEAST_BYTES:
        raise truncated("a frame of a scale-up link", LEAST_BYTES, len(data))
    if data[12:14] != _TYPE:
        raise DecodeError(12, f"EtherType {data[12]:02x}{data[13]:02x}")
    word = int.from_bytes(data[14:17], "big")
    flags = data[17]
    if word >> 20 != _PREFIX_NIBBLE:
        raise DecodeError(14, f"a frame begins with {word >> 20:#x}, neither a sequence number nor a CtlOS")
    if not flags & _ELIGIBLE and word & CYCLE_MASK:
        raise DecodeError(14, "a sequence number in a frame that is not eligible for LLR")
    kind = HeaderKind(flags >> 5 & 3)
    if kind is HeaderKind.CC_UPDATE and flags & 31:
        raise DecodeError(17, "a CC_Update belongs to no VC")
    return LinkPrefix(kind, flags & 31, word & CYCLE_MASK if flags & _ELIGIBLE else None)


def decode_frame(data: Data) -> Frame:
    """Any frame with the EtherType of scale-up links, with what its FCS says. Raises `DecodeError`."""
    if len(data) < LEAST_BYTES:
        raise truncated("a frame of a scale-up link", LEAST_BYTES, len(data))
    if data[12:14] == _TYPE and is_control(data):
        return _decode_control(data)
    kind, vc, sequence = decode_prefix(data)
    destination, source, check = bytes(data[:6]), bytes(data[6:12]), check_frame(data)
    if kind is HeaderKind.CC_UPDATE:
        return CcUpdateFrame(destination, source, _decode_counts(data), sequence, check)
    at = ETHERNET_BYTES + PREFIX_BYTES
    header = decode_header(kind, data[:-FCS_BYTES], at)
    payload = bytes(data[at + header_bytes(kind) : -FCS_BYTES])
    return DataFrame(destination, source, vc, header, payload, sequence, check)


def _decode_counts(data: Data) -> tuple[tuple[int, int], ...]:
    if len(data) != CC_UPDATE_BYTES:
        raise DecodeError(min(len(data), CC_UPDATE_BYTES), f"a CC_Update has {CC_UPDATE_BYTES} bytes, not {len(data)}")
    count = data[_COUNTS_AT - 2]
    if not 1 <= count <= CC_UPDATE_COUNTS:
        raise DecodeError(_COUNTS_AT - 2, f"{count} counters in a CC_Update")
    words = [int.from_bytes(data[at : at + 4], "big") for at in range(_COUNTS_AT, _COUNTS_AT + 4 * count, 4)]
    return tuple((word >> 27, word & CYCLE_MASK) for word in words)


def _decode_control(data: Data) -> ControlFrame:
    if len(data) != CONTROL_FRAME_BYTES:
        length = len(data)
        raise DecodeError(min(length, CONTROL_FRAME_BYTES), f"a control frame has 60 bytes, not {length}")
    items: list[Ctlos] = []
    for at in range(ETHERNET_BYTES, _TIME_AT, CTLOS_BYTES):
        if not any(data[at : at + CTLOS_BYTES]):
            break
        items.append(decode_ctlos(data, at))
    sent_ns = int.from_bytes(data[_TIME_AT : _TIME_AT + 8], "big")
    return ControlFrame(bytes(data[:6]), bytes(data[6:12]), tuple(items), sent_ns, check_frame(data))
