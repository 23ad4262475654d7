"""The configuration of a target process: a JSON document, and its checks.

{"listen": [{"address": "10.5.0.1", "port": 4420}],
 "subsystems": [{"nqn": "nqn.2026-01.lab:st1", "allowed_hosts": ["nqn.2026-01.lab:h1"],
                 "namespaces": [{"size": 1073741824, "backend": "memory",
                                 "media": {"rate": 50000000, "latency_us": 100, "depth": 32}}]}]}
"""

from __future__ import annotations

import hashlib
import ipaddress
import uuid
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from testbed.base.program_errors import ProgramError
from testbed.base.typed_json import convert
from testbed.endpoints.storage.backends import Backend, FileBackend, MemoryBackend, PatternBackend
from testbed.endpoints.storage.media import MediaConfig
from testbed.protocols.nvme.config import ControllerConfig
from testbed.protocols.nvme.data_structures import NamespaceData


class _Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An object of the document; fields with a default may be left out."""


class ListenAddress(_Part, frozen=True, kw_only=True):
    address: str
    port: Annotated[int, Meta(ge=0, le=65535)] = 4420

    def __post_init__(self) -> None:
        ipaddress.ip_address(self.address)


class NamespaceConfig(_Part, frozen=True, kw_only=True):
    size: Annotated[int, Meta(ge=512, le=1 << 50)]
    backend: Literal["memory", "file", "pattern"] = "memory"
    path: Annotated[str, Meta(max_length=4096)] = ""
    """The path of a file."""
    seed: Annotated[int, Meta(ge=0, le=1 << 62)] = 0
    """The seed of a pattern."""
    block: Literal[512, 4096] = 4096
    media: MediaConfig = MediaConfig()
    nguid: Annotated[str, Meta(pattern="^([0-9a-fA-F]{32})?$")] = ""
    """Targets with the same namespace have it in common; by default it follows from NQN and NSID."""

    def __post_init__(self) -> None:
        if self.size % self.block:
            raise ValueError(f"size: {self.size} is no multiple of the block, {self.block}")
        if bool(self.path) is not (self.backend == "file"):
            raise ValueError("path: a file needs one, and nothing else has one")
        if self.nguid and not int(self.nguid, 16):
            raise ValueError("nguid: 32 hexadecimal digits that are not all 0 are expected")

    def open(self) -> Backend:
        """Raises `OSError`."""
        if self.backend == "file":
            return FileBackend(Path(self.path), self.size)
        return MemoryBackend(self.size) if self.backend == "memory" else PatternBackend(self.size, self.seed)


class SubsystemConfig(_Part, frozen=True, kw_only=True):
    nqn: Annotated[str, Meta(max_length=223, pattern=r"^nqn\.")]
    namespaces: Annotated[tuple[NamespaceConfig, ...], Meta(min_length=1, max_length=1024)]
    """Their NSIDs count from 1."""
    allowed_hosts: frozenset[str] | None = None
    first_cntlid: Annotated[int, Meta(ge=1, le=0xFFEF)] = 1

    @property
    def serial(self) -> str:
        return hashlib.sha256(self.nqn.encode()).hexdigest()[:20]

    def describe(self) -> list[NamespaceData]:
        """Return what hosts are told of its namespaces."""
        return [
            NamespaceData(
                nsid=nsid,
                nguid=bytes.fromhex(one.nguid) or uuid.uuid5(uuid.NAMESPACE_URL, f"{self.nqn}#{nsid}").bytes,
                blocks=one.size // one.block,
                block_bytes=one.block,
                read_only=one.backend == "pattern",
            )
            for nsid, one in enumerate(self.namespaces, 1)
        ]


class TargetConfig(_Part, frozen=True, kw_only=True):
    listen: Annotated[tuple[ListenAddress, ...], Meta(min_length=1)]
    subsystems: Annotated[tuple[SubsystemConfig, ...], Meta(min_length=1)]
    controller: ControllerConfig = ControllerConfig()
    most_connections: Annotated[int, Meta(ge=1, le=1 << 16)] = 1024
    under_way_bytes: Annotated[int, Meta(ge=1 << 20, le=1 << 62)] = 32 << 20
    """Data of one connection that are on their way in or out of memory of their own."""


def parse_target_config(document: object) -> TargetConfig:
    """Check a document. Raises `ProgramError` with the path of the first key that is wrong."""
    found: TargetConfig = convert(TargetConfig, document, "")
    if len({item.nqn for item in found.subsystems}) < len(found.subsystems):
        raise ProgramError("subsystems", "two have the same nqn")
    first: dict[bytes, NamespaceConfig] = {}
    for subsystem in found.subsystems:
        for one, described in zip(subsystem.namespaces, subsystem.describe(), strict=True):
            if first.setdefault(described.nguid, one) != one:
                raise ProgramError("subsystems", f"namespaces with the nguid {described.nguid.hex()} differ")
    return found
