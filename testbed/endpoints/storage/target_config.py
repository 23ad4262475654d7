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
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from testbed.endpoints.storage.backends import Backend, FileBackend, MemoryBackend, PatternBackend
from testbed.endpoints.storage.media import MediaConfig
from testbed.protocols.nvme.config import ControllerConfig
from testbed.protocols.nvme.data_structures import NamespaceData

BACKENDS = ("memory", "file", "pattern")
MOST_NAMESPACES = 1024
_BLOCKS = (512, 4096)
_LIMITS = {
    "cpda": (0, 31),
    "queue_entries": (2, 4096),
    "most_io_queues": (1, 1024),
    "most_transfer": (4096, 1 << 27),
    "max_h2c_data": (4096, 1 << 30),
    "r2t_bytes": (4096, 1 << 30),
    "c2h_data_bytes": (4096, 1 << 30),
}


class ConfigError(Exception):
    """A key of the document, by its path, does not hold what it may."""


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


class _Table:
    """A JSON object at a path, of which every key must be asked for."""

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, Mapping):
            raise ConfigError(f"{path or 'the document'}: an object is expected")
        self._value: Mapping[str, Any] = value
        self._path = path
        self._asked: set[str] = set()

    def at(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def integer(self, key: str, default: int | None, least: int = 0, most: int = 1 << 62) -> int:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ConfigError(f"{self.at(key)}: an integer from {least} to {most} is expected, not {value!r}")
        return value

    def boolean(self, key: str, default: bool) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise ConfigError(f"{self.at(key)}: true or false is expected, not {value!r}")
        return value

    def text(self, key: str, default: str | None, most: int = 4096) -> str:
        value = self._get(key, default)
        if not isinstance(value, str) or len(value.encode()) > most:
            raise ConfigError(f"{self.at(key)}: text of at most {most} bytes is expected")
        return value

    def texts(self, key: str) -> frozenset[str] | None:
        value = self._get(key, ())
        if key not in self._value:
            return None
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigError(f"{self.at(key)}: a list of names is expected")
        return frozenset(value)

    def tables(self, key: str) -> list[_Table]:
        value = self._get(key, None)
        if not isinstance(value, list) or not value:
            raise ConfigError(f"{self.at(key)}: a list with something in it is expected")
        return [_Table(item, f"{self.at(key)}[{index}]") for index, item in enumerate(value)]

    def table(self, key: str) -> _Table:
        return _Table(self._get(key, {}), self.at(key))

    def end(self) -> None:
        unknown = sorted(set(self._value) - self._asked)
        if unknown:
            raise ConfigError(f"{self.at(unknown[0])}: unknown key; known are {', '.join(sorted(self._asked))}")

    def _get(self, key: str, default: object) -> Any:
        self._asked.add(key)
        if key not in self._value and default is None:
            raise ConfigError(f"{self.at(key)}: is missing")
        return self._value.get(key, default)


def parse_target_config(document: object) -> TargetConfig:
    """Check a document. Raises `ConfigError` with the path of the first key that is wrong."""
    root = _Table(document, "")
    listen = tuple(_parse_listen(item) for item in root.tables("listen"))
    subsystems = tuple(_parse_subsystem(item) for item in root.tables("subsystems"))
    names = [item.nqn for item in subsystems]
    if len(set(names)) < len(names):
        raise ConfigError("subsystems: two have the same nqn")
    first: dict[bytes, NamespaceConfig] = {}
    for item in (namespace for subsystem in subsystems for namespace in subsystem.namespaces):
        same = first.setdefault(item.nguid, item)
        if replace(item, nsid=same.nsid) != same:
            raise ConfigError(f"subsystems: namespaces with the nguid {item.nguid.hex()} differ")
    table = root.table("controller")
    defaults = ControllerConfig()
    limits: dict[str, Any] = {}
    for limit in fields(ControllerConfig):
        value = getattr(defaults, limit.name)
        if isinstance(value, bool):
            limits[limit.name] = table.boolean(limit.name, value)
        else:
            limits[limit.name] = table.integer(limit.name, value, *_LIMITS.get(limit.name, (1, 1 << 40)))
    table.end()
    config = TargetConfig(
        listen=listen,
        subsystems=subsystems,
        controller=ControllerConfig(**limits),
        most_connections=root.integer("most_connections", 1024, 1, 1 << 16),
        under_way_bytes=root.integer("under_way_bytes", 32 << 20, 1 << 20),
    )
    root.end()
    return config


def _parse_listen(table: _Table) -> tuple[str, int]:
    address = table.text("address", None)
    try:
        ipaddress.ip_address(address)
    except ValueError:
        raise ConfigError(f"{table.at('address')}: {address!r} is no IP address") from None
    port = table.integer("port", 4420, 0, 65535)
    table.end()
    return address, port


def _parse_subsystem(table: _Table) -> SubsystemConfig:
    nqn = table.text("nqn", None, most=223)
    if not nqn.startswith("nqn."):
        raise ConfigError(f"{table.at('nqn')}: {nqn!r} does not begin with 'nqn.'")
    listed = table.tables("namespaces")
    if len(listed) > MOST_NAMESPACES:
        raise ConfigError(f"{table.at('namespaces')}: at most {MOST_NAMESPACES}")
    namespaces = tuple(_parse_namespace(item, nqn, nsid) for nsid, item in enumerate(listed, 1))
    config = SubsystemConfig(
        nqn=nqn,
        namespaces=namespaces,
        allowed_hosts=table.texts("allowed_hosts"),
        first_cntlid=table.integer("first_cntlid", 1, 1, 0xFFEF),
    )
    table.end()
    return config


def _parse_namespace(table: _Table, nqn: str, nsid: int) -> NamespaceConfig:
    backend = table.text("backend", "memory")
    if backend not in BACKENDS:
        raise ConfigError(f"{table.at('backend')}: {backend!r} is none of {', '.join(BACKENDS)}")
    block = table.integer("block", 4096)
    if block not in _BLOCKS:
        raise ConfigError(f"{table.at('block')}: blocks have 512 or 4096 bytes, not {block}")
    size = table.integer("size", None, block, 1 << 50)
    if size % block:
        raise ConfigError(f"{table.at('size')}: {size} is no multiple of the block, {block}")
    path = table.text("path", "")
    if bool(path) is not (backend == "file"):
        raise ConfigError(f"{table.at('path')}: a file needs one, and nothing else has one")
    media = table.table("media")
    config = NamespaceConfig(
        nsid=nsid,
        size=size,
        nguid=_parse_nguid(table, nqn, nsid),
        backend=backend,
        path=path,
        seed=table.integer("seed", 0),
        block=block,
        media=MediaConfig(
            rate=media.integer("rate", 0),
            latency_us=media.integer("latency_us", 0, 0, 60_000_000),
            depth=media.integer("depth", 0, 0, 1 << 16),
        ),
    )
    media.end()
    table.end()
    return config


def _parse_nguid(table: _Table, nqn: str, nsid: int) -> bytes:
    written = table.text("nguid", "")
    if not written:
        return uuid.uuid5(uuid.NAMESPACE_URL, f"{nqn}#{nsid}").bytes
    try:
        nguid = bytes.fromhex(written)
    except ValueError:
        nguid = b""
    if len(nguid) != 16 or not any(nguid):
        raise ConfigError(f"{table.at('nguid')}: 32 hexadecimal digits that are not all 0 are expected")
    return nguid
