"""The headers of RoCEv2 packets, to bytes and back: BTH and the extended transport headers.

Source: InfiniBand Architecture Specification, volume 1, release 1.4, sections 9.2 (BTH) and 9.3 (others). Everything
is big-endian. Decoding is strict about what decides how a packet is to be understood: its opcode, the version of the
transport header and the room that its headers need. Reserved bits are ignored, and are 0 in what is encoded. Functions
named `decode_` raise `DecodeError` and nothing else; `encode` raises `UsageError` for fields that do not fit.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from testbed.protocols.errors import DecodeError, truncated, unfit
from testbed.protocols.roce.packets.opcodes import LAYOUTS

Data = bytes | memoryview
"""Bytes to be decoded; a memoryview is one of bytes."""

BTH_BYTES: Final = 12
RETH_BYTES: Final = 16
AETH_BYTES: Final = 4
DETH_BYTES: Final = 8
ATOMIC_ETH_BYTES: Final = 28
ATOMIC_ACK_ETH_BYTES: Final = 8
IMMEDIATE_BYTES: Final = 4
IETH_BYTES: Final = 4
DEFAULT_PKEY: Final = 0xFFFF
"""The default partition, as a full member."""
QPN_MASK: Final = 0xFF_FFFF
PSN_MASK: Final = 0xFF_FFFF

_BTH: Final = struct.Struct("!BBHII")
_RETH: Final = struct.Struct("!QII")
_ATOMIC: Final = struct.Struct("!QIQQ")
_DETH: Final = struct.Struct("!II")
_WORD: Final = struct.Struct("!I")
_DOUBLE_WORD: Final = struct.Struct("!Q")
_unpack_bth: Final = _BTH.unpack_from
_pack_bth: Final = _BTH.pack
_new: Final = tuple.__new__  # a named tuple in half the time that its own constructor takes

_SOLICITED: Final = 0x80
_MIGRATION: Final = 0x40
_VERSION: Final = 0x0F
_FECN: Final = 1 << 31
BECN: Final = 1 << 30
"""The bit of backward explicit congestion notification in the word of the queue pair."""
_ACK_REQUEST: Final = 1 << 31


def _pack(layout: struct.Struct, header: object, *fields: int) -> bytes:
    try:
        return layout.pack(*fields)
    except struct.error as error:
        raise unfit(header, str(error)) from None


def _unpack(layout: struct.Struct, what: str, data: Data, offset: int) -> tuple[int, ...]:
    try:
        return layout.unpack_from(data, offset)
    except struct.error:
        raise truncated(what, layout.size, len(data), offset) from None


class Bth(NamedTuple):
    """The base transport header (section 9.2), 12 bytes."""

    opcode: int
    """One of `Opcode`."""
    dest_qp: int
    """The queue pair at the receiver, 24 bits."""
    psn: int
    """The packet sequence number, 24 bits."""
    ack_request: bool = False
    """The responder is to acknowledge this packet."""
    pad_bytes: int = 0
    """Bytes of padding behind the payload, 0 to 3, which make it a multiple of four."""
    solicited: bool = False
    """The receiver asked to be told of such a message (solicited event)."""
    migration: bool = False
    """MigReq, of automatic path migration, which is not modelled."""
    pkey: int = DEFAULT_PKEY
    """The partition key, 16 bits."""
    fecn: bool = False
    """Forward explicit congestion notification: InfiniBand's own; RoCEv2 marks in the IP header."""
    becn: bool = False
    """Backward explicit congestion notification: set in a CNP."""

    def encode(self) -> bytes:
        """Raises `UsageError`."""
        opcode, dest_qp, psn, ack_request, pad_bytes, solicited, migration, pkey, fecn, becn = self
        if not 0 <= dest_qp <= QPN_MASK:
            raise unfit(self, "dest_qp")
        if not 0 <= psn <= PSN_MASK:
            raise unfit(self, "psn")
        if not 0 <= pad_bytes <= 3:
            raise unfit(self, "pad_bytes")
        flags = pad_bytes << 4
        if solicited:
            flags |= _SOLICITED
        if migration:
            flags |= _MIGRATION
        if fecn:
            dest_qp |= _FECN
        if becn:
            dest_qp |= BECN
        if ack_request:
            psn |= _ACK_REQUEST
        try:
            return _pack_bth(opcode, flags, pkey, dest_qp, psn)
        except struct.error as error:
            raise unfit(self, str(error)) from None


def encode_bth(opcode: int, dest_qp: int, psn: int, ack_request: bool = False, pad_bytes: int = 0) -> bytes:
    """The BTH of a packet of the default partition, of fields that fit, as a queue pair has them: see `Bth`."""
    encoded: bytes = _pack_bth(
        opcode, pad_bytes << 4, DEFAULT_PKEY, dest_qp, psn | _ACK_REQUEST if ack_request else psn
    )
    return encoded


def decode_bth(data: Data) -> Bth:
    """The BTH that a UDP payload begins with. Raises `DecodeError`, for an opcode that is not known too."""
    try:
        opcode, flags, pkey, qp_word, psn_word = _unpack_bth(data)
    except struct.error:
        raise truncated("a BTH", BTH_BYTES, len(data)) from None
    if LAYOUTS[opcode] is None:
        raise DecodeError(0, f"opcode {opcode:#04x} is reserved, or of a service that is not known")
    if flags & _VERSION:
        raise DecodeError(1, f"version {flags & _VERSION} of the transport header")
    bth: Bth = _new(
        Bth,
        (
            opcode,
            qp_word & QPN_MASK,
            psn_word & PSN_MASK,
            psn_word & _ACK_REQUEST != 0,
            flags >> 4 & 3,
            flags & _SOLICITED != 0,
            flags & _MIGRATION != 0,
            pkey,
            qp_word & _FECN != 0,
            qp_word & BECN != 0,
        ),
    )
    return bth


def unpack_bth(data: Data) -> tuple[int, int, int, int]:
    """The opcode, flags, and words with QPN and PSN of a BTH, as they stand there. Raises `DecodeError`."""
    try:
        opcode, flags, _, qp_word, psn_word = _unpack_bth(data)
    except struct.error:
        raise truncated("a BTH", BTH_BYTES, len(data)) from None
    return opcode, flags, qp_word, psn_word


class Reth(NamedTuple):
    """The RDMA extended transport header (section 9.3.3), 16 bytes: which remote memory is meant."""

    virtual_address: int
    """64 bits."""
    rkey: int
    """32 bits."""
    length: int
    """Bytes of the whole message, 32 bits."""

    def encode(self) -> bytes:
        """Raises `UsageError`."""
        return _pack(_RETH, self, *self)


def decode_reth(data: Data, offset: int) -> Reth:
    """Raises `DecodeError`."""
    reth: Reth = _new(Reth, _unpack(_RETH, "a RETH", data, offset))
    return reth


class AtomicEth(NamedTuple):
    """The atomic extended transport header (section 9.3.5), 28 bytes."""

    virtual_address: int
    """64 bits, a multiple of 8."""
    rkey: int
    """32 bits."""
    swap_or_add: int
    """The value that is written by COMPARE_SWAP, or added by FETCH_ADD; 64 bits."""
    compare: int
    """The value that COMPARE_SWAP compares with; 64 bits."""

    def encode(self) -> bytes:
        """Raises `UsageError`."""
        return _pack(_ATOMIC, self, *self)


def decode_atomic_eth(data: Data, offset: int) -> AtomicEth:
    """Raises `DecodeError`."""
    atomic: AtomicEth = _new(AtomicEth, _unpack(_ATOMIC, "an AtomicETH", data, offset))
    return atomic


class Aeth(NamedTuple):
    """The ACK extended transport header (section 9.3.5.3), 4 bytes."""

    syndrome: int
    """8 bits: see `syndrome`."""
    msn: int
    """The message sequence number: how many messages the responder has completed, 24 bits."""

    def encode(self) -> bytes:
        """Raises `UsageError`."""
        if not 0 <= self.syndrome <= 0xFF or not 0 <= self.msn <= 0xFF_FFFF:
            raise unfit(self, "syndrome or msn")
        return encode_aeth(self.syndrome, self.msn)


def encode_aeth(syndrome: int, msn: int) -> bytes:
    """An AETH of fields that fit."""
    encoded: bytes = _WORD.pack(syndrome << 24 | msn)
    return encoded


def decode_aeth(data: Data, offset: int) -> Aeth:
    """Raises `DecodeError`."""
    (word,) = _unpack(_WORD, "an AETH", data, offset)
    aeth: Aeth = _new(Aeth, (word >> 24, word & 0xFF_FFFF))
    return aeth


class Deth(NamedTuple):
    """The datagram extended transport header (section 9.3.2), 8 bytes."""

    qkey: int
    """The key that the receiving queue pair must have, 32 bits."""
    source_qp: int
    """The sending queue pair, 24 bits."""

    def encode(self) -> bytes:
        """Raises `UsageError`."""
        if not 0 <= self.source_qp <= QPN_MASK:
            raise unfit(self, "source_qp")
        return _pack(_DETH, self, *self)


def decode_deth(data: Data, offset: int) -> Deth:
    """Raises `DecodeError`."""
    qkey, source_qp = _unpack(_DETH, "a DETH", data, offset)
    return Deth(qkey, source_qp & QPN_MASK)


def encode_atomic_ack(original: int) -> bytes:
    """The atomic ACK extended transport header (section 9.3.6): the value before the operation, 64 bits."""
    return _pack(_DOUBLE_WORD, original, original)


def decode_atomic_ack(data: Data, offset: int) -> int:
    """Raises `DecodeError`."""
    return _unpack(_DOUBLE_WORD, "an AtomicAckETH", data, offset)[0]


def encode_immediate(value: int) -> bytes:
    """Immediate data (section 9.3.4), 32 bits. Raises `UsageError`."""
    return _pack(_WORD, value, value)


def decode_immediate(data: Data, offset: int) -> int:
    """Raises `DecodeError`."""
    return _unpack(_WORD, "ImmDt", data, offset)[0]


def encode_ieth(rkey: int) -> bytes:
    """The invalidate extended transport header (section 9.3.7): the rkey that the receiver is to invalidate."""
    return _pack(_WORD, rkey, rkey)


def decode_ieth(data: Data, offset: int) -> int:
    """Raises `DecodeError`."""
    return _unpack(_WORD, "an IETH", data, offset)[0]
