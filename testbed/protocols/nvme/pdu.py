"""The PDUs of NVMe/TCP: their headers, and the rules that a header alone can break.

Every PDU begins with a common header: PDU-Type, FLAGS, HLEN (bytes of the header without its digest), PDO (where data
begins, counted from the PDU's start; 0 without data) and PLEN (bytes of the whole PDU). After HLEN bytes follow the
header digest (if both sides agreed on it), padding up to PDO, data, and the data digest.

All is little-endian. Source: NVMe over TCP Transport Specification 1.0, PDU definitions: a figure for each PDU, which
has its name.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from testbed.protocols.errors import TransportError
from testbed.protocols.nvme.codes import FatalErrorStatus, PduFlag, PduType
from testbed.protocols.nvme.digest import DIGEST_BYTES, compute_digest, encode_digest

COMMON: Final = struct.Struct("<BBBBI")
COMMON_BYTES: Final = 8
IC_BYTES: Final = 128
SQE_BYTES: Final = 64
CQE_BYTES: Final = 16
TERM_HEADER_BYTES: Final = 24
MOST_TERM_DATA: Final = 128
"""The most bytes of the PDU that was wrong that go back with a termination."""
DATA_HEADER_BYTES: Final = 24
MOST_PDA: Final = 31
"""Alignment of data in units of 4 bytes, counted from zero."""
_IC: Final = struct.Struct("<HBBI")
_DATA: Final = struct.Struct("<HHIII")
_TERM: Final = struct.Struct("<HI10x")

HLEN: Final[dict[int, int]] = {
    PduType.IC_REQ: IC_BYTES,
    PduType.IC_RESP: IC_BYTES,
    PduType.H2C_TERM_REQ: TERM_HEADER_BYTES,
    PduType.C2H_TERM_REQ: TERM_HEADER_BYTES,
    PduType.CAPSULE_CMD: COMMON_BYTES + SQE_BYTES,
    PduType.CAPSULE_RESP: COMMON_BYTES + CQE_BYTES,
    PduType.H2C_DATA: DATA_HEADER_BYTES,
    PduType.C2H_DATA: DATA_HEADER_BYTES,
    PduType.R2T: DATA_HEADER_BYTES,
}
TO_CONTROLLER: Final = frozenset({PduType.IC_REQ, PduType.H2C_TERM_REQ, PduType.CAPSULE_CMD, PduType.H2C_DATA})
TO_HOST: Final = frozenset({PduType.IC_RESP, PduType.C2H_TERM_REQ, PduType.CAPSULE_RESP, PduType.C2H_DATA, PduType.R2T})
_WITH_DATA: Final = frozenset({PduType.CAPSULE_CMD, PduType.H2C_DATA, PduType.C2H_DATA})
_WITHOUT_DIGEST: Final = frozenset({PduType.IC_REQ, PduType.IC_RESP, PduType.H2C_TERM_REQ, PduType.C2H_TERM_REQ})


class Field:
    """The offset of a field in its PDU: what FEI says of one that is wrong."""

    TYPE = 0
    FLAGS = 1
    HLEN = 2
    PDO = 3
    PLEN = 4
    PFV = 8
    PDA = 10
    DGST = 11
    MAX = 12
    """MAXR2T or MAXH2CDATA."""
    CCCID = 8
    TTAG = 10
    DATA_OFFSET = 12
    DATA_LENGTH = 16
    CQE_CID = 8 + 12


class FatalError(TransportError):
    """The peer breaks the protocol, so that the connection ends with a termination PDU: FES, and FEI to it."""

    def __init__(self, status: FatalErrorStatus, information: int, reason: str) -> None:
        super().__init__(f"{status.name.lower().replace('_', ' ')} ({information:#x}): {reason}")
        self.status = status
        self.information = information
        self.reason = reason


def invalid_field(field: int, reason: str) -> FatalError:
    """The field at `field` of a PDU's header is not what it may be."""
    return FatalError(FatalErrorStatus.INVALID_PDU_HEADER_FIELD, field, reason)


def sequence_error(reason: str) -> FatalError:
    """A PDU that may not come now."""
    return FatalError(FatalErrorStatus.PDU_SEQUENCE_ERROR, 0, reason)


@dataclass(frozen=True, slots=True)
class Layout:
    """The agreement of both sides of a connection. `pda` is the alignment that the receiver of data asked for, in
    bytes."""

    header_digest: bool = False
    data_digest: bool = False
    pda_bytes: int = 4

    def data_offset(self, header: int) -> int:
        """PDO of a PDU with data whose header has so many bytes."""
        at = header + DIGEST_BYTES * self.header_digest
        return -(-at // self.pda_bytes) * self.pda_bytes


@dataclass(frozen=True, slots=True)
class Header:
    """A common header that holds what its type allows. `data` counts bytes, without their digest."""

    kind: PduType
    flags: int
    hlen: int
    pdo: int
    plen: int
    header_digest: bool
    data_digest: bool

    @property
    def data(self) -> int:
        return self.plen - self.pdo - DIGEST_BYTES * self.data_digest if self.pdo else 0


def decode_header(view: memoryview, allowed: frozenset[PduType], layout: Layout, most_data: int) -> Header:
    """Decode a common header of 8 bytes. Raises `FatalError`.

    `allowed` are the types that may come in this direction, `most_data` the bytes of data a PDU may bring.
    """
    number, flags, hlen, pdo, plen = COMMON.unpack_from(view)
    if number not in HLEN or number not in allowed:
        raise invalid_field(Field.TYPE, f"type {number:#04x}")
    kind = PduType(number)
    if hlen != HLEN[kind]:
        raise invalid_field(Field.HLEN, f"HLEN {hlen} of {kind.name}")
    if kind in _WITHOUT_DIGEST:
        _check_plain(kind, pdo, plen)
        return Header(kind, flags, hlen, 0, plen, False, False)
    digest = bool(flags & PduFlag.HDGST)
    if digest is not layout.header_digest:
        raise invalid_field(Field.FLAGS, "HDGST is not as agreed")
    bare = hlen + DIGEST_BYTES * digest
    if kind not in _WITH_DATA or (kind is PduType.CAPSULE_CMD and plen == bare):
        if plen != bare:
            raise invalid_field(Field.PLEN, f"PLEN {plen} of {kind.name}")
        # PDO is reserved without data; Linux gives it all the same.
        return Header(kind, flags, hlen, 0, plen, digest, False)
    trailer = DIGEST_BYTES * bool(flags & PduFlag.DDGST)
    if bool(trailer) is not layout.data_digest:
        raise invalid_field(Field.FLAGS, "DDGST is not as agreed")
    if pdo < bare or pdo % layout.pda_bytes:
        raise invalid_field(Field.PDO, f"PDO {pdo} of {kind.name}")
    data = plen - pdo - trailer
    if data <= 0 or pdo - bare > 4 * (MOST_PDA + 1):
        raise invalid_field(Field.PLEN, f"PLEN {plen} of {kind.name}")
    if data > most_data:
        raise FatalError(
            FatalErrorStatus.DATA_TRANSFER_LIMIT_EXCEEDED, 0, f"{data} bytes of data, {most_data} may come"
        )
    return Header(kind, flags, hlen, pdo, plen, digest, bool(trailer))


def _check_plain(kind: PduType, pdo: int, plen: int) -> None:
    if kind in (PduType.H2C_TERM_REQ, PduType.C2H_TERM_REQ):
        if not TERM_HEADER_BYTES <= plen <= TERM_HEADER_BYTES + MOST_TERM_DATA:
            raise invalid_field(Field.PLEN, f"PLEN {plen} of {kind.name}")
    elif plen != IC_BYTES:
        raise invalid_field(Field.PLEN, f"PLEN {plen} of {kind.name}")
    elif pdo:
        raise invalid_field(Field.PDO, f"PDO {pdo} of {kind.name}")


def check_header_digest(view: memoryview, header: Header) -> None:
    """`view` begins with a PDU's header and its digest. Raises `FatalError`, with the digest received as FEI."""
    if not header.header_digest:
        return
    found = int.from_bytes(view[header.hlen : header.hlen + DIGEST_BYTES], "little")
    if compute_digest(view[: header.hlen]) != found:
        raise FatalError(FatalErrorStatus.HEADER_DIGEST_ERROR, found, "the header's digest is wrong")


def encode_pdu(kind: PduType, body: bytes, layout: Layout, *, data: int = 0, flags: int = 0) -> bytes:
    """All of a PDU that comes before its data: header, digest, padding. `body` is the header after the common one."""
    hlen = COMMON_BYTES + len(body)
    pdo = plen = 0
    if layout.header_digest:
        flags |= PduFlag.HDGST
        plen = DIGEST_BYTES
    plen += hlen
    if data:
        pdo = layout.data_offset(hlen)
        plen = pdo + data
        if layout.data_digest:
            flags |= PduFlag.DDGST
            plen += DIGEST_BYTES
    header = COMMON.pack(kind, flags, hlen, pdo, plen) + body
    if layout.header_digest:
        header += encode_digest(compute_digest(header))
    return header.ljust(pdo, b"\0")


@dataclass(frozen=True, slots=True)
class Initialize:
    """ICReq or ICResp: `limit` is MAXR2T (from zero) of the one, MAXH2CDATA of the other.

    `pda` asks that data sent to who writes this begin at a multiple of (pda + 1) * 4 bytes.
    """

    pfv: int = 0
    pda: int = 0
    header_digest: bool = False
    data_digest: bool = False
    limit: int = 0

    def encode(self, kind: PduType) -> bytes:
        digests = self.header_digest | self.data_digest << 1
        body = _IC.pack(self.pfv, self.pda, digests, self.limit)
        return (COMMON.pack(kind, 0, IC_BYTES, 0, IC_BYTES) + body).ljust(IC_BYTES, b"\0")


def decode_initialize(view: memoryview) -> Initialize:
    """Decode an ICReq or ICResp of 128 bytes. Raises `FatalError`."""
    pfv, pda, digests, limit = _IC.unpack_from(view, COMMON_BYTES)
    if pfv:
        raise FatalError(FatalErrorStatus.UNSUPPORTED_PARAMETER, Field.PFV, f"PDU format version {pfv}")
    if pda > MOST_PDA:
        raise invalid_field(Field.PDA, f"alignment {pda}")
    return Initialize(pfv, pda, bool(digests & 1), bool(digests & 2), limit)


@dataclass(frozen=True, slots=True)
class TransferHeader:
    """The header of H2CData, C2HData or R2T. `ttag` is 0 in C2HData."""

    cid: int
    ttag: int
    offset: int
    length: int

    def encode(self) -> bytes:
        return _DATA.pack(self.cid, self.ttag, self.offset, self.length, 0)


def decode_transfer(view: memoryview) -> TransferHeader:
    """Decode what follows the common header of H2CData, C2HData or R2T."""
    cid, ttag, offset, length, _ = _DATA.unpack_from(view, COMMON_BYTES)
    return TransferHeader(cid, ttag, offset, length)


@dataclass(frozen=True, slots=True)
class Termination:
    """H2CTermReq or C2HTermReq."""

    status: int
    information: int

    @property
    def name(self) -> str:
        """The specification's name of its FES."""
        try:
            return FatalErrorStatus(self.status).name.lower().replace("_", " ")
        except ValueError:
            return f"FES {self.status:02x}h"


def decode_termination(view: memoryview) -> Termination:
    """Decode what follows the common header of H2CTermReq or C2HTermReq."""
    return Termination(*_TERM.unpack_from(view, COMMON_BYTES))


def encode_termination(kind: PduType, error: FatalError, offending: bytes) -> bytes:
    """A termination. `offending` is the PDU with the error, as far as it is there."""
    data = offending[:MOST_TERM_DATA]
    body = _TERM.pack(error.status, error.information)
    return COMMON.pack(kind, 0, TERM_HEADER_BYTES, 0, TERM_HEADER_BYTES + len(data)) + body + data
