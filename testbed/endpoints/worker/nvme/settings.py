"""What a worker is told of transfers by NVMe/TCP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from testbed.base.json_values import Json, read_list, read_object, read_text, read_whole
from testbed.base.program_errors import ProgramError
from testbed.endpoints.worker.nvme.layout import BLOCK_BYTES
from testbed.endpoints.worker.program import Settings

MOST_DEPTH = 1024
MOST_IO_BYTES = 4 << 20
MEDIUM = ("rate", "latency_us", "depth", "capacity")
"""What a worker is told of a target's medium."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmeTcpSettings(Settings):
    """`targets` says of the medium behind each address of a target: `rate` in bytes/s (0: no limit), `latency_us`,
    `depth` in commands, `capacity` in bytes; `ports` has all addresses of each target, by its name.

    `io_bytes` are those of a command, `depth` how many of a pair are under way, `keep_alive_ms` the time after which a
    silent path is dead, `io_timeout_ms` that after which one is that does not answer a command. `kernel` has the NQN of
    each target, by its name, that the kernel is to serve.
    """

    kind: ClassVar[str] = "nvme-tcp"
    pulls: ClassVar[bool] = True
    targets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    ports: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    kernel: Mapping[str, str] = field(default_factory=dict)
    multipath: bool = False
    keep_alive_ms: int = 5000
    io_timeout_ms: int = 10_000
    depth: int = 16
    io_bytes: int = 1 << 20
    digests: bool = False
    congestion_control: str | None = None
    tos: int = 0


def decode_settings(values: dict[str, Json]) -> NvmeTcpSettings:
    """Read settings back that were JSON. Raises `ProgramError`."""
    targets = {}
    for address, item in read_object(values["targets"], "transport.targets").items():
        path = f"transport.targets.{address}"
        medium = read_object(item, path)
        if sorted(medium) != sorted(MEDIUM):
            raise ProgramError(path, f"has not the keys {', '.join(MEDIUM)}")
        targets[address] = {name: read_whole(medium[name], f"{path}.{name}", 1 << 62) for name in MEDIUM}
    ports = {}
    for name, listed in read_object(values["ports"], "transport.ports").items():
        path = f"transport.ports.{name}"
        ports[name] = tuple(read_text(address, path) for address in read_list(listed, path))
        if not ports[name] or any(address not in targets for address in ports[name]):
            raise ProgramError(path, "has addresses of no target")
    kernel = {
        name: read_text(nqn, f"transport.kernel.{name}")
        for name, nqn in read_object(values["kernel"], "transport.kernel").items()
    }
    if not kernel.keys() <= ports.keys():
        raise ProgramError("transport.kernel", "has targets without addresses")
    cc = values["congestion_control"]
    for name in ("digests", "multipath"):
        if not isinstance(values[name], bool):
            raise ProgramError(f"transport.{name}", "is no truth value")
    io_bytes = read_whole(values["io_bytes"], "transport.io_bytes", MOST_IO_BYTES + 1)
    if not io_bytes or io_bytes % BLOCK_BYTES:
        raise ProgramError("transport.io_bytes", f"is no multiple of {BLOCK_BYTES}")
    return NvmeTcpSettings(
        targets=targets,
        ports=ports,
        kernel=kernel,
        multipath=bool(values["multipath"]),
        keep_alive_ms=read_whole(values["keep_alive_ms"], "transport.keep_alive_ms", 1 << 32),
        io_timeout_ms=read_whole(values["io_timeout_ms"], "transport.io_timeout_ms", 1 << 40),
        depth=max(1, read_whole(values["depth"], "transport.depth", MOST_DEPTH + 1)),
        io_bytes=io_bytes,
        digests=bool(values["digests"]),
        congestion_control=None if cc is None else read_text(cc, "transport.congestion_control"),
        tos=read_whole(values["tos"], "transport.tos", 256),
    )
