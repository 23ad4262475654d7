"""Transfers by NBD: fio at the hosts, nbdkit at the targets, which serves a sparse file in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from testbed.base.program_errors import TrafficError
from testbed.base.programs import captured
from testbed.endpoints.storage.nbdkit import HELP_OF_RATE, NBD_PORT, NbdExport, can_limit_bursts
from testbed.endpoints.worker.fio.settings import FioSettings
from testbed.endpoints.worker.fio.traffic import FioTraffic
from testbed.endpoints.worker.transport_registry import WorkerTransport

_IN_MEMORY = Path("/dev/shm")
"""tmpfs(5), where it is mounted."""
_DISK = "disk"


@dataclass(frozen=True, slots=True, kw_only=True)
class NbdSettings(FioSettings):
    """`FioSettings` over NBD."""

    kind: ClassVar[str] = "nbd"


class NbdEnds:
    """One file has the steps of all hosts, each in its slot. `StorageEnds` says what the methods do."""

    engine = "nbd"
    port = NBD_PORT
    directory: str | None = str(_IN_MEMORY) if _IN_MEMORY.is_dir() else None

    def __init__(self, settings: FioSettings) -> None:
        self._settings = settings

    def place(self, address: str, number: int) -> Mapping[str, str]:
        return NbdExport(address=address, port=NBD_PORT, path="").place

    def offset(self, number: int) -> int:
        return number * self._settings.slot_bytes

    def file(self, directory: Path, number: int) -> Path:
        return directory / _DISK

    def prepare(self, directory: Path) -> None:
        (directory / _DISK).touch()
        os.truncate(directory / _DISK, self._settings.slot_bytes * self._settings.steps)

    def server(self, directory: Path, address: str, medium: Mapping[str, int]) -> list[str]:
        export = NbdExport(
            address=address,
            port=NBD_PORT,
            path=str(directory / _DISK),
            rate=medium["rate"],
            latency_us=medium["latency_us"],
            # each connection has threads of its own, and a job has no more requests under way than this
            depth=min(medium["depth"], self._settings.depth),
        )
        limited = False
        if medium["rate"]:
            try:
                limited = can_limit_bursts(captured(HELP_OF_RATE).stdout)
            except OSError as error:
                raise TrafficError(f"nbdkit cannot be started: {error.strerror or error}") from error
        return export.arguments(can_limit_bursts=limited)


TRANSPORT = WorkerTransport(
    settings=NbdSettings,
    make_traffic=lambda program, loop, _buffers, listener: FioTraffic(program, loop, listener, NbdEnds),
)
