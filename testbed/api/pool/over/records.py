"""The labs over several machines that a user has deployed: which machines each is on, in a file of the user's.

The file is there from before anything is made until all of it is gone, so that a lab can be destroyed by its name
whatever has happened. It lies in $XDG_STATE_HOME/testbed/over, by default ~/.local/state/testbed/over, or below
$TESTBED_STATE_DIR where that is set.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import msgspec

from testbed.base.errors import LabNotFound, TestbedError
from testbed.base.names import check_lab_name
from testbed.base.typed_json import encode
from testbed.lab.core.deploy.records.files import locked, write_state

SCHEMA = 1


class SpreadState(StrEnum):
    """The life of a lab over several machines, as far as it was brought."""

    DEPLOYING = "deploying"
    RUNNING = "running"
    FAILED = "failed"
    """Up, and its routing has not converged in time."""
    DESTROYING = "destroying"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadMachine:
    """A machine that has a part. `ssh` is how it is reached, `address` its address on the underlay."""

    name: str
    ssh: str
    address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadRecord:
    """A lab over several machines. `places` has the machine of every node; `machines` are those that still have, or may
    have, a part of it; `mark` tells it from another lab that is called so by now (`part_server.mark_of`)."""

    name: str
    state: SpreadState
    created: str
    source: str
    design: str
    machines: tuple[SpreadMachine, ...]
    places: Mapping[str, str]
    hosts: int
    switches: int
    links: int
    cut_links: int
    k: float = 0.0
    mark: str = ""
    schema: int = field(default=SCHEMA)

    def place(self, node: str) -> SpreadMachine | None:
        """Return the machine of a node; None for a node that the lab does not have, or whose machine is gone."""
        name = self.places.get(node)
        return next((machine for machine in self.machines if machine.name == name), None)


class SpreadExists(TestbedError):
    """A lab of that name is, or may be, on several machines."""


class SpreadRecords:
    """The files of one user."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = spread_directory() if directory is None else directory

    def names(self) -> list[str]:
        """Return the names of the labs that there are files of."""
        try:
            return sorted(path.stem for path in self.directory.iterdir() if path.suffix == ".json")
        except (FileNotFoundError, NotADirectoryError):
            return []

    def exists(self, name: str) -> bool:
        """Tell whether there is a file of a lab of this name."""
        return self._path(name).is_file()

    def read(self, name: str) -> SpreadRecord:
        """Return what is known of a lab. Raises `LabNotFound` where there is no file of it, or one that is damaged."""
        path = self._path(name)
        try:
            record = msgspec.json.decode(path.read_bytes(), type=SpreadRecord)
        except FileNotFoundError as error:
            raise LabNotFound(f"no lab named {name} is over several machines") from error
        except (ValueError, OSError) as error:
            hint = f"on each of its machines: testbed destroy -n {name}; then remove the file"
            raise LabNotFound(f"{path} is damaged or of another version: {error}", hint=hint) from error
        if record.name != name or record.schema != SCHEMA:
            hint = f"use the testbed that deployed it, or on each of its machines: testbed destroy -n {name}"
            raise LabNotFound(f"{path} is not the record of {name} in schema {SCHEMA}", hint=hint)
        return record

    def write(self, record: SpreadRecord) -> None:
        """Keep a record, durably. Raises `StateError`."""
        self._make()
        write_state(self._path(record.name), encode(record).decode())

    def forget(self, name: str) -> None:
        """Remove what is known of a lab that is gone everywhere."""
        self._path(name).unlink(missing_ok=True)

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold a lab while a command works on it. Raises `SpreadExists` where another does."""
        self._make()
        path = self._path(name).with_suffix(".lock")
        try:
            with locked(path, wait=False):
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
        except BlockingIOError as error:
            raise SpreadExists(f"another command is working on the lab {name}", hint="wait for it") from error

    def _make(self) -> None:
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise TestbedError(
                f"cannot make {self.directory}: {error.strerror}", hint="set XDG_STATE_HOME to a directory of yours"
            ) from error

    def _path(self, name: str) -> Path:
        check_lab_name(name)
        return self.directory / f"{name}.json"


def spread_directory() -> Path:
    """Return the directory of the files."""
    if kept := os.environ.get("TESTBED_STATE_DIR"):
        return Path(kept) / "over"
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "testbed" / "over"
