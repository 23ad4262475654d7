"""Frames of scale-up links as bytes: data frames, CC_Update and control frames, laid out once more.

The product's frames are made in C; Python decodes them alone. Fields must fit.
"""

from __future__ import annotations

import zlib
from typing import Final

from testbed.protocols.scale_up.ctlos import Ack, CfUpdate, Ctlos, CtlosType, Init, InitEcho, LinkSignal, Nack
from testbed.protocols.scale_up.frames import (
    ETHERNET_BYTES,
    ETHERTYPE,
    CcUpdateFrame,
    ControlFrame,
    DataFrame,
    Frame,
    FrameCheck,
    check_frame,
)
from testbed.protocols.scale_up.headers import Header, HeaderKind, SueHeader, UaRequest, UaResponse, kind_of

_ELIGIBLE: Final = 0x80
_TYPES: Final = {
    Ack: CtlosType.LLR_ACK,
    Nack: CtlosType.LLR_NACK,
    Init: CtlosType.LLR_INIT,
    InitEcho: CtlosType.LLR_INIT_ECHO,
    CfUpdate: CtlosType.CF_UPDATE,
    LinkSignal: CtlosType.LINK_SIGNAL,
}


def encode_frame(frame: Frame) -> bytes:
    match frame:
        case DataFrame():
            prefix = _prefix(kind_of(frame.header), frame.vc, frame.sequence)
            body = prefix + encode_header(frame.header) + frame.payload
        case CcUpdateFrame():
            words = b"".join((vc << 27 | count).to_bytes(4, "big") for vc, count in frame.counts)
            body = (
                _prefix(HeaderKind.CC_UPDATE, 0, frame.sequence)
                + bytes([len(frame.counts), 0])
                + words.ljust(40, b"\0")
            )
        case ControlFrame():
            sets = b"".join(map(encode_ctlos, frame.items)).ljust(32, b"\0")
            body = sets + frame.sent_ns.to_bytes(8, "big") + bytes(2)
    return seal(frame.destination + frame.source + ETHERTYPE.to_bytes(2, "big") + body, frame.check)


def _prefix(kind: HeaderKind, vc: int, sequence: int | None) -> bytes:
    flags = kind << 5 | vc | (0 if sequence is None else _ELIGIBLE)
    return (7 << 20 | (sequence or 0)).to_bytes(3, "big") + bytes([flags])


def seal(body: bytes, check: FrameCheck = FrameCheck.GOOD) -> bytes:
    """A frame with its FCS: a right one, or that of a poisoned frame."""
    value = zlib.crc32(body) ^ (0xFFFF_FFFF if check is FrameCheck.POISONED else 0)
    return body + value.to_bytes(4, "little")


def numbered(data: bytes, sequence: int) -> bytes:
    """An encoded data frame or CC_Update, poisoned or not, with this sequence number, and its FCS made anew."""
    word = (7 << 20 | sequence).to_bytes(3, "big") + bytes([data[17] | _ELIGIBLE])
    return seal(data[:ETHERNET_BYTES] + word + data[ETHERNET_BYTES + 4 : -4], check_frame(data))


def encode_ctlos(item: Ctlos) -> bytes:
    first, last = item[0], 0
    match item:
        case Init(_, data) | InitEcho(_, data) | LinkSignal(_, data):
            last = (data & 0xFF) << 16 | data & 0xFF00
        case CfUpdate(vc1, count1, vc2, count2):
            first, last = vc1 << 15 | count1, (vc2 << 15 | count2) << 4
    return bytes([0x5C, _TYPES[type(item)]]) + (first << 4 | 6).to_bytes(3, "big") + last.to_bytes(3, "big")


def encode_header(header: Header) -> bytes:
    match header:
        case SueHeader(operation, xpu, psn, vc, partition, acked, version):
            values = (version, operation, 0, xpu, psn, vc, 0, partition, acked)
            return _packed(*zip(values, (2, 2, 2, 10, 16, 2, 4, 10, 16), strict=True))
        case UaRequest():
            values = (1, *header[:8], header.address >> 2, *header[9:])
            return _packed(*zip(values, (4, 6, 2, 2, 11, 1, 8, 6, 8, 55, 10, 10, 1, 2, 2), strict=True))
        case UaResponse():
            return _packed(*zip((2, *header, 0), (4, 2, 11, 1, 2, 2, 4, 1, 1, 10, 10, 16), strict=True))


def _packed(*fields: tuple[int, int]) -> bytes:
    """Values and their bits, from the highest bit on."""
    word = 0
    for value, bits in fields:
        word = word << bits | value
    return word.to_bytes(sum(bits for _, bits in fields) // 8, "big")
