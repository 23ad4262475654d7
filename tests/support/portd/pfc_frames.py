"""Priority-based flow control frames as tests write and read them, by the native side's encoder and their own decoder.

A PFC frame is a MAC control frame (IEEE 802.3 clause 31, annex 31D; IEEE 802.1Q clause 36): destination
01:80:C2:00:00:01, EtherType 0x8808, opcode 0x0101, a class-enable vector, and for each of the eight priorities a
time in quanta of 512 bit times (IEEE 802.3 annex 31B.2). A time of 0 resumes the priority.
"""

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.daemons.portd import native
from testbed.daemons.portd.attachment import PRIORITIES

PAUSE_ADDRESS = bytes.fromhex("0180c2000001")
"""Never forwarded by a bridge (IEEE 802.1Q table 8-1)."""
ETHERTYPE = 0x8808
OPCODE = 0x0101
MAX_QUANTA = 65_535
FRAME_BYTES = 60
"""The shortest Ethernet frame without its check sequence."""

_FIELDS = struct.Struct("!6s6sHHH8H")


class MalformedPfc(ValueError):
    """These bytes are no PFC frame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PfcFrame:
    """`vector` has bit p set where the time of priority p counts; `quanta` are the eight times, 0..65535."""

    source: bytes
    vector: int
    quanta: tuple[int, ...]


def encode_pfc(source: bytes, vector: int, quanta: Sequence[int]) -> bytes:
    """A frame of 60 bytes from the station `source`. Raises `ValueError` for what does not fit its field."""
    if len(source) != 6 or not 0 <= vector < 1 << PRIORITIES or len(quanta) != PRIORITIES:
        raise ValueError(f"not a PFC frame: source {source.hex()}, vector {vector:#x}, {len(quanta)} times")
    if not all(0 <= time <= MAX_QUANTA for time in quanta):
        raise ValueError(f"a time does not fit 16 bits: {list(quanta)}")
    frame = ctypes.create_string_buffer(FRAME_BYTES)
    native.library().pfc_encode(frame, source, vector, (ctypes.c_uint16 * PRIORITIES)(*quanta))
    return frame.raw


def decode_pfc(frame: bytes) -> PfcFrame:
    """Raises `MalformedPfc`.

    Padding is not looked at, nor asked for: a veth has no shortest frame. The upper half of the class-enable
    vector is reserved and ignored (IEEE 802.3 annex 31D).
    """
    if len(frame) < _FIELDS.size:
        raise MalformedPfc(f"{len(frame)} bytes, at least {_FIELDS.size} expected")
    destination, source, ethertype, opcode, vector, *quanta = _FIELDS.unpack_from(frame)
    if destination != PAUSE_ADDRESS:
        raise MalformedPfc(f"destination {destination.hex(':')}")
    if ethertype != ETHERTYPE:
        raise MalformedPfc(f"EtherType {ethertype:#06x}")
    if opcode != OPCODE:
        raise MalformedPfc(f"opcode {opcode:#06x}")
    return PfcFrame(source=source, vector=vector & 0xFF, quanta=tuple(quanta))


def pause_ns(quanta: int, rate_bps: int) -> int:
    """How long `quanta` are at a line rate, rounded up."""
    return int(native.library().pfc_pause_ns(quanta, rate_bps))


def priorities_of(vector: int) -> tuple[int, ...]:
    """The priorities whose bits are set, in order."""
    return _PRIORITIES_OF[vector & 0xFF]


_PRIORITIES_OF = tuple(tuple(p for p in range(PRIORITIES) if vector >> p & 1) for vector in range(256))
