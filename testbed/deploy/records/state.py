"""Where labs are recorded on this machine: the state directory, its locks, slots and machine-wide changes.

`<state>/labs/<lab>/lab.json` is the lab as deployed, `journal.jsonl` beside it what was created.
`<run>/<lab>/<node>/` holds sockets, configurations and logs of a node's daemons.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.deploy import neighbours
from testbed.deploy.records.files import locked, write_durably
from testbed.errors import CapabilityError, LabNotFound, TestbedError
from testbed.names import check_lab_name
from testbed.plan.qos import DEFAULT_REACTION_NS

SCHEMA = 1
SLOTS = 512


class StateBusy(TestbedError):
    """Another command works on this lab right now."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LabRecord:
    """What `lab.json` says. `model` is the encoded `Lab`; `k` the time scale it runs at; `frr` the version of FRR
    whose daemons were started, "" if none were; `delay_by` what `delay: {by: auto}` means in it, "" without delays;
    `reaction_ns` the pause reaction that headrooms are planned for; `runtime` what it was deployed as."""

    name: str
    slot: int
    k: float
    version: str
    created: str
    source: str
    directory: str
    model: Mapping[str, Any]
    frr: str = ""
    delay_by: str = ""
    reaction_ns: int = DEFAULT_REACTION_NS
    runtime: str = "netns"

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "name": self.name,
            "slot": self.slot,
            "k": self.k,
            "version": self.version,
            "created": self.created,
            "source": self.source,
            "directory": self.directory,
            "model": dict(self.model),
            "frr": self.frr,
            "delay_by": self.delay_by,
            "reaction_ns": self.reaction_ns,
            "runtime": self.runtime,
        }


class StateDirectory:
    """The record of all labs of this machine."""

    def __init__(self, state: Path | None = None, run: Path | None = None) -> None:
        """Default `/var/lib/testbed` and `/run/testbed`, or $TESTBED_STATE_DIR and $TESTBED_RUN_DIR."""
        self.state = state or Path(os.environ.get("TESTBED_STATE_DIR", "/var/lib/testbed"))
        self.run = run or Path(os.environ.get("TESTBED_RUN_DIR", "/run/testbed"))

    @property
    def labs(self) -> Path:
        return self.state / "labs"

    def lab_directory(self, lab: str) -> Path:
        check_lab_name(lab)
        return self.labs / lab

    def run_directory(self, lab: str) -> Path:
        check_lab_name(lab)
        return self.run / lab

    def prepare(self, *, run: bool = True) -> None:
        """Make the directories, `run` the run directory too; raises `CapabilityError` where they cannot be written."""
        try:
            self.labs.mkdir(parents=True, exist_ok=True)
            if run:
                self.run.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CapabilityError(
                f"cannot make {error.filename}: {error.strerror}",
                missing="a writable state directory",
                hint="run as root, or set TESTBED_STATE_DIR and TESTBED_RUN_DIR",
            ) from error

    @contextlib.contextmanager
    def lock_machine(self) -> Iterator[None]:
        """Hold what all labs share: slots, names, machine-wide settings. Short."""
        self.prepare()
        with locked(self.state / "lock", wait=True):
            yield

    @contextlib.contextmanager
    def lock_lab(self, lab: str) -> Iterator[None]:
        """Hold one lab for as long as a command changes it; raises `StateBusy` if another does."""
        self.prepare()
        path = self.state / f"{lab}.lock"
        try:
            with locked(path, wait=False):
                try:
                    yield
                finally:
                    if not self.exists(lab):
                        path.unlink(missing_ok=True)
                        with contextlib.suppress(OSError):
                            self.run.rmdir()  # goes only when no lab is left in it
        except BlockingIOError as error:
            raise StateBusy(
                f"another command is working on the lab {lab}", hint=f"wait for it; `fuser {path}` names it"
            ) from error

    @contextlib.contextmanager
    def lock_measurement(self, *, wait: bool = True) -> Iterator[None]:
        """Hold what is measured of this machine. Raises `BlockingIOError` where another does, unless `wait`."""
        path = self.state / "measuring.lock"
        with locked(path, wait=wait):
            try:
                yield
            finally:
                path.unlink(missing_ok=True)

    def exists(self, lab: str) -> bool:
        return self.lab_directory(lab).is_dir()

    def names(self) -> list[str]:
        if not self.labs.is_dir():
            return []
        return sorted(path.name for path in self.labs.iterdir() if path.is_dir())

    def read(self, lab: str) -> LabRecord:
        """Raises `LabNotFound`; a lab whose record was never completed is one that only `destroy` knows."""
        path = self.lab_directory(lab) / "lab.json"
        try:
            data = json.loads(path.read_text())
        except FileNotFoundError as error:
            raise self.not_found(lab) from error
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise LabNotFound(f"{path} is damaged: {error}", hint=f"testbed destroy -n {lab}") from error
        return LabRecord(**{key: value for key, value in data.items() if key != "schema"})

    def not_found(self, lab: str) -> LabNotFound:
        """The error for a lab that is not recorded here."""
        known = ", ".join(self.names()) or "none"
        return LabNotFound(f"no lab named {lab} is deployed here (there are: {known})")

    def write(self, record: LabRecord) -> None:
        directory = self.lab_directory(record.name)
        directory.mkdir(parents=True, exist_ok=True)
        write_durably(directory / "lab.json", json.dumps(record.to_json()))

    def take_slot(self, wanted: int) -> int:
        """The first free slot from `wanted` on. Call with the machine locked."""
        taken = set()
        for lab in self.names():
            with contextlib.suppress(LabNotFound):
                taken.add(self.read(lab).slot)
        for step in range(SLOTS):
            slot = (wanted + step) % SLOTS
            if slot not in taken:
                return slot
        raise CapabilityError(f"{SLOTS} labs are deployed", missing="a free lab slot", hint="destroy one")

    def forget(self, lab: str) -> None:
        """Remove all records of a lab."""
        shutil.rmtree(self.run_directory(lab), ignore_errors=True)
        shutil.rmtree(self.lab_directory(lab), ignore_errors=True)

    def count_links(self, known: LabRecord) -> int:
        """Links of all labs together, as recorded; the record of one is at hand."""
        total = len(known.model.get("links", ()))
        for lab in set(self.names()) - {known.name}:
            with contextlib.suppress(LabNotFound):
                total += len(self.read(lab).model.get("links", ()))
        return total

    def raise_neighbour_limits(self, entries: int) -> None:
        """Make room for `entries` neighbours of all labs here. Call with the machine locked."""
        neighbours.raise_limits(self.state, entries)

    def restore_machine(self) -> None:
        """Give back what this machine was changed for if no lab is left here. Call with the machine locked."""
        if not self.names():
            neighbours.release_limits(self.state)
