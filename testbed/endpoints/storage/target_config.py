"""What a target process is to serve: a JSON document, and its checks.

{"listen": [{"address": "10.5.0.1", "port": 4420}],
 "subsystems": [{"nqn": "nqn.2026-01.lab:st1", "allowed_hosts": ["nqn.2026-01.lab:h1"],
                 "namespaces": [{"size": 1073741824, "backend": "memory",
                                 "media": {"rate": 50000000, "latency_us": 100, "depth": 32}}]}]}
"""

from __future__ import annotations

import hashlib
import ipaddress
import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from testbed.base.program_errors import ProgramError
from testbed.base.typed_json import convert
from testbed.endpoints.storage.backends import Backend, FileBackend, MemoryBackend, PatternBackend
from testbed.endpoints.storage.media import MediaConfig
from testbed.protocols.nvme.config import ControllerConfig
from testbed.protocols.nvme.data_structures import NamespaceData

Amount = Annotated[int, Meta(ge=0, le=1 << 62)]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceConfig:
    """`nguid` is what targets with the same namespace have in common; by default it follows from NQN and NSID."""

    nsid: int
    size: int
    nguid: bytes
    backend: str = "memory"
    path: str = ""
    """Of a file."""
    seed: int = 0
    """Of a pattern."""
    block: int = 4096
    media: MediaConfig = field(default_factory=MediaConfig)

    def open(self) -> Backend:
        """Raises `OSError`."""
        if self.backend == "file":
            return FileBackend(Path(self.path), self.size)
        return MemoryBackend(self.size) if self.backend == "memory" else PatternBackend(self.size, self.seed)

    def describe(self) -> NamespaceData:
        return NamespaceData(
            nsid=self.nsid,
            nguid=self.nguid,
            blocks=self.size // self.block,
            block_bytes=self.block,
            read_only=self.backend == "pattern",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SubsystemConfig:
    nqn: str
    namespaces: tuple[NamespaceConfig, ...]
    allowed_hosts: frozenset[str] | None = None
    first_cntlid: int = 1

    @property
    def serial(self) -> str:
        return hashlib.sha256(self.nqn.encode()).hexdigest()[:20]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetConfig:
    listen: tuple[tuple[str, int], ...]
    subsystems: tuple[SubsystemConfig, ...]
    controller: ControllerConfig = field(default_factory=ControllerConfig)
    most_connections: int = 1024
    under_way_bytes: int = 32 << 20
    """Data of one connection that are on their way in or out of memory of their own."""


class _Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An object of the document; fields with a default may be left out."""


class _Listen(_Part, frozen=True, kw_only=True):
    address: str
    port: Annotated[int, Meta(ge=0, le=65535)] = 4420

    def __post_init__(self) -> None:
        ipaddress.ip_address(self.address)


class _Media(_Part, frozen=True, kw_only=True):
    rate: Amount = 0
    latency_us: Annotated[int, Meta(ge=0, le=60_000_000)] = 0
    depth: Annotated[int, Meta(ge=0, le=1 << 16)] = 0


class _Namespace(_Part, frozen=True, kw_only=True):
    size: Annotated[int, Meta(ge=512, le=1 << 50)]
    backend: Literal["memory", "file", "pattern"] = "memory"
    path: Annotated[str, Meta(max_length=4096)] = ""
    seed: Amount = 0
    block: Literal[512, 4096] = 4096
    media: _Media = _Media()
    nguid: Annotated[str, Meta(pattern="^([0-9a-fA-F]{32})?$")] = ""

    def __post_init__(self) -> None:
        if self.size % self.block:
            raise ValueError(f"size: {self.size} is no multiple of the block, {self.block}")
        if bool(self.path) is not (self.backend == "file"):
            raise ValueError("path: a file needs one, and nothing else has one")
        if self.nguid and not int(self.nguid, 16):
            raise ValueError("nguid: 32 hexadecimal digits that are not all 0 are expected")

    def numbered(self, nqn: str, nsid: int) -> NamespaceConfig:
        """Return it as the namespace of this number; without an NGUID it has one that follows from the names."""
        return NamespaceConfig(
            nsid=nsid,
            size=self.size,
            nguid=bytes.fromhex(self.nguid) or uuid.uuid5(uuid.NAMESPACE_URL, f"{nqn}#{nsid}").bytes,
            backend=self.backend,
            path=self.path,
            seed=self.seed,
            block=self.block,
            media=MediaConfig(**msgspec.structs.asdict(self.media)),
        )


class _Subsystem(_Part, frozen=True, kw_only=True):
    nqn: Annotated[str, Meta(max_length=223, pattern=r"^nqn\.")]
    namespaces: Annotated[list[_Namespace], Meta(min_length=1, max_length=1024)]
    allowed_hosts: frozenset[str] | None = None
    first_cntlid: Annotated[int, Meta(ge=1, le=0xFFEF)] = 1


class _Document(_Part, frozen=True, kw_only=True):
    listen: Annotated[list[_Listen], Meta(min_length=1)]
    subsystems: Annotated[list[_Subsystem], Meta(min_length=1)]
    controller: ControllerConfig = ControllerConfig()
    most_connections: Annotated[int, Meta(ge=1, le=1 << 16)] = 1024
    under_way_bytes: Annotated[int, Meta(ge=1 << 20, le=1 << 62)] = 32 << 20


def parse_target_config(document: object) -> TargetConfig:
    """Check a document. Raises `ProgramError` with the path of the first key that is wrong."""
    found: _Document = convert(_Document, document, "")
    subsystems = tuple(
        SubsystemConfig(
            nqn=item.nqn,
            namespaces=tuple(one.numbered(item.nqn, nsid) for nsid, one in enumerate(item.namespaces, 1)),
            allowed_hosts=item.allowed_hosts,
            first_cntlid=item.first_cntlid,
        )
        for item in found.subsystems
    )
    names = [item.nqn for item in subsystems]
    if len(set(names)) < len(names):
        raise ProgramError("subsystems", "two have the same nqn")
    first: dict[bytes, NamespaceConfig] = {}
    for one in (namespace for subsystem in subsystems for namespace in subsystem.namespaces):
        same = first.setdefault(one.nguid, one)
        if replace(one, nsid=same.nsid) != same:
            raise ProgramError("subsystems", f"namespaces with the nguid {one.nguid.hex()} differ")
    return TargetConfig(
        listen=tuple((item.address, item.port) for item in found.listen),
        subsystems=subsystems,
        controller=found.controller,
        most_connections=found.most_connections,
        under_way_bytes=found.under_way_bytes,
    )
