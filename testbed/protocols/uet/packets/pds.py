"""PDS headers: the packet delivery sublayer's part of every packet.

Requests, control packets, RUDI and UUD are here; `acks` has what receivers answer. Source: UE Specification 1.0.1,
tables 3-33 (RUD and ROD requests), 3-38 (control packets), 3-39 (RUDI) and 3-42 (UUD). Everything is big-endian.

Decoding is strict about what decides how a packet is to be understood: reserved types (section 3.5), next headers
(table 3-16), control types (table 3-38) and NACK codes (table 3-58), a CLEAR_PSN ahead of the PSN, PDCIDs of 0 and
lengths. It ignores reserved bits and flags, and reserved values of what can be done without (see `acks`). `decode_pds`
raises `DecodeError` and nothing else. Flags are plain integers, of `RequestFlag` and its like: arithmetic on IntFlag
costs more than decoding a header. What is sent in great numbers is packed where it is sent (`delivery.window`,
`delivery.receiver`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from testbed.protocols.errors import DecodeError, truncated
from testbed.protocols.uet.packets.acks import (
    Ack,
    CcxState,
    CreditState,
    Nack,
    NsccState,
    decode_ack,
    decode_ack_cc,
    decode_ack_ccx,
    decode_nack,
    decode_nack_ccx,
)
from testbed.protocols.uet.packets.codes import ControlFlag, ControlType, NextHeader, PdsType, RequestFlag, RudiFlag
from testbed.protocols.uet.packets.prologue import (
    NEXT_HEADERS,
    TYPES,
    Data,
    peek_type,
    reserved_next_header,
    reserved_type,
)

__all__ = [
    "Ack",
    "CcxState",
    "ControlPacket",
    "CreditState",
    "Nack",
    "NsccState",
    "PdsHeader",
    "Request",
    "RequestCcState",
    "RudiPacket",
    "Uud",
    "decode_pds",
    "peek_type",
]

_PSN_MASK: Final = 0xFFFF_FFFF

_PROLOGUE_ONLY: Final = struct.Struct("!HH")
_REQUEST: Final = struct.Struct("!HhIHH")
_REQUEST_CC: Final = struct.Struct("!HhIHHI")
_CONTROL: Final = struct.Struct("!HHIHHI")
_RUDI: Final = struct.Struct("!HHI")
_unpack_request: Final = _REQUEST.unpack_from
_unpack_request_cc: Final = _REQUEST_CC.unpack_from
_new: Final = tuple.__new__  # a named tuple in half the time that its own constructor takes

_SYN: Final = int(RequestFlag.SYN)
_REQUEST_MASK: Final = int(RequestFlag.RETX | RequestFlag.AR | RequestFlag.SYN)
_CONTROL_MASK: Final = int(ControlFlag.ISROD | ControlFlag.RETX | ControlFlag.AR | ControlFlag.SYN)
_RUDI_MASKS: Final[dict[int, int]] = {
    PdsType.RUDI_REQ: int(RudiFlag.RETX),
    PdsType.RUDI_RESP: int(RudiFlag.RETX | RudiFlag.MARKED),
}

_CONTROL_TYPES: Final[tuple[ControlType | None, ...]] = (*ControlType, *(None for _ in range(len(ControlType), 16)))


class RequestCcState(NamedTuple):
    """`req_cc_state` of RUD_CC_REQ and ROD_CC_REQ."""

    ccc_id: int
    """Congestion control context, 8 bits."""
    credit_target: int
    """24 bits, in units of 256 bytes."""


class Request(NamedTuple):
    """A RUD or ROD request (table 3-33): 12 bytes, or 16 with `req_cc_state`."""

    type: PdsType
    """RUD_REQ or ROD_REQ; with `req_cc_state` RUD_CC_REQ or ROD_CC_REQ."""
    next_header: NextHeader
    flags: int
    """`RequestFlag`s."""
    clear_psn_offset: int
    """CLEAR_PSN relative to `psn`: -32768 to 0."""
    psn: int
    spdcid: int
    """PDCID that the sender of this packet gave the PDC; never 0."""
    dpdcid: int = 0
    """PDCID that its receiver gave; absent (0) with SYN."""
    pdc_info: int = 0
    """With SYN alone: 4 bits. `use_rsv_pdc` is 0x8 for Wireshark and xdp2, 0x1 for the reference provider."""
    psn_offset: int = 0
    """With SYN alone: how many packets after Start_PSN this one is, 12 bits."""
    req_cc_state: RequestCcState | None = None

    @property
    def clear_psn(self) -> int:
        return (self.psn + self.clear_psn_offset) & _PSN_MASK

    @property
    def start_psn(self) -> int:
        """Start_PSN, of a packet with SYN."""
        return (self.psn - self.psn_offset) & _PSN_MASK


class ControlPacket(NamedTuple):
    """A control packet (table 3-38), 16 bytes."""

    control_type: ControlType
    flags: int
    """`ControlFlag`s."""
    probe_opaque: int
    """PROBE alone: 16 bits that the ACK brings back."""
    psn: int
    spdcid: int
    """Never 0."""
    dpdcid: int = 0
    """Absent (0) with SYN."""
    pdc_info: int = 0
    """With SYN alone, as in `Request`."""
    psn_offset: int = 0
    """With SYN alone, as in `Request`."""
    payload: int = 0
    """32 bits whose meaning is the control type's."""

    @property
    def type(self) -> PdsType:
        return PdsType.CP

    def encode(self) -> bytes:
        last = self.pdc_info << 12 | self.psn_offset if self.flags & _SYN else self.dpdcid
        word = PdsType.CP << 11 | self.control_type << 7 | self.flags
        return _CONTROL.pack(word, self.probe_opaque, self.psn, self.spdcid, last, self.payload)


class RudiPacket(NamedTuple):
    """A RUDI request or response (table 3-39), 8 bytes. (Wireshark reads its `pkt_id` two bytes early.)"""

    type: PdsType
    """RUDI_REQ or RUDI_RESP."""
    next_header: NextHeader
    flags: int
    """`RudiFlag`s."""
    packet_id: int
    """pkt_id, 32 bits."""

    def encode(self) -> bytes:
        return _RUDI.pack(self.type << 11 | self.next_header << 7 | self.flags, 0, self.packet_id)


class Uud(NamedTuple):
    """A UUD request (table 3-42), 4 bytes. It has no flags."""

    next_header: NextHeader

    @property
    def type(self) -> PdsType:
        return PdsType.UUD_REQ

    def encode(self) -> bytes:
        return _PROLOGUE_ONLY.pack(PdsType.UUD_REQ << 11 | self.next_header << 7, 0)


PdsHeader = Request | Ack | Nack | ControlPacket | RudiPacket | Uud


def decode_pds(data: Data) -> tuple[PdsHeader, int]:
    """The PDS header at the start of `data`, and its length in bytes.

    Raises `DecodeError`; for a TSS packet too, which must be opened first.
    """
    try:
        decoder = _DECODERS[data[0] >> 3]
    except IndexError:
        raise DecodeError(0, "an empty packet") from None
    return decoder(data)


def _decode_request(data: Data) -> tuple[Request, int]:
    word: int
    last: int
    clear_psn_offset: int
    try:
        word, clear_psn_offset, psn, spdcid, last = _unpack_request(data)
    except struct.error:
        raise truncated("a request", 12, len(data)) from None
    next_header = NEXT_HEADERS[word >> 7 & 15]
    if next_header is None or clear_psn_offset > 0 or spdcid == 0:
        raise _bad_request(word, clear_psn_offset)
    kind = TYPES[word >> 11]
    flags = word & _REQUEST_MASK
    if flags & _SYN:
        fields = (kind, next_header, flags, clear_psn_offset, psn, spdcid, 0, last >> 12, last & 0xFFF, None)
    else:
        fields = (kind, next_header, flags, clear_psn_offset, psn, spdcid, last, 0, 0, None)
    return _new(Request, fields), 12


def _decode_request_cc(data: Data) -> tuple[Request, int]:
    try:
        word, clear_psn_offset, psn, spdcid, last, cc = _unpack_request_cc(data)
    except struct.error:
        raise truncated("a request with req_cc_state", 16, len(data)) from None
    next_header = NEXT_HEADERS[word >> 7 & 15]
    if next_header is None or clear_psn_offset > 0 or spdcid == 0:
        raise _bad_request(word, clear_psn_offset)
    kind = TYPES[word >> 11]
    flags = word & _REQUEST_MASK
    state = _new(RequestCcState, (cc >> 24, cc & 0xFF_FFFF))
    if flags & _SYN:
        fields = (kind, next_header, flags, clear_psn_offset, psn, spdcid, 0, last >> 12, last & 0xFFF, state)
    else:
        fields = (kind, next_header, flags, clear_psn_offset, psn, spdcid, last, 0, 0, state)
    return _new(Request, fields), 16


def _decode_control(data: Data) -> tuple[ControlPacket, int]:
    try:
        word, opaque, psn, spdcid, last, payload = _CONTROL.unpack_from(data)
    except struct.error:
        raise truncated("a control packet", _CONTROL.size, len(data)) from None
    kind = _CONTROL_TYPES[word >> 7 & 15]
    if kind is None:
        raise DecodeError(0, f"ctl_type {word >> 7 & 15} is reserved")
    if spdcid == 0:
        raise DecodeError(8, "spdcid is 0")
    if kind is not ControlType.PROBE:
        opaque = 0
    flags = word & _CONTROL_MASK
    if flags & _SYN:
        return _new(ControlPacket, (kind, flags, opaque, psn, spdcid, 0, last >> 12, last & 0xFFF, payload)), 16
    return _new(ControlPacket, (kind, flags, opaque, psn, spdcid, last, 0, 0, payload)), 16


def _decode_rudi(data: Data) -> tuple[RudiPacket, int]:
    try:
        word, _, packet_id = _RUDI.unpack_from(data)
    except struct.error:
        raise truncated("a RUDI header", _RUDI.size, len(data)) from None
    next_header = NEXT_HEADERS[word >> 7 & 15]
    if next_header is None:
        raise reserved_next_header(word)
    kind = PdsType.RUDI_REQ if word >> 11 == PdsType.RUDI_REQ else PdsType.RUDI_RESP
    return _new(RudiPacket, (kind, next_header, word & _RUDI_MASKS[kind], packet_id)), 8


def _decode_uud(data: Data) -> tuple[Uud, int]:
    try:
        word, _ = _PROLOGUE_ONLY.unpack_from(data)
    except struct.error:
        raise truncated("a UUD header", _PROLOGUE_ONLY.size, len(data)) from None
    next_header = NEXT_HEADERS[word >> 7 & 15]
    if next_header is None:
        raise reserved_next_header(word)
    return Uud(next_header), 4


def _decode_tss(data: Data) -> tuple[PdsHeader, int]:
    raise DecodeError(0, "a TSS header: the packet is encrypted and must be opened first")


def _decode_reserved(data: Data) -> tuple[PdsHeader, int]:
    raise reserved_type(data)


_DECODERS: Final[tuple[Callable[[Data], tuple[PdsHeader, int]], ...]] = (
    _decode_reserved,
    _decode_tss,
    _decode_request,
    _decode_request,
    _decode_rudi,
    _decode_rudi,
    _decode_uud,
    decode_ack,
    decode_ack_cc,
    decode_ack_ccx,
    decode_nack,
    _decode_control,
    decode_nack_ccx,
    _decode_request_cc,
    _decode_request_cc,
    *(_decode_reserved for _ in range(15, 32)),
)


def _bad_request(word: int, clear_psn_offset: int) -> DecodeError:
    if NEXT_HEADERS[word >> 7 & 15] is None:
        return reserved_next_header(word)
    if clear_psn_offset > 0:
        return DecodeError(2, f"clear_psn_offset is {clear_psn_offset}, above 0")
    return DecodeError(8, "spdcid is 0")
