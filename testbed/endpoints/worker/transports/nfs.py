"""Transfers by NFSv4: fio at the hosts, NFS-Ganesha at the targets, with a file for each transfer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from testbed.base.program_errors import TrafficError
from testbed.endpoints.storage.ganesha import (
    MOST_IO_BYTES,
    NFS_PORT,
    place,
    place_on_disk,
    render_configuration,
    server_arguments,
)
from testbed.endpoints.worker.fio.settings import FioSettings
from testbed.endpoints.worker.fio.traffic import FioTraffic
from testbed.endpoints.worker.transport_registry import WorkerTransport

_EXPORT = "export"


@dataclass(frozen=True, slots=True, kw_only=True)
class NfsSettings(FioSettings):
    """`FioSettings` over NFS, with one request of at most 1 MiB under way, in order: with more, fio's engine
    (`engines/nfs.c` of fio 3.33) forgets completions at the end of a job, and random writes to a new file crash it."""

    kind: ClassVar[str] = "nfs"
    depth: int = 1
    io_bytes: int = MOST_IO_BYTES


class NfsEnds:
    """Each step has a file, which a writer creates (fio opens with O_EXCL). `StorageEnds` says what the methods do."""

    engine = "nfs"
    port = NFS_PORT

    def __init__(self, _settings: FioSettings) -> None:
        """Raises `TrafficError` where no directory can be served."""
        self.directory: str | None = place_on_disk(Path("/proc/self/mounts").read_text())
        if self.directory is None:
            raise TrafficError("NFS-Ganesha serves no directory on tmpfs, and there is no other")

    def place(self, address: str, number: int) -> Mapping[str, str]:
        return place(address, _name(number))

    def offset(self, number: int) -> int:
        return 0

    def file(self, directory: Path, number: int) -> Path:
        return directory / _EXPORT / _name(number)

    def prepare(self, directory: Path) -> None:
        (directory / _EXPORT).mkdir()

    def server(self, directory: Path, address: str, medium: Mapping[str, int]) -> list[str]:
        state = directory / address
        state.mkdir()
        configuration = state / "ganesha.conf"
        configuration.write_text(render_configuration(directory / _EXPORT, address))
        return server_arguments(configuration, state / "ganesha.log", state / "ganesha.pid")


def _name(number: int) -> str:
    return f"step{number}"


TRANSPORT = WorkerTransport(
    settings=NfsSettings,
    make_traffic=lambda program, loop, _buffers, listener: FioTraffic(program, loop, listener, NfsEnds),
)
