"""The settings of transfers by NVMe/TCP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final

from msgspec import Meta

from testbed.base.typed_json import Text
from testbed.endpoints.worker.program import Settings

BLOCK_BYTES: Final = 512
STEP_BYTES = 1 << 32
"""The room of each step in the namespace of a target."""
MOST_IO_BYTES = 4 << 20
Amount = Annotated[int, Meta(ge=0, lt=1 << 62)]
MEDIUM = ("rate", "latency_us", "depth", "capacity")
"""The keys of a target's medium."""


def whole_blocks(length: int) -> int:
    """Return the bytes of the blocks that so many bytes are in."""
    return -(-length // BLOCK_BYTES) * BLOCK_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmeTcpSettings(Settings):
    """`targets` says of the medium behind each address of a target: `rate` in bytes/s (0: no limit), `latency_us`,
    `depth` in commands, `capacity` in bytes; `ports` has all addresses of each target, by its name.

    `io_bytes` are those of a command, `depth` how many of a pair are under way, `keep_alive_ms` the time after which a
    silent path is dead, `io_timeout_ms` that after which one is that does not answer a command. `kernel` has the NQN of
    each target, by its name, that the kernel is to serve.
    """

    kind: ClassVar[str] = "nvme-tcp"
    carries_collectives: ClassVar[bool] = False
    pulls: ClassVar[bool] = True
    targets: Mapping[str, Mapping[str, Amount]] = field(default_factory=dict)
    ports: Mapping[str, tuple[Text, ...]] = field(default_factory=dict)
    kernel: Mapping[str, Text] = field(default_factory=dict)
    multipath: bool = False
    keep_alive_ms: Annotated[int, Meta(ge=0, lt=1 << 32)] = 5000
    io_timeout_ms: Annotated[int, Meta(ge=0, lt=1 << 40)] = 10_000
    depth: Annotated[int, Meta(ge=1, le=1024)] = 16
    io_bytes: Annotated[int, Meta(ge=1, le=MOST_IO_BYTES, multiple_of=BLOCK_BYTES)] = 1 << 20
    digests: bool = False
    congestion_control: Text | None = None
    tos: Annotated[int, Meta(ge=0, lt=256)] = 0

    def __post_init__(self) -> None:
        if any(sorted(medium) != sorted(MEDIUM) for medium in self.targets.values()):
            raise ValueError(f"a target has not the keys {', '.join(MEDIUM)}")
        if any(not listed or not self.targets.keys() >= set(listed) for listed in self.ports.values()):
            raise ValueError("ports has addresses of no target")
        if not self.kernel.keys() <= self.ports.keys():
            raise ValueError("kernel has targets without addresses")


@dataclass(frozen=True, slots=True, kw_only=True)
class StackNvmeTcpSettings(NvmeTcpSettings):
    """Settings of a TCP of our own beside those of the kernel's. `mtu_bytes` are those of NICs, by address."""

    mtu_bytes: Mapping[str, int] = field(default_factory=dict)
