"""What a worker is told of transfers by fio, and what each protocol of storage adds to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

from testbed.worker.errors import ProgramError
from testbed.worker.json_values import Json, read_object, read_whole
from testbed.worker.program import Settings

MOST_DEPTH = 1024
MOST_IO_BYTES = 4 << 20
MEDIUM = ("rate", "latency_us", "depth")
"""What a worker is told of a target's medium."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FioSettings(Settings):
    """`targets` says of the medium behind each address of a target: `rate` in bytes/s (0: no limit), `latency_us`, and
    `depth` in requests at once.

    `io_bytes` are those of a request at most, `depth` how many of a job are under way. Each step of the workload, of
    `steps` in all, has `slot_bytes` of a target for itself.
    """

    pulls: ClassVar[bool] = True
    targets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    depth: int = 16
    io_bytes: int = 1 << 20
    at_random: bool = False
    slot_bytes: int = MOST_IO_BYTES
    steps: int = 1


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
    )


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
