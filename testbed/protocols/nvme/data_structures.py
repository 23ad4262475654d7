"""The data that administration commands bring: Identify, and log pages. Both directions of each are here.

Sources: NVM Express Base Specification 2.0, figures "Identify Controller Data Structure", "SMART / Health Information",
"Error Information", "Discovery Log Page"; NVM Command Set Specification 1.0, "Identify Namespace Data Structure".
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from testbed.protocols.nvme.commands import Buffer

IDENTIFY_BYTES: Final = 4096
DISCOVERY_ENTRY_BYTES: Final = 1024
ERROR_ENTRY_BYTES: Final = 64
SMART_BYTES: Final = 512
CHANGED_BYTES: Final = 4096
VERSION: Final = 0x01_04_00
"""VS: what this controller keeps to is NVMe 1.4, whose numbers 2.0 has left as they are."""
PAGE_BYTES: Final = 4096
"""CAP.MPSMIN: the unit of MDTS."""
TRTYPE_TCP: Final = 3
_ADRFAM: Final = {4: 1, 6: 2}
_KELVIN: Final = 300
_CONTROLLER_TYPES: Final = {False: 1, True: 2}
IN_CAPSULE_BYTES: Final = 8192
"""Data that a command may bring with it: what Linux assumes of the admin queue anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerData:
    """The fields of Identify Controller that a host needs. Sizes in bytes; `most_transfer` 0: no limit."""

    cntlid: int
    subnqn: str
    serial: str
    model: str = "testbed NVMe/TCP"
    firmware: str = "1"
    namespaces: int = 1
    """NN: no NSID is greater."""
    most_commands: int = 128
    most_transfer: int = 0
    in_capsule: int = IN_CAPSULE_BYTES
    discovery: bool = False
    keep_alive_unit_ms: int = 100
    event_requests: int = 4

    def encode(self) -> bytes:
        data = bytearray(IDENTIFY_BYTES)
        data[4:24] = self.serial.encode().ljust(20)[:20]
        data[24:64] = self.model.encode().ljust(40)[:40]
        data[64:72] = self.firmware.encode().ljust(8)[:8]
        data[76] = 0 if self.discovery else 2  # CMIC: the subsystem may have several controllers
        data[77] = (self.most_transfer // PAGE_BYTES).bit_length() - 1 if self.most_transfer else 0
        struct.pack_into("<HI", data, 78, self.cntlid, VERSION)
        struct.pack_into("<II", data, 92, 0 if self.discovery else 1 << 8, 1 << 6)  # OAES; CTRATT: TBKAS
        data[111] = _CONTROLLER_TYPES[self.discovery]
        data[258] = 3  # ACL
        data[259] = self.event_requests - 1
        data[261] = 4  # LPA: offsets into log pages
        data[262] = 7  # ELPE
        struct.pack_into("<H", data, 320, self.keep_alive_unit_ms // 100)
        if not self.discovery:
            data[512], data[513] = 0x66, 0x44
            struct.pack_into("<I", data, 516, self.namespaces)
            struct.pack_into("<H", data, 520, 1 << 2 | 1 << 3)  # ONCS: Dataset Management, Write Zeroes
            data[525] = 1  # VWC: Flush means something
        struct.pack_into("<H", data, 514, self.most_commands)
        struct.pack_into("<I", data, 536, 1 | 1 << 20)  # SGLS: SGLs, and offsets in the capsule
        data[768:1024] = self.subnqn.encode().ljust(256, b"\0")[:256]
        struct.pack_into("<IIHBB", data, 1792, (64 + self.in_capsule) // 16, 1, 0, 0, 1)
        return bytes(data)


def decode_controller(data: Buffer) -> ControllerData:
    """Decode 4096 bytes."""
    shift = data[77]
    return ControllerData(
        cntlid=struct.unpack_from("<H", data, 78)[0],
        subnqn=_text(data[768:1024]),
        serial=_text(data[4:24]),
        model=_text(data[24:64]),
        firmware=_text(data[64:72]),
        namespaces=struct.unpack_from("<I", data, 516)[0],
        most_commands=struct.unpack_from("<H", data, 514)[0],
        most_transfer=PAGE_BYTES << shift if 0 < shift < 32 else 0,
        in_capsule=min(max(struct.unpack_from("<I", data, 1792)[0] * 16 - 64, 0), 1 << 20),
        discovery=data[111] == _CONTROLLER_TYPES[True],
        keep_alive_unit_ms=100 * struct.unpack_from("<H", data, 320)[0],
        event_requests=data[259] + 1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceData:
    """A namespace as Identify Namespace and its descriptors tell it. `nguid` is what paths to it have in common."""

    nsid: int
    nguid: bytes
    blocks: int
    block_bytes: int = 4096
    read_only: bool = False

    @property
    def size_bytes(self) -> int:
        return self.blocks * self.block_bytes

    def encode(self) -> bytes:
        data = bytearray(IDENTIFY_BYTES)
        struct.pack_into("<QQQ", data, 0, self.blocks, self.blocks, self.blocks)
        data[30] = 1  # NMIC: several controllers may have it
        data[33] = 1  # DLFEAT: deallocated blocks read as zeroes
        data[99] = self.read_only
        data[104:120] = self.nguid
        struct.pack_into("<I", data, 128, (self.block_bytes.bit_length() - 1) << 16)
        return bytes(data)

    def encode_descriptors(self) -> bytes:
        """The list of Identify with CNS 03h: its NGUID."""
        return (bytes([2, 16, 0, 0]) + self.nguid).ljust(IDENTIFY_BYTES, b"\0")


def decode_namespace(nsid: int, data: Buffer) -> NamespaceData | None:
    """Decode 4096 bytes; None for a namespace that is not there, or whose blocks have no size that can be."""
    blocks = struct.unpack_from("<Q", data)[0]
    (form,) = struct.unpack_from("<I", data, 128 + 4 * (data[26] & 0xF))
    shift = form >> 16 & 0xFF
    if not blocks or not 9 <= shift <= 20:
        return None
    nguid = bytes(data[104:120])
    return NamespaceData(nsid=nsid, nguid=nguid, blocks=blocks, block_bytes=1 << shift, read_only=bool(data[99] & 1))


def decode_nguid(data: Buffer) -> bytes | None:
    """The NGUID, else the UUID, of a list of namespace descriptors; None where it has neither."""
    found: dict[int, bytes] = {}
    at = 0
    while at + 4 <= len(data) and data[at]:
        length = data[at + 1]
        found[data[at]] = bytes(data[at + 4 : at + 4 + length])
        at += 4 + length
    return next((found[kind] for kind in (2, 3) if len(found.get(kind, b"")) == 16), None)


def encode_namespace_list(nsids: Iterable[int]) -> bytes:
    """At most 1024 NSIDs, in ascending order: of Identify with CNS 02h, and of the log of those that changed."""
    chosen = sorted(nsids)[: IDENTIFY_BYTES // 4]
    return struct.pack(f"<{len(chosen)}I", *chosen).ljust(IDENTIFY_BYTES, b"\0")


def decode_namespace_list(data: Buffer) -> list[int]:
    return [nsid for (nsid,) in struct.iter_unpack("<I", data) if nsid]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryEntry:
    """An entry of the discovery log: a subsystem, and an address at which it is had."""

    subnqn: str
    address: str
    port: int
    port_id: int = 1
    entries: int = 128

    def encode(self) -> bytes:
        family = _ADRFAM[6 if ":" in self.address else 4]
        head = struct.pack("<BBBBHHHH", TRTYPE_TCP, family, 2, 0, self.port_id, 0xFFFF, self.entries, 0)
        service = str(self.port).encode().ljust(32)
        body = head.ljust(32, b"\0") + service.ljust(224, b"\0") + self.subnqn.encode().ljust(256, b"\0")
        return (body + self.address.encode().ljust(256)).ljust(DISCOVERY_ENTRY_BYTES, b"\0")


def encode_discovery_log(generation: int, entries: Iterable[DiscoveryEntry]) -> bytes:
    """All of the log page: a header, and the entries."""
    listed = [entry.encode() for entry in entries]
    header = struct.pack("<QQH", generation, len(listed), 0).ljust(DISCOVERY_ENTRY_BYTES, b"\0")
    return header + b"".join(listed)


def decode_discovery_log(data: Buffer) -> list[DiscoveryEntry]:
    """The subsystems of a discovery log that are had over TCP; entries that `data` cuts off are left out."""
    found = []
    (count,) = struct.unpack_from("<Q", data, 8)
    for index in range(1, min(count, len(data) // DISCOVERY_ENTRY_BYTES - 1) + 1):
        entry = data[index * DISCOVERY_ENTRY_BYTES : (index + 1) * DISCOVERY_ENTRY_BYTES]
        service = _text(entry[32:64])
        if entry[0] != TRTYPE_TCP or not service.isdecimal():
            continue
        port_id, _, entries = struct.unpack_from("<HHH", entry, 4)
        found.append(
            DiscoveryEntry(
                subnqn=_text(entry[256:512]),
                address=_text(entry[512:768]),
                port=int(service),
                port_id=port_id,
                entries=entries,
            )
        )
    return found


@dataclass(slots=True)
class Usage:
    """The work that a controller has done: the SMART log counts it."""

    read_bytes: int = 0
    written_bytes: int = 0
    reads: int = 0
    writes: int = 0
    media_errors: int = 0
    errors: int = 0

    def encode(self) -> bytes:
        data = bytearray(SMART_BYTES)
        struct.pack_into("<BHBB", data, 0, 0, _KELVIN, 100, 10)
        units = (-(-self.read_bytes // 512_000), -(-self.written_bytes // 512_000), self.reads, self.writes)
        for at, count in zip(range(32, 96, 16), units, strict=True):
            data[at : at + 16] = count.to_bytes(16, "little")
        data[160:176] = self.media_errors.to_bytes(16, "little")
        data[176:192] = self.errors.to_bytes(16, "little")
        return bytes(data)


@dataclass(frozen=True, slots=True)
class ErrorEntry:
    """An entry of the error log."""

    count: int
    sqid: int
    cid: int
    status: int
    lba: int
    nsid: int

    def encode(self) -> bytes:
        head = struct.pack("<QHHHHQI", self.count, self.sqid, self.cid, self.status << 1, 0xFFFF, self.lba, self.nsid)
        return head.ljust(ERROR_ENTRY_BYTES, b"\0")


def _text(field: Buffer) -> str:
    return bytes(field).split(b"\0", 1)[0].decode(errors="replace").strip()
