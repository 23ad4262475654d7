"""The records of labs on this machine: the state directory, its locks, slots and machine-wide changes.

`<state>/labs/<lab>/lab.json` is the lab as it is, `journal.jsonl` beside it what was created, and `next.json` what a
change that began and has not ended makes of it.
`<run>/<lab>/<node>/` holds sockets, configurations and logs of a node's daemons.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.base.errors import CapabilityError, LabNotFound, TestbedError
from testbed.base.names import check_lab_name, nearest
from testbed.lab.core.deploy.interruption import signals_later
from testbed.lab.core.deploy.records.files import locked, write_state
from testbed.lab.core.deploy.records.usage import holders_text

if TYPE_CHECKING:
    from testbed.lab.core.deploy.records.lab_record import LabRecord


NEXT_NAME = "next.json"


class StateBusy(TestbedError):
    """Another command works on this lab right now."""


class UnfinishedChange(TestbedError):
    """A change of this lab began and has not ended: its record does not say what is there."""

    def __init__(self, lab: str) -> None:
        super().__init__(
            f"a change of the lab {lab} began and has not ended",
            hint=f"if nobody is at it any more, `testbed apply -n {lab}` finishes it, and `testbed destroy -n {lab}`"
            " removes the lab",
        )


def needs_root(what: str) -> CapabilityError:
    """The error for what a user without root has asked for, who sees neither namespaces nor processes of labs."""
    return CapabilityError(
        f"{what} needs root, which alone sees the namespaces and processes of labs",
        missing="root",
        hint="run the same command with sudo",
    )


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
    def lock_lab(self, lab: str, *, unfinished: bool = False) -> Iterator[None]:
        """Hold one lab for as long as a command changes it; raises `StateBusy` if another does.

        Raises `UnfinishedChange` for a lab in the middle of a change, unless the caller can do with an `unfinished`
        one.
        """
        path = self.state / f"{lab}.lock"
        with contextlib.ExitStack() as held:
            ours = False
            try:
                with signals_later():  # whom they interrupt must know what has been made
                    self.prepare()
                    try:
                        held.enter_context(locked(path, wait=False))
                    except BlockingIOError as error:
                        who = holders_text(path)
                        raise StateBusy(
                            f"another command is working on the lab {lab}{who}",
                            hint="wait for it" if who else f"wait for it; `fuser {path}` names it",
                        ) from error
                    ours = True
                if not unfinished:
                    self.require_finished(lab)
                yield
                self._leave_no_trace(lab, path)
            except BaseException:
                if ours:
                    self._leave_no_trace(lab, path)  # whole, even where what ended is the one above
                raise

    def _leave_no_trace(self, lab: str, lock: Path) -> None:
        """Remove the lock of a lab that is not there, and the run directory if no lab is left in it."""
        if not self.exists(lab):
            lock.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self.run.rmdir()

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
        """Return the names of the labs of this machine. Raises `CapabilityError` where root alone may read them."""
        try:
            with os.scandir(self.labs) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except PermissionError as error:
            raise needs_root(f"reading {self.labs}") from error

    def read(self, lab: str) -> LabRecord:
        """Raises `LabNotFound`; a lab whose record was never completed is one that only `destroy` knows.

        Raises `LabUnreadable`, which is a `LabNotFound`, for a record that is damaged or of another version.
        """
        from testbed.lab.core.deploy.records.lab_record import parse_record

        content = self._content(lab)
        if content is None:
            raise self.not_found(lab)
        return parse_record(content, lab)

    def read_next(self, lab: str) -> LabRecord | None:
        """The record that a change of a lab, which has not ended, was to leave; None where there is no such change.

        Raises `LabUnreadable`, as `read` does.
        """
        from testbed.lab.core.deploy.records.lab_record import parse_record

        content = self._content(lab, NEXT_NAME)
        return None if content is None else parse_record(content, lab)

    def is_changing(self, lab: str) -> bool:
        """Tell whether a change of a lab began and has not ended."""
        return (self.lab_directory(lab) / NEXT_NAME).exists()

    def require_finished(self, lab: str) -> None:
        """Raise `UnfinishedChange` for a lab in the middle of a change."""
        if self.is_changing(lab):
            raise UnfinishedChange(lab)

    def salvage(self, lab: str) -> dict[str, Any]:
        """Return what the record of a lab says, whichever version wrote it; nothing where that cannot be told."""
        try:
            document = json.loads(self._content(lab) or "")
        except (ValueError, RecursionError):
            return {}
        return document if isinstance(document, dict) else {}

    def _content(self, lab: str, name: str = "lab.json") -> str | None:
        """The record of a lab as it was written, by whichever version; None where there is none."""
        path = self.lab_directory(lab) / name
        try:
            return path.read_text(errors="replace")
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError as error:
            raise needs_root(f"reading {path}") from error

    def not_found(self, lab: str) -> LabNotFound:
        """The error for a lab that is not recorded here."""
        names = self.names()
        meant = nearest(lab, names)
        return LabNotFound(
            f"no lab named {lab} is deployed here (there are: {', '.join(names) or 'none'})",
            hint=f"did you mean {meant}?" if meant else None if names else "testbed deploy -t TOPOLOGY.yml",
        )

    def write(self, record: LabRecord) -> None:
        directory = self.lab_directory(record.name)
        directory.mkdir(parents=True, exist_ok=True)
        write_state(directory / "lab.json", json.dumps(record.to_json()))

    def begin_change(self, record: LabRecord) -> None:
        """Record what a change makes of a lab, before anything of it is touched. Raises `StateError`."""
        write_state(self.lab_directory(record.name) / NEXT_NAME, json.dumps(record.to_json()))

    def end_change(self, lab: str) -> None:
        """Forget what a change was to make of a lab, once its record and its journal say what it is."""
        (self.lab_directory(lab) / NEXT_NAME).unlink(missing_ok=True)

    def take_slot(self, wanted: int, *, instead_of: str = "") -> int:
        """The first free slot from `wanted` on; that of the lab `instead_of` is free. Call with the machine locked."""
        from testbed.lab.core.plan.stable import SLOTS

        taken = {str(self.salvage(lab).get("slot")) for lab in self.names() if lab != instead_of}
        for step in range(SLOTS):
            slot = (wanted + step) % SLOTS
            if str(slot) not in taken:
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
            model = self.salvage(lab).get("model")
            links = model.get("links") if isinstance(model, dict) else None
            total += len(links) if isinstance(links, list) else 0
        return total

    def adjust_machine(self, entries: int) -> None:
        """Change what labs need otherwise, with room for `entries` neighbours of all here. Call with the machine
        locked."""
        from testbed.lab.core.deploy import machine_settings

        machine_settings.adjust(self.state, entries)

    def restore_machine(self) -> None:
        """Give back what this machine was changed for if no lab is left here. Call with the machine locked."""
        if not self.names():
            from testbed.lab.core.deploy import machine_settings

            machine_settings.restore(self.state)
