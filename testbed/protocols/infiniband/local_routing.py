"""The local routing header (LRH) of InfiniBand, the variant CRC behind a frame, and frames as a whole.

A frame of a subnet is LRH (8 bytes), BTH and the headers behind it, payload, ICRC (4) and VCRC (2): where RoCEv2 has
Ethernet, IP and UDP before the BTH, there are 10 bytes here. Source: InfiniBand Architecture Specification volume 1,
release 1.4: 7.7 (LRH), 7.8.1 (ICRC), 7.8.2 (VCRC).
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final

from testbed.protocols.errors import DecodeError, UsageError, truncated

LRH_BYTES: Final = 8
VCRC_BYTES: Final = 2
ICRC_BYTES: Final = 4
BTH_BYTES: Final = 12
GRH_BYTES: Final = 40
LEAST_MULTICAST: Final = 0xC000
PERMISSIVE_LID: Final = 0xFFFF
DEFAULT_PKEY: Final = 0xFFFF
"""The P_Key of the default partition, as a full member."""
LOCAL: Final = 2
"""The next header (LNH) of a packet with a BTH; `GLOBAL` has a GRH before it."""
GLOBAL: Final = 3
MANAGEMENT_VL: Final = 15
FECN: Final = 0x80
BECN: Final = 0x40
_VARIANT_AT: Final = 4
"""The byte of the BTH with FECN and BECN, as those behind it reserved and variant: not covered by the ICRC."""
_POLYNOMIAL: Final = 0xD008
"""0x100B, x^16 + x^12 + x^3 + x + 1, with its bits the other way round, as they are sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalHeader:
    """The LRH of a frame."""

    vl: int
    sl: int
    dlid: int
    slid: int
    words: int
    """Words of 4 bytes from the LRH to the ICRC."""
    lnh: int = LOCAL

    def encode(self) -> bytes:
        """Return its 8 bytes. Raises `UsageError` for what does not fit."""
        if not (0 <= self.vl < 16 and 0 <= self.sl < 16 and 0 <= self.lnh < 4 and 0 <= self.words < 1 << 11):
            raise UsageError(f"an LRH has no room for VL {self.vl}, SL {self.sl}, LNH {self.lnh}, {self.words} words")
        if not (0 <= self.dlid < 1 << 16 and 0 <= self.slid < 1 << 16):
            raise UsageError(f"LIDs have 16 bits, and not {self.dlid:#x} or {self.slid:#x}")
        return struct.pack("!BBHHH", self.vl << 4, self.sl << 4 | self.lnh, self.dlid, self.words, self.slid)


def decode_local(data: bytes | memoryview) -> LocalHeader:
    """Return the LRH that `data` begins with. Raises `DecodeError`."""
    if len(data) < LRH_BYTES:
        raise truncated("an LRH", LRH_BYTES, len(data))
    first, second, dlid, words, slid = struct.unpack_from("!BBHHH", data)
    if first & 15:
        raise DecodeError(0, f"link version {first & 15}, which is 0")
    if second & 12 or words >> 11:
        raise DecodeError(1, "reserved bits of the LRH are not 0")
    return LocalHeader(vl=first >> 4, sl=second >> 4, dlid=dlid, slid=slid, words=words, lnh=second & 3)


def compute_vcrc(data: bytes | memoryview) -> int:
    """Return the CRC-16 of a frame from its LRH to its ICRC (polynomial 0x100B, seed 0xFFFF, complemented)."""
    crc = 0xFFFF
    for byte in bytes(data):
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFF


def _row(value: int) -> int:
    for _ in range(8):
        value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    return value


_TABLE: Final = tuple(map(_row, range(256)))


def compute_icrc(frame: bytes | memoryview) -> int:
    """Return the ICRC of a frame, LRH to padding: all of it but what changes on the way, which counts as ones: the VL,
    or the whole LRH before a GRH; of that the traffic class, flow label and hop limit; and byte 4 of the BTH."""
    covered = bytearray(frame)
    covered[0] |= 0xF0
    at = LRH_BYTES
    if covered[1] & 3 == GLOBAL:
        covered[:at] = b"\xff" * at
        covered[at] |= 0x0F
        covered[at + 1 : at + 4] = b"\xff\xff\xff"
        covered[at + 7] = 0xFF
        at += GRH_BYTES
    covered[at + _VARIANT_AT] = 0xFF
    return zlib.crc32(covered)


def compute_local_icrc(head: bytes, rest: bytes | memoryview) -> int:
    """Return what `compute_icrc` does for a frame without a GRH, in two parts that are not copied together: `head`
    begins with LRH and BTH, and `rest` follows it."""
    at = LRH_BYTES + _VARIANT_AT
    covered = b"".join((bytes((head[0] | 0xF0,)), head[1:at], b"\xff", head[at + 1 :]))
    return zlib.crc32(rest, zlib.crc32(covered))


def encode_frame(header: LocalHeader, packet: bytes) -> bytes:
    """Return a frame of a packet, GRH or BTH to padding, with ICRC and VCRC; the words of `header` are set. Raises
    `UsageError`."""
    frame = encode_unchecked(header, packet)
    return frame + compute_vcrc(frame).to_bytes(VCRC_BYTES, "little")


def encode_unchecked(header: LocalHeader, packet: bytes) -> bytes:
    """Return a frame without its VCRC, which is each link's own: as a program hands it to its HCA. Raises
    `UsageError`."""
    least = (GRH_BYTES if header.lnh == GLOBAL else 0) + BTH_BYTES
    words = (LRH_BYTES + len(packet) + ICRC_BYTES) // 4
    if len(packet) % 4 or len(packet) < least:
        raise UsageError(f"a packet of {len(packet)} bytes is none: they are whole words, and {least} at least")
    local = LocalHeader(vl=header.vl, sl=header.sl, dlid=header.dlid, slid=header.slid, words=words, lnh=header.lnh)
    frame = local.encode() + packet
    return frame + compute_icrc(frame).to_bytes(ICRC_BYTES, "little")


def decode_frame(data: bytes) -> tuple[LocalHeader, bytes]:
    """Return the LRH of a frame and its packet, GRH or BTH to padding, whose two CRCs are right. Raises
    `DecodeError`."""
    body = data[:-VCRC_BYTES]
    found = decode_unchecked(body)
    if compute_vcrc(body) != int.from_bytes(data[-VCRC_BYTES:], "little"):
        raise DecodeError(len(body), "the VCRC is wrong")
    return found


def decode_unchecked(data: bytes) -> tuple[LocalHeader, bytes]:
    """Return the LRH of a frame without its VCRC, and its packet, whose ICRC is right. Raises `DecodeError`."""
    header = decode_local(data)
    least = LRH_BYTES + (GRH_BYTES if header.lnh == GLOBAL else 0) + BTH_BYTES + ICRC_BYTES
    if header.lnh not in (LOCAL, GLOBAL):
        raise DecodeError(1, f"no BTH follows: LNH {header.lnh}")
    if len(data) < least:
        raise truncated("LRH, BTH and ICRC", least, len(data))
    if header.words * 4 != len(data):
        raise DecodeError(4, f"{header.words} words, in {len(data)} bytes before the VCRC")
    body = data[:-ICRC_BYTES]
    if compute_icrc(body) != int.from_bytes(data[-ICRC_BYTES:], "little"):
        raise DecodeError(len(body), "the ICRC is wrong")
    return header, body[LRH_BYTES:]
