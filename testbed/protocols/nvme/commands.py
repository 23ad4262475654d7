"""Commands as a host writes them into a submission queue entry (SQE), and the completion (CQE) of each.

An SQE has 64 bytes: opcode, a command identifier (CID) that the queue gives, a namespace (NSID), one SGL descriptor
that says how data travel, and six words whose meaning is the command's own (CDW10 to CDW15). Sources: NVM Express Base
Specification 2.0, whose figures are named after the structures and commands; NVM Command Set Specification 1.0.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from testbed.protocols.errors import UsageError
from testbed.protocols.nvme.codes import (
    DO_NOT_RETRY,
    EVERY_NSID,
    FABRICS_OPCODE,
    AdminOpcode,
    Cns,
    FabricsType,
    Feature,
    IoOpcode,
    LogPage,
    Property,
    SglType,
    status_name,
)

Buffer = bytes | bytearray | memoryview
_SQE: Final = struct.Struct("<BBHI16xQI3xB6I")
_CQE: Final = struct.Struct("<QHHHH")
_USES_SGL: Final = 0x40
"""PSDT of the flags: DPTR is an SGL descriptor, as it always is over fabrics."""
_DEALLOCATE: Final = 4
_RANGE: Final = struct.Struct("<IIQ")
MOST_RANGES: Final = 256
_CONNECT: Final = struct.Struct("<16sH238x256s256s256x")
CONNECT_DATA_BYTES: Final = 1024
NO_FLOW_CONTROL: Final = 4
"""CATTR bit 2 of Connect: the host wants no SQ flow control."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sqe:
    """A submission queue entry. Words that a command does not use are 0."""

    opcode: int
    cid: int = 0
    nsid: int = 0
    sgl_address: int = 0
    sgl_length: int = 0
    sgl_type: int = SglType.TRANSPORT
    cdw10: int = 0
    cdw11: int = 0
    cdw12: int = 0
    cdw13: int = 0
    cdw14: int = 0
    cdw15: int = 0
    flags: int = _USES_SGL

    @property
    def fctype(self) -> int:
        """Fabrics commands have their type where others have a namespace."""
        return self.nsid & 0xFF

    @property
    def slba(self) -> int:
        """First block of a command on blocks."""
        return self.cdw10 | self.cdw11 << 32

    @property
    def blocks(self) -> int:
        """NLB, which counts from zero, as a number of blocks."""
        return (self.cdw12 & 0xFFFF) + 1

    @property
    def to_controller(self) -> bool:
        """Data, if it has any, go from the host to the controller."""
        return (self.fctype if self.opcode == FABRICS_OPCODE else self.opcode) & 3 == 1


def encode_sqe(sqe: Sqe, cid: int, length: int, *, in_capsule: bool) -> bytes:
    """The 64 bytes of `sqe` as command `cid` with `length` bytes of data."""
    kind = SglType.IN_CAPSULE if in_capsule else SglType.TRANSPORT
    return _SQE.pack(
        sqe.opcode, sqe.flags, cid, sqe.nsid, 0, length, kind,
        sqe.cdw10, sqe.cdw11, sqe.cdw12, sqe.cdw13, sqe.cdw14, sqe.cdw15,
    )  # fmt: skip


def decode_sqe(view: memoryview, offset: int = 0) -> Sqe:
    """Decode 64 bytes, any of which are an SQE."""
    opcode, flags, cid, nsid, address, length, kind, c10, c11, c12, c13, c14, c15 = _SQE.unpack_from(view, offset)
    return Sqe(
        opcode=opcode, flags=flags, cid=cid, nsid=nsid, sgl_address=address, sgl_length=length, sgl_type=kind,
        cdw10=c10, cdw11=c11, cdw12=c12, cdw13=c13, cdw14=c14, cdw15=c15,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cqe:
    """A completion queue entry. `status` has SCT and SC (`codes.Status`), with DNR above."""

    result: int
    sqhd: int
    sqid: int
    cid: int
    status: int

    @property
    def good(self) -> bool:
        return self.status & 0x7FF == 0

    @property
    def final(self) -> bool:
        """Doing it again would not help."""
        return bool(self.status & DO_NOT_RETRY)

    def __str__(self) -> str:
        return status_name(self.status) + (", do not retry" if self.final else "")


def encode_cqe(cqe: Cqe) -> bytes:
    return _CQE.pack(cqe.result, cqe.sqhd, cqe.sqid, cqe.cid, cqe.status << 1)


def decode_cqe(view: memoryview, offset: int = 0) -> Cqe:
    """Decode 16 bytes, any of which are a CQE."""
    result, sqhd, sqid, cid, status = _CQE.unpack_from(view, offset)
    return Cqe(result, sqhd, sqid, cid, status >> 1)


# --- NVM command set ----------------------------------------------------------------------------------


def _on_blocks(opcode: IoOpcode, nsid: int, slba: int, blocks: int) -> Sqe:
    if not 1 <= blocks <= 1 << 16:
        raise UsageError(f"a command is of 1 to 65536 blocks, not {blocks}")
    return Sqe(opcode=opcode, nsid=nsid, cdw10=slba & 0xFFFF_FFFF, cdw11=slba >> 32, cdw12=blocks - 1)


def read_command(nsid: int, slba: int, blocks: int) -> Sqe:
    return _on_blocks(IoOpcode.READ, nsid, slba, blocks)


def write_command(nsid: int, slba: int, blocks: int) -> Sqe:
    return _on_blocks(IoOpcode.WRITE, nsid, slba, blocks)


def write_zeroes_command(nsid: int, slba: int, blocks: int) -> Sqe:
    return _on_blocks(IoOpcode.WRITE_ZEROES, nsid, slba, blocks)


def flush_command(nsid: int) -> Sqe:
    return Sqe(opcode=IoOpcode.FLUSH, nsid=nsid)


def deallocate_command(nsid: int, ranges: int) -> Sqe:
    """Dataset Management that deallocates so many ranges, which its data name (`encode_ranges`)."""
    if not 1 <= ranges <= MOST_RANGES:
        raise UsageError(f"a command is of 1 to {MOST_RANGES} ranges, not {ranges}")
    return Sqe(opcode=IoOpcode.DATASET_MANAGEMENT, nsid=nsid, cdw10=ranges - 1, cdw11=_DEALLOCATE)


def encode_ranges(ranges: Iterable[tuple[int, int]]) -> bytes:
    """Ranges, each a first block and a number of blocks, as data of Dataset Management."""
    return b"".join(_RANGE.pack(0, blocks, slba) for slba, blocks in ranges)


def decode_ranges(sqe: Sqe, data: Buffer) -> list[tuple[int, int]]:
    """The ranges that are to be deallocated; none where the command only gives advice."""
    count = (sqe.cdw10 & 0xFF) + 1
    if not sqe.cdw11 & _DEALLOCATE:
        return []
    return [(slba, blocks) for _, blocks, slba in _RANGE.iter_unpack(data[: count * _RANGE.size])]


# --- administration -----------------------------------------------------------------------------------


def identify_command(cns: Cns, nsid: int = 0) -> Sqe:
    return Sqe(opcode=AdminOpcode.IDENTIFY, nsid=nsid, cdw10=cns)


def get_log_page_command(page: LogPage, length: int, offset: int = 0, nsid: int = EVERY_NSID) -> Sqe:
    """Ask for `length` bytes, a multiple of 4, from `offset` on."""
    words = length // 4 - 1
    return Sqe(
        opcode=AdminOpcode.GET_LOG_PAGE,
        nsid=nsid,
        cdw10=page | (words & 0xFFFF) << 16,
        cdw11=words >> 16,
        cdw12=offset & 0xFFFF_FFFF,
        cdw13=offset >> 32,
    )


def set_features_command(feature: Feature, value: int) -> Sqe:
    return Sqe(opcode=AdminOpcode.SET_FEATURES, cdw10=feature, cdw11=value)


def get_features_command(feature: Feature) -> Sqe:
    return Sqe(opcode=AdminOpcode.GET_FEATURES, cdw10=feature)


def keep_alive_command() -> Sqe:
    return Sqe(opcode=AdminOpcode.KEEP_ALIVE)


def async_event_command() -> Sqe:
    return Sqe(opcode=AdminOpcode.ASYNC_EVENT_REQUEST)


def abort_command(sqid: int, cid: int) -> Sqe:
    return Sqe(opcode=AdminOpcode.ABORT, cdw10=sqid | cid << 16)


# --- fabrics ------------------------------------------------------------------------------------------


def connect_command(qid: int, entries: int, kato_ms: int, *, flow_control: bool) -> Sqe:
    """Connect of queue `qid` with so many entries."""
    attributes = 0 if flow_control else NO_FLOW_CONTROL
    return Sqe(
        opcode=FABRICS_OPCODE,
        nsid=FabricsType.CONNECT,
        cdw10=qid << 16,
        cdw11=(entries - 1) | attributes << 16,
        cdw12=kato_ms,
    )


def property_get_command(offset: Property) -> Sqe:
    return Sqe(opcode=FABRICS_OPCODE, nsid=FabricsType.PROPERTY_GET, cdw10=int(offset == Property.CAP), cdw11=offset)


def property_set_command(offset: Property, value: int) -> Sqe:
    return Sqe(opcode=FABRICS_OPCODE, nsid=FabricsType.PROPERTY_SET, cdw11=offset, cdw12=value)


def disconnect_command() -> Sqe:
    return Sqe(opcode=FABRICS_OPCODE, nsid=FabricsType.DISCONNECT)


@dataclass(frozen=True, slots=True)
class ConnectData:
    """The data of Connect. A `cntlid` of FFFFh asks for any controller."""

    hostid: bytes
    cntlid: int
    subnqn: str
    hostnqn: str

    def encode(self) -> bytes:
        return _CONNECT.pack(self.hostid, self.cntlid, self.subnqn.encode(), self.hostnqn.encode())


def decode_connect_data(data: Buffer) -> ConnectData:
    """Decode 1024 bytes; names end with their first zero, and bytes that are no UTF-8 become question marks."""
    hostid, cntlid, subnqn, hostnqn = _CONNECT.unpack_from(data)
    return ConnectData(hostid, cntlid, _text(subnqn), _text(hostnqn))


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode(errors="replace")
