"""ACK and NACK headers, with the congestion control state that an ACK carries.

Source: UE Specification 1.0.1, tables 3-35 (ACK), 3-36 (ACK_CC), 3-40 (NACK), 3-44 (REQ), 3-48 (cc_type), 3-58 (NACK
codes), 3-74 and 3-75 (congestion control state). Where implementations disagree:

* The newest reference provider uses flag 0x40 of an ACK for "EPSN" and appends the expected PSN, 32 bits. In 1.0.1 the
  bit is reserved, and is taken so here.
* ACK_CCX has 128 bits of state, and NACK_CCX 124 bits after its type, as in the reference provider and the Wireshark
  dissector; xdp2 has 64 and 60. Every `ccx_type` is reserved or proprietary, so that nothing but parsing depends on it.
* xdp2 puts an SES response behind a NACK. By table 3-40 its next_hdr is NONE: it is sent so, and on receipt it and what
  follows the header are ignored.

What acknowledges PSNs is not lost for the sake of a value that is reserved elsewhere in it: REQ 3 (table 3-44) asks for
nothing, and the state of a reserved or proprietary cc_type (table 3-48) is kept as a number that nobody looks at.
Reserved NACK codes (table 3-58) are refused, since the code is all that a NACK says.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from testbed.protocols.errors import DecodeError, truncated
from testbed.protocols.uet.packets.codes import AckFlag, NackCode, NackFlag, NextHeader, PdsType
from testbed.protocols.uet.packets.prologue import NEXT_HEADERS, Data, reserved_next_header

_PSN_MASK: Final = 0xFFFF_FFFF

_ACK: Final = struct.Struct("!HhIHH")
ACK_CC: Final = struct.Struct("!HhIHHBBhQHIH")
"""Table 3-36 with table 3-74 or 3-75."""
_ACK_CCX: Final = struct.Struct("!HhIHHBBhQQQ")
NACK: Final = struct.Struct("!HBBIHHI")
_NACK_CCX: Final = struct.Struct("!HBBIHHIQQ")
_unpack_ack: Final = _ACK.unpack_from
_unpack_ack_cc: Final = ACK_CC.unpack_from
_new: Final = tuple.__new__  # a named tuple in half the time that its own constructor takes

# Plain integers: arithmetic on IntFlag costs more than decoding a header.
_REQ: Final = int(AckFlag.REQ_CLEAR | AckFlag.REQ_CLOSE)
_ACK_MASK: Final = int(AckFlag.MARKED | AckFlag.RETX | AckFlag.PROBE) | _REQ
_NACK_MASK: Final = int(NackFlag.MARKED | NackFlag.RETX | NackFlag.RUDI)

_ACK_NEXT_HEADERS: Final[tuple[NextHeader | None, ...]] = tuple(
    None if number in (NextHeader.REQUEST_SMALL, NextHeader.REQUEST_MEDIUM, NextHeader.REQUEST_STD) else header
    for number, header in enumerate(NEXT_HEADERS)
)
_NACK_CODES: Final[dict[int, NackCode]] = {int(code): code for code in NackCode}


class NsccState(NamedTuple):
    """`ack_cc_state` of cc_type CC_NSCC (table 3-74)."""

    service_time: int
    """Units of 128 ns; 0: not valid, 0xFFFF: more than 8.38848 ms."""
    restore_cwnd: bool
    """rc."""
    rcv_cwnd_pend: int
    """Penalty on the congestion window, 0 to 127 (of 128)."""
    rcvd_bytes: int
    """Units of 256 bytes, rounded up; cumulative for the PDC, modulo 2**24."""
    ooo_count: int
    """Packets out of order now; 0xFFFF: not computed."""


class CreditState(NamedTuple):
    """`ack_cc_state` of cc_type CC_CREDIT (table 3-75)."""

    credit: int
    """24 bits."""
    ooo_count: int
    """As in `NsccState`."""


class CcxState(NamedTuple):
    """State of an ACK_CCX or NACK_CCX, or of an ACK_CC of another `cc_type`: its meaning is reserved or proprietary."""

    ccx_type: int
    """4 bits; 14 and 15 are proprietary, all others reserved. In an ACK_CC `cc_type`, which is 2 to 15 then."""
    state: int
    """128 bits in an ACK_CCX, 124 in a NACK_CCX, 64 in an ACK_CC."""


class Ack(NamedTuple):
    """An ACK (table 3-35, 12 bytes), ACK_CC (table 3-36, 32 bytes) or ACK_CCX (40 bytes, which nothing here sends)."""

    type: PdsType
    next_header: NextHeader
    """NONE or one of the responses."""
    flags: int
    """`AckFlag`s."""
    ack_psn_offset: int
    """ACK_PSN, the PSN that triggered this, relative to `cack_psn`: -32768 to 32767. With P: see `probe_opaque`."""
    cack_psn: int
    """Every PSN up to this one is acknowledged."""
    spdcid: int
    """Never 0."""
    dpdcid: int
    mpr: int = 0
    """ACK_CC, ACK_CCX: range of PSNs that the sender of this takes, in units of 128; 0 is to be ignored."""
    sack_psn_offset: int = 0
    """ACK_CC, ACK_CCX: base of `sack_bitmap` relative to `cack_psn`: -32768 to 32767."""
    sack_bitmap: int = 0
    """ACK_CC, ACK_CCX: bit i, counted from the least significant, is PSN base + i; 0 says nothing."""
    cc_state: NsccState | CreditState | CcxState | None = None
    """None in an ACK; `CcxState` in an ACK_CCX, and in an ACK_CC whose `cc_type` is not known (table 3-48)."""

    @property
    def ack_psn(self) -> int:
        return (self.cack_psn + self.ack_psn_offset) & _PSN_MASK

    @property
    def probe_opaque(self) -> int:
        """Return, with P, what the probe said in the place of `ack_psn_offset` (0 to 65535)."""
        return self.ack_psn_offset & 0xFFFF

    @property
    def sack_base_psn(self) -> int:
        return (self.cack_psn + self.sack_psn_offset) & _PSN_MASK


class Nack(NamedTuple):
    """A NACK (table 3-40, 16 bytes) or NACK_CCX (32 bytes, which nothing here sends)."""

    type: PdsType
    flags: int
    """`NackFlag`s."""
    nack_code: NackCode
    vendor_code: int
    nack_psn: int
    """With NT (RUDI): nack_pkt_id."""
    spdcid: int
    """0 with NT, and where the sender has no PDC."""
    dpdcid: int
    """0 with NT."""
    payload: int
    """32 bits whose meaning is the code's."""
    ccx_state: CcxState | None = None
    """NACK_CCX alone."""


def decode_ack(data: Data) -> tuple[Ack, int]:
    try:
        word, offset, cack_psn, spdcid, dpdcid = _unpack_ack(data)
    except struct.error:
        raise truncated("an ACK", _ACK.size, len(data)) from None
    next_header = _ACK_NEXT_HEADERS[word >> 7 & 15]
    if next_header is None or spdcid == 0 or word & _REQ == _REQ:
        word = _without_req(word, spdcid)
    fields = (PdsType.ACK, next_header, word & _ACK_MASK, offset, cack_psn, spdcid, dpdcid, 0, 0, 0, None)
    return _new(Ack, fields), 12


def decode_ack_cc(data: Data) -> tuple[Ack, int]:
    word: int
    cc_type: int
    middle: int
    try:
        word, offset, cack, spdcid, dpdcid, cc_type, mpr, base, bitmap, first, middle, disorder = _unpack_ack_cc(data)
    except struct.error:
        raise truncated("an ACK_CC", 32, len(data)) from None
    next_header = _ACK_NEXT_HEADERS[word >> 7 & 15]
    if next_header is None or spdcid == 0 or word & _REQ == _REQ:
        word = _without_req(word, spdcid)
    state: NsccState | CreditState | CcxState
    cc_type >>= 4
    if cc_type == 0:
        state = _new(NsccState, (first, middle >= 0x8000_0000, middle >> 24 & 0x7F, middle & 0xFF_FFFF, disorder))
    elif cc_type == 1:
        state = _new(CreditState, (first << 8 | middle >> 24, disorder))
    else:
        state = CcxState(cc_type, first << 48 | middle << 16 | disorder)
    kind = PdsType.ACK_CC
    flags = word & _ACK_MASK
    return _new(Ack, (kind, next_header, flags, offset, cack, spdcid, dpdcid, mpr, base, bitmap, state)), 32


def decode_ack_ccx(data: Data) -> tuple[Ack, int]:
    try:
        word, offset, cack, spdcid, dpdcid, ccx_type, mpr, base, bitmap, high, low = _ACK_CCX.unpack_from(data)
    except struct.error:
        raise truncated("an ACK_CCX", _ACK_CCX.size, len(data)) from None
    next_header = _ACK_NEXT_HEADERS[word >> 7 & 15]
    if next_header is None or spdcid == 0 or word & _REQ == _REQ:
        word = _without_req(word, spdcid)
    state = CcxState(ccx_type >> 4, high << 64 | low)
    kind = PdsType.ACK_CCX
    return Ack(kind, next_header, word & _ACK_MASK, offset, cack, spdcid, dpdcid, mpr, base, bitmap, state), 40


def decode_nack(data: Data) -> tuple[Nack, int]:
    try:
        word, number, vendor_code, nack_psn, spdcid, dpdcid, payload = NACK.unpack_from(data)
    except struct.error:
        raise truncated("a NACK", NACK.size, len(data)) from None
    nack_code = _NACK_CODES.get(number)
    if nack_code is None:
        raise DecodeError(2, f"nack_code 0x{number:02x} is reserved")
    flags = word & _NACK_MASK
    return _new(Nack, (PdsType.NACK, flags, nack_code, vendor_code, nack_psn, spdcid, dpdcid, payload, None)), 16


def decode_nack_ccx(data: Data) -> tuple[Nack, int]:
    try:
        word, number, vendor_code, nack_psn, spdcid, dpdcid, payload, high, low = _NACK_CCX.unpack_from(data)
    except struct.error:
        raise truncated("a NACK_CCX", _NACK_CCX.size, len(data)) from None
    nack_code = _NACK_CODES.get(number)
    if nack_code is None:
        raise DecodeError(2, f"nack_code 0x{number:02x} is reserved")
    state = CcxState(high >> 60, (high & 0x0FFF_FFFF_FFFF_FFFF) << 64 | low)
    flags = word & _NACK_MASK
    return Nack(PdsType.NACK_CCX, flags, nack_code, vendor_code, nack_psn, spdcid, dpdcid, payload, state), 32


def _without_req(word: int, spdcid: int) -> int:
    """The prologue of an ACK that has REQ 3, without it; or else what is wrong with this ACK is raised."""
    if _ACK_NEXT_HEADERS[word >> 7 & 15] is None or spdcid == 0:
        raise _bad_ack(word)
    return word & ~_REQ


def _bad_ack(word: int) -> DecodeError:
    next_header = NEXT_HEADERS[word >> 7 & 15]
    if next_header is None:
        return reserved_next_header(word)
    if _ACK_NEXT_HEADERS[next_header] is None:
        return DecodeError(0, f"next_hdr {next_header.name} in an acknowledgement")
    return DecodeError(8, "spdcid is 0")
