"""The settings of transfers by fio, and the part that each protocol of storage adds to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Protocol

from msgspec import Meta

from testbed.endpoints.worker.program import Number, Settings

MOST_IO_BYTES = 4 << 20
Amount = Annotated[int, Meta(ge=0, lt=1 << 62)]
Depth = Annotated[int, Meta(ge=1, le=1024)]
IoBytes = Annotated[int, Meta(ge=1, le=MOST_IO_BYTES)]
MEDIUM = ("rate", "latency_us", "depth")
"""The keys of a target's medium."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """A job of fio that a workload describes, and the steps that it moves: one, or the write and the read of a job that
    does both. Times are in lab time."""

    steps: tuple[Number, ...]
    block_bytes: IoBytes
    blocks: Annotated[int, Meta(ge=1, lt=1 << 32)]
    depth: Depth
    at_random: bool
    read_percent: Annotated[int, Meta(ge=0, lt=100)] = 0
    """The share of its requests that are reads; 0 where it has one step."""
    runtime_us: Amount = 0
    """0: until it is done."""
    repeats: bool = False

    @property
    def number(self) -> int:
        """The step whose slot has its blocks."""
        return self.steps[0]

    @property
    def size_bytes(self) -> int:
        return self.blocks * self.block_bytes

    def __post_init__(self) -> None:
        if len(self.steps) != (2 if self.read_percent else 1):
            raise ValueError("a job has one step, or two where it reads and writes")


@dataclass(frozen=True, slots=True, kw_only=True)
class FioSettings(Settings):
    """`targets` says of the medium behind each address of a target: `rate` in bytes/s (0: no limit), `latency_us`, and
    `depth` in requests at once.

    `io_bytes` are those of a request at most, `depth` how many of a job are under way, where none of `jobs` says it.
    Each step of the workload, of `steps` in all, has `slot_bytes` of a target for itself.
    """

    carries_collectives: ClassVar[bool] = False
    pulls: ClassVar[bool] = True
    targets: Mapping[str, Mapping[str, Amount]] = field(default_factory=dict)
    depth: Depth = 16
    io_bytes: IoBytes = 1 << 20
    at_random: bool = False
    slot_bytes: Annotated[int, Meta(ge=1, lt=1 << 40)] = MOST_IO_BYTES
    steps: Annotated[int, Meta(ge=1, lt=1 << 32)] = 1
    jobs: tuple[JobSettings, ...] = ()

    def __post_init__(self) -> None:
        if any(sorted(medium) != sorted(MEDIUM) for medium in self.targets.values()):
            raise ValueError(f"a target has not the keys {', '.join(MEDIUM)}")


class StorageEnds(Protocol):
    """A protocol of storage at both ends: where a job of fio finds its data, and the server that has it."""

    engine: str
    """The name of fio's engine."""
    port: int
    """The server's."""
    directory: str | None
    """The directory of its files; None: that of temporary files."""

    def place(self, address: str, number: int) -> Mapping[str, str]:
        """Return the options of the job of a step at the target of this address."""

    def offset(self, number: int) -> int:
        """Return where the data of a step begins, in its file."""

    def file(self, directory: Path, number: int) -> Path:
        """Return the file that has the data of a step, at the target."""

    def prepare(self, directory: Path) -> None:
        """Make what the server serves. Raises `OSError`."""

    def server(self, directory: Path, address: str, medium: Mapping[str, int]) -> list[str]:
        """Return the command that serves it at an address until it is killed. Raises `TrafficError`."""
