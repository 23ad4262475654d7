"""The changes that make a lab that is up what a file says now, as a value: for a dry run, CI, and those who apply it.

Each row has its reason: the keys of the file that differ from what it said before, with their lines. Which keys are a
row's is found by asking what each of them would change alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from testbed.base.errors import DriverError, LabNotFound, PlanError, TestbedError
from testbed.base.names import first_few
from testbed.base.rows import row_json
from testbed.lab.core.deploy.changing.apply import ApplyOptions, apply_lab, planned_changes
from testbed.lab.core.deploy.changing.differences import LabChanges, changes_of
from testbed.lab.core.deploy.changing.drift.lab_drift import find_drift
from testbed.lab.core.deploy.changing.refusal import ChangeRefused
from testbed.lab.core.deploy.changing.telling.grouping import ChangeGroup, counts, grouped, summary
from testbed.lab.core.deploy.changing.telling.stakes import waiting_bytes
from testbed.lab.core.deploy.lifecycle import DEFAULT_TIMEOUT_S
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.lab_record import LabRecord, written_of
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.deploy.steps import StepCallback, ignore_steps
from testbed.lab.core.model import Lab
from testbed.lab.core.model.written import WrittenLab
from testbed.lab.core.plan.changes import Allow, ChangeRow
from testbed.lab.core.schema.key_changes import KeyChange, document_of, lab_key_changes
from testbed.lab.core.schema.load import (
    find_topology,
    load_topology,
    load_topology_text,
    place_plan_error,
    resolve_warned,
)

MOST_KEYS = 12
"""Keys that are asked what they change alone; of more, each row has all of them for a reason."""
MOST_OPERATIONS = 150_000
"""Operations that are planned for it at most before a change is shown, which takes some seconds."""
MOST_OPERATIONS_MEANWHILE = 15_000
"""The most of them before one is made, which is not to wait for it."""
_KEYS_SHOWN = 3
_Thing = tuple[str, str, str, bool]
ENDED = "ended, and no file says so"
"""The reason of a repair that is about nothing that a person has changed."""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """All that makes a lab what a file says: `rows` has a row for each thing, `keys` what the file says otherwise.

    It is true where there is anything to do. `deployed` is False where no lab of that name is there, so that all of it
    is made. `waiting_bytes` is what waited in queues that are made anew, and would be lost, when that was asked; None
    where nobody may ask.
    """

    lab: str
    source: str
    rows: tuple[ChangeRow, ...]
    keys: tuple[KeyChange, ...] = ()
    deployed: bool = True
    waiting_bytes: int | None = None
    repairs: int = 0
    """The rows among them that bring back what was changed by hand, or what ended."""

    def __bool__(self) -> bool:
        return bool(self.rows)

    @cached_property
    def groups(self) -> list[ChangeGroup]:
        """The rows put together for people; what a repair does is first."""
        repairs = grouped(self.rows[: self.repairs])
        return [*(replace(group, allow="--repair") for group in repairs), *grouped(self.rows[self.repairs :])]

    @property
    def needs(self) -> frozenset[Allow]:
        """All that has to be allowed, so that it is done."""
        return frozenset(Allow(row.allow) for row in self.rows if row.allow)

    @property
    def summary(self) -> str:
        """Return the numbers of things made, changed and removed."""
        return summary(self.rows)

    @property
    def at_stake(self) -> tuple[str, ...]:
        """All packets and sessions that it can cost, in words."""
        return tuple(dict.fromkeys(row.at_stake for row in self.rows if row.at_stake))

    def to_json(self) -> dict[str, Any]:
        """Return it for programs, with every row."""
        return {
            "lab": self.lab,
            "source": self.source,
            "deployed": self.deployed,
            "keys": [_key_json(key) for key in self.keys],
            "counts": counts(self.rows),
            "needs": sorted(self.needs),
            "at_stake": list(self.at_stake),
            "waiting_bytes": self.waiting_bytes,
            "repairs": self.repairs,
            "changes": [row_json(row) for row in self.rows],
        }


def _key_json(key: KeyChange) -> dict[str, Any]:
    position = key.position
    return {
        "key": key.key,
        "old": key.old,
        "new": key.new,
        "file": key.file,
        "line": None if position is None else position.line,
        "column": None if position is None else position.column,
    }


# --- from files -------------------------------------------------------------------------------------


def read_target(
    topology: str | Path | None,
    *,
    name: str | None = None,
    overrides: Mapping[str, object] | None = None,
    state: StateDirectory,
    text: str | None = None,
) -> Lab:
    """Read what a lab is to become: the file `topology`, or `text`; or else the file that the lab came from, with the
    settings that it was deployed with, which `overrides` replace or add to.

    Without a name the only lab that is deployed is meant, and where there is none, the only file of this directory.
    Raises `SpecError`, `LabNotFound`, and `ChangeRefused` for a file that is another lab's.
    """
    chosen = dict(overrides or {})
    if text is not None:
        return load_topology_text(text, file=str(topology), overrides=chosen | _named(name))
    if topology is not None:
        return _read_file(Path(topology), name, chosen, state)
    names = state.names()
    if name is None and not names:
        return load_topology(find_topology(Path.cwd()), overrides=chosen)
    if name is None and len(names) > 1:
        raise LabNotFound(f"several labs are deployed: {', '.join(names)}", hint="choose one with -n NAME or -t FILE")
    record = state.read(name or names[0])
    lab = load_topology(_file_of(record), overrides=_settings_of(record) | chosen)
    if lab.name != record.name:
        raise _renamed(lab, record.name)
    return lab


def _named(name: str | None) -> dict[str, object]:
    return {} if name is None else {"name": name}


def _read_file(path: Path, name: str | None, chosen: Mapping[str, object], state: StateDirectory) -> Lab:
    """Read a file that somebody named. Raises `ChangeRefused` where it is another lab's than the one that is meant."""
    lab = load_topology(path, overrides={**chosen, **_named(name)})
    if name is None:
        if not state.exists(lab.name) and "name" not in chosen:
            _refuse_rename(lab, path, state)
        return lab
    if not state.exists(name):
        return lab
    own = load_topology(path, overrides=chosen).name
    if own == name or _is_same_file(state.read(name), path):
        return lab
    raise ChangeRefused(
        f"{path} describes the lab {own}, and {name} came from {state.read(name).source or 'no file'}",
        hint=f"`-n {name}` without -t takes the file that it came from; `--set name={name}` makes it what {path} says",
    )


def _refuse_rename(lab: Lab, path: Path, state: StateDirectory) -> None:
    """Refuse a file that a lab came from and that has another name now: a second lab is not what is meant."""
    for known in state.names():
        try:
            record = state.read(known)
        except LabNotFound:  # another version's
            continue
        if _is_same_file(record, path) and "name" not in _settings_of(record):
            raise _renamed(lab, known)


def _renamed(lab: Lab, known: str) -> ChangeRefused:
    return ChangeRefused(
        f"{lab.source} is the file of the lab {known}, and names a lab {lab.name} now; a lab that is up keeps its name",
        hint=f"`--set name={known}` changes {known}; `testbed deploy -t {lab.source}` makes {lab.name} beside it",
    )


def _is_same_file(record: LabRecord, path: Path) -> bool:
    try:
        return _file_of(record).samefile(path)
    except (OSError, LabNotFound):
        return False


def _settings_of(record: LabRecord) -> dict[str, object]:
    written = written_of(record)
    return {} if written is None else written.overrides


def _file_of(record: LabRecord) -> Path:
    """Return the file that a lab came from, as short as it may be named here.

    Raises `LabNotFound` where it came from none.
    """
    written = written_of(record)
    if written is not None and written.file:
        return _from_here(Path(written.file))
    if written is None and record.source:  # as an earlier version recorded it: from the directory of the deploy
        return _from_here(Path(record.directory).parent / record.source)
    raise LabNotFound(
        f"the lab {record.name} came from {record.source or 'no file'}, which cannot be read again",
        hint="name the file with -t FILE",
    )


def _from_here(path: Path) -> Path:
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


# --- what differs -----------------------------------------------------------------------------------


def changes_to(lab: Lab, state: StateDirectory) -> Changes:
    """Return what `apply_changes` would do to the lab of this name, with a repair of it; of one that is not up, all
    that a deploy makes.

    Touches nothing. Raises `PlanError`, and `CapabilityError` for what this machine cannot do.
    """
    with _placed_plan_errors(lab):
        changes = planned_changes(lab, state, lab.scale.time)
        # Root alone can look into a lab, and in the middle of a change there is nothing to compare it with.
        if changes.was is not None and os.geteuid() == 0 and not state.is_changing(lab.name):
            running = _as_it_was(changes, changes.was, state)
            if running.identities:
                changes = replace(changes, drift=find_drift(running))
        return explained(changes, state)


def _as_it_was(changes: LabChanges, record: LabRecord, state: StateDirectory) -> RunningLab:
    """The lab of a change before it, whose plan is at hand; its model is read where somebody asks."""
    return RunningLab.planned(record, state, None, changes.old)


def apply_changes(
    lab: Lab,
    state: StateDirectory,
    *,
    allow: Collection[Allow | str] = (),
    repair: bool = False,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    notify: StepCallback = ignore_steps,
    told: Callable[[Changes], None] = lambda _: None,
) -> Changes:
    """Make the lab of this name what `lab` says, and wait until its routing has converged; deploy it where none is up.

    With `repair` what was changed by hand, or ended, is brought back first. `told` is called with the changes before
    the first of them is made. Raises what `apply_lab` does.
    """
    found: list[Changes] = []

    def explain(changes: LabChanges) -> None:
        found.append(explained(changes, state, MOST_OPERATIONS_MEANWHILE))
        told(found[-1])

    allowed = frozenset(Allow(word) for word in allow)
    options = ApplyOptions(k=lab.scale.time, timeout_s=timeout_s, allow=allowed, repair=repair, told=explain)
    with _placed_plan_errors(lab):
        changes = apply_lab(lab, state, options, notify)
    return found[-1] if found else explained(changes, state)


@contextmanager
def _placed_plan_errors(lab: Lab) -> Iterator[None]:
    """Give a `PlanError` of the body its place in the lab's file, where it is about a key that is written there."""
    try:
        yield
    except PlanError as error:
        if lab.written is None or not lab.written.file:
            raise
        raise place_plan_error(Path(lab.source), error, overrides=lab.written.overrides) from error


# --- why --------------------------------------------------------------------------------------------


def explained(changes: LabChanges, state: StateDirectory, most: int = MOST_OPERATIONS) -> Changes:
    """Give each row the keys of the file that it is for; what a deploy makes is there for the whole of the file.

    `most` operations may be planned to find out which key is a row's, where there are several.
    """
    if changes.was is None:
        return Changes(lab=changes.lab.name, source=changes.lab.source, rows=changes.rows, deployed=False)
    record = changes.record
    before = written_of(changes.was)
    now = replace(changes.lab, written=changes.lab.written if record is None else written_of(record))
    keys = lab_key_changes(before, now)
    reasons = _reasons(_as_it_was(changes, changes.was, state), changes, before, keys, most)
    repairs = () if changes.obstacles else changes.drift.rows
    others = changes.rows[len(repairs) :]
    return Changes(
        lab=now.name,
        source=now.source,
        rows=(
            *(row if row.reason else replace(row, reason=ENDED) for row in repairs),
            *(replace(row, reason=_joined(row.reason, reasons(row))) for row in others),
        ),
        keys=tuple(keys),
        repairs=len(repairs),
        waiting_bytes=_waiting_bytes(changes),
    )


def _joined(said: str, keys: str) -> str:
    """Join what a feature says of a row and the keys of the file, which may have the words that it says."""
    return keys if said in keys else "; ".join(filter(None, (said, keys)))


def _waiting_bytes(changes: LabChanges) -> int | None:
    """Ask how much waits in queues that are made anew; None without root, and where a node is not there."""
    if os.geteuid() != 0 or changes.obstacles:
        return None
    try:
        return waiting_bytes(changes.new.lab, changes.kernel.first)
    except DriverError:
        return None


def _reasons(
    running: RunningLab, changes: LabChanges, before: WrittenLab | None, keys: Sequence[KeyChange], most: int
) -> Callable[[ChangeRow], str]:
    """Return what tells the reason of a row: the keys that bring it about by themselves; or else those that nothing can
    be said of alone, or all."""
    every = _told(keys)
    work = len(keys) * len(changes.new.operations)
    if len(keys) < 2 or len(keys) > MOST_KEYS or work > most or before is None:
        return lambda _: every
    causes: dict[_Thing, list[KeyChange]] = {}
    together: list[KeyChange] = []
    for key in keys:
        try:
            alone = resolve_warned(document_of(key.alone(before.data), changes.lab.source), None)
            rows = changes_of(running, alone, alone.scale.time).rows
        except TestbedError:  # it is nothing without another one
            together.append(key)
            continue
        for thing in dict.fromkeys(_thing(row) for row in rows):
            causes.setdefault(thing, []).append(key)
    otherwise = _told(together) or every
    texts = {thing: _told(found) for thing, found in causes.items()}
    return lambda row: texts.get(_thing(row), otherwise)


def _thing(row: ChangeRow) -> _Thing:
    """Return what a row is about, whatever becomes of it; of what makes the whole lab go, what that is. A port that is
    told of another buffer of its switch is not one that is set to something else."""
    return row.node, row.what, row.detail if row.allow else "", bool(row.part_of)


def _told(keys: Sequence[KeyChange]) -> str:
    return first_few(keys, _KEYS_SHOWN, "; ")
