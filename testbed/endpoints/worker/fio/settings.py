"""What a worker is told of transfers by fio, and what each protocol of storage adds to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

from testbed.base.json_values import Json, check_keys, read_list, read_object, read_whole
from testbed.base.program_errors import ProgramError
from testbed.endpoints.worker.program import Settings
from testbed.workload.builder import MAX_STEPS

MOST_DEPTH = 1024
MOST_IO_BYTES = 4 << 20
MEDIUM = ("rate", "latency_us", "depth")
"""What a worker is told of a target's medium."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """A job of fio that a workload describes, and the steps that it moves: one, or the write and the read of a job that
    does both. Times are in lab time."""

    steps: tuple[int, ...]
    block_bytes: int
    blocks: int
    depth: int
    at_random: bool
    read_percent: int
    """Of its requests; 0 where it has one step."""
    runtime_us: int
    """0: until it is done."""
    repeats: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FioSettings(Settings):
    """`targets` says of the medium behind each address of a target: `rate` in bytes/s (0: no limit), `latency_us`, and
    `depth` in requests at once.

    `io_bytes` are those of a request at most, `depth` how many of a job are under way, where none of `jobs` says it.
    Each step of the workload, of `steps` in all, has `slot_bytes` of a target for itself.
    """

    pulls: ClassVar[bool] = True
    targets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    depth: int = 16
    io_bytes: int = 1 << 20
    at_random: bool = False
    slot_bytes: int = MOST_IO_BYTES
    steps: int = 1
    jobs: tuple[JobSettings, ...] = ()


_Settings = TypeVar("_Settings", bound=FioSettings)


def decode_settings(kind: type[_Settings], values: dict[str, Json]) -> _Settings:
    """Read settings back that were JSON. Raises `ProgramError`."""
    targets = {}
    for address, item in read_object(values["targets"], "transport.targets").items():
        path = f"transport.targets.{address}"
        medium = read_object(item, path)
        if sorted(medium) != sorted(MEDIUM):
            raise ProgramError(path, f"has not the keys {', '.join(MEDIUM)}")
        targets[address] = {name: read_whole(medium[name], f"{path}.{name}", 1 << 62) for name in MEDIUM}
    if not isinstance(values["at_random"], bool):
        raise ProgramError("transport.at_random", "is no truth value")
    return kind(
        targets=targets,
        depth=max(1, read_whole(values["depth"], "transport.depth", MOST_DEPTH + 1)),
        io_bytes=max(1, read_whole(values["io_bytes"], "transport.io_bytes", MOST_IO_BYTES + 1)),
        at_random=values["at_random"],
        slot_bytes=max(1, read_whole(values["slot_bytes"], "transport.slot_bytes", 1 << 40)),
        steps=max(1, read_whole(values["steps"], "transport.steps", 1 << 32)),
        jobs=tuple(
            _decode_job(item, f"transport.jobs[{n}]")
            for n, item in enumerate(read_list(values["jobs"], "transport.jobs"))
        ),
    )


def _decode_job(item: Json, path: str) -> JobSettings:
    values = read_object(item, path)
    check_keys(values, path, [one.name for one in fields(JobSettings)])
    for name in ("at_random", "repeats"):
        if not isinstance(values[name], bool):
            raise ProgramError(f"{path}.{name}", "is no truth value")
    numbers = [read_whole(number, f"{path}.steps", MAX_STEPS) for number in read_list(values["steps"], f"{path}.steps")]
    job = JobSettings(
        steps=tuple(numbers),
        block_bytes=read_whole(values["block_bytes"], f"{path}.block_bytes", MOST_IO_BYTES + 1),
        blocks=read_whole(values["blocks"], f"{path}.blocks", 1 << 32),
        depth=read_whole(values["depth"], f"{path}.depth", MOST_DEPTH + 1),
        at_random=values["at_random"],
        read_percent=read_whole(values["read_percent"], f"{path}.read_percent", 100),
        runtime_us=read_whole(values["runtime_us"], f"{path}.runtime_us", 1 << 62),
        repeats=values["repeats"],
    )
    if len(numbers) != (2 if job.read_percent else 1) or not (job.block_bytes and job.blocks and job.depth):
        raise ProgramError(path, "is no job")
    return job


class StorageEnds(Protocol):
    """What a protocol of storage is at both ends: where a job of fio finds its data, and the server that has it."""

    engine: str
    """Of fio."""
    port: int
    """The server's."""
    directory: str | None
    """Where its files lie; None: where temporary files do."""

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
