"""Changing a lab that is up into what its file says now: what differs is made, changed and removed, and nothing else.

The order keeps traffic of others whole: what is new is made first, then routing is told, and what goes is removed once
no route leads there any more. Before anything is touched, `next.json` beside the lab's record says what the lab is to
become, and it goes when all is done. Every step may be carried out again: what it did before stays as it is. So what
fails is undone by the same way in the other direction; after a SIGKILL, `apply` finishes what was begun or takes it
back, whichever the file asks for, and `destroy` removes what the journal names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from testbed.base.errors import ConvergenceError, TestbedError
from testbed.lab.core.deploy.changing.carrying.carrying_out import TELLING, ChangeExecution, Manner
from testbed.lab.core.deploy.changing.differences import (
    LabChanges,
    asked_changes,
    asked_of,
    changes_between,
    changes_from_nothing,
    changes_of,
    nothing_to_change,
    require_allowed,
    require_possible,
)
from testbed.lab.core.deploy.changing.drift.lab_drift import Drift, find_drift, finish_work, repair_lab
from testbed.lab.core.deploy.changing.in_force import require_free, require_links
from testbed.lab.core.deploy.changing.refusal import ChangeStuck, ChangeUndone
from testbed.lab.core.deploy.interruption import interrupted_once, uninterrupted
from testbed.lab.core.deploy.lifecycle import (
    DeployOptions,
    await_convergence,
    complete,
    deploy_lab,
    preview,
    require_machine,
)
from testbed.lab.core.deploy.links.recorded import lock_links, read_link_state
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.mechanisms import require_rdma
from testbed.lab.core.deploy.pausing.reaction import planned_reaction_ns
from testbed.lab.core.deploy.preparation import require_data_path
from testbed.lab.core.deploy.records.journal import Journal, LabState
from testbed.lab.core.deploy.records.lab_record import LabRecord, encode_lab, say_the_same
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.deploy.records.usage import unused
from testbed.lab.core.deploy.scale import resolve_scale
from testbed.lab.core.deploy.steps import StepCallback, ignore_steps
from testbed.lab.core.drivers.probing.machine import require_root
from testbed.lab.core.feature import features, keep
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.changes import Allow

UNDONE_S = 30.0
"""The time that routing may take to converge again once a change was undone."""
DEPLOYED = (LabState.RUNNING, LabState.FAILED, LabState.CHANGING)
"""The states of a lab that can be changed: of others a deploy or a destroy was cut short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyOptions:
    """`k` is the time scale that the lab is to have, None for the one it has. `allow`: what may be done to the lab that
    is more than changing it where it is. `repair`: what was changed by hand, or ended, is brought back first. `told` is
    called with the changes before the first of them is made."""

    k: float | None = None
    timeout_s: float = 120.0
    allow: frozenset[Allow] = field(default_factory=frozenset)
    repair: bool = False
    told: Callable[[LabChanges], None] = lambda _: None


def apply_lab(
    lab: Lab, state: StateDirectory, options: ApplyOptions, notify: StepCallback = ignore_steps
) -> LabChanges:
    """Change a lab that is up into `lab`, and wait until its routing has converged; deploy it where it is not up.

    What an apply that was killed has begun is finished first, or taken back where `lab` is what it was before. Raises
    `ChangeRefused`, `PlanError`, `CapabilityError`, `LabInUse`, `StateBusy` before anything is touched; `ChangeUndone`
    when the lab is as it was again, `ChangeStuck` where that failed, too; and `ConvergenceError`, which leaves the lab
    changed for inspection, as that of a deploy does.
    """
    require_root()
    if not _is_deployed(lab.name, state):
        return _deploy(lab, state, options, notify)
    with state.lock_lab(lab.name, unfinished=True):
        running = _finish_work(RunningLab.open(lab.name, state), lab, options, notify)
        begun = _end_what_was_begun(running, lab, options, notify)
        if begun is not None and begun.is_asked:
            return begun.changes
        running = running if begun is None else begun.running
        asked = asked_of(running, lab)
        changes = None if begun is not None or options.repair else nothing_to_change(running, asked, options.k)
        if changes is None:
            _require_machine(lab, state)
            changes = asked_changes(running, asked, options.k)
        require_allowed(changes, options.allow)
        drift = find_drift(running) if options.repair and not changes.obstacles else Drift()
        options.told(replace(changes, drift=drift))
        if drift:
            repair_lab(running, drift, notify)
            running = _as_it_is(running)
        if changes.obstacles:
            with unused(running.state_directory, lab.name):
                pass
        elif changes or not changes.is_recorded:
            with unused(running.state_directory, lab.name):
                require_free(running, changes)
                # What was begun has not been waited for where it is not what is asked for.
                manner = Manner(timeout_s=options.timeout_s, waits=None if begun is None else True)
                _carry_out(ChangeExecution(changes, running, manner, notify), notify)
        elif (drift and not read_link_state(running.state_directory).changes) or running.life_cycle is LabState.FAILED:
            await_convergence(running.plan, state, options.timeout_s, notify)
            complete(running, state)
        record = changes.record
        if not changes and record is not None and state.read(lab.name).written != record.written:
            state.write(replace(state.read(lab.name), source=record.source, written=record.written))
    if changes.obstacles:
        _recreate(changes, running, state, options, notify)
    return replace(changes, drift=drift)


def _finish_work(running: RunningLab, lab: Lab, options: ApplyOptions, notify: StepCallback) -> RunningLab:
    """Do again what was done to nodes by a command that was killed, or take it back where the lab is to be what it was;
    the lab as it is then comes back."""
    if not Journal(running.state_directory).read().work:
        return running
    with unused(running.state_directory, running.name):
        finish_work(running, notify, back=_is_asked(running.record, keep(running.model, lab), options.k))
    return _as_it_is(running)


def _as_it_is(running: RunningLab) -> RunningLab:
    """Return the same lab, some of whose nodes have other namespaces now."""
    return RunningLab.planned(running.record, running.state, running.model, running.plan)


def _recreate(
    changes: LabChanges, running: RunningLab, state: StateDirectory, options: ApplyOptions, notify: StepCallback
) -> None:
    """Remove a lab that cannot be changed where it is, and deploy it anew in the same directory."""
    again = DeployOptions(
        k=changes.new.k, timeout_s=options.timeout_s, reconfigure=True, directory=running.directory.parent
    )
    deploy_lab(changes.lab, state, again, notify)


def planned_changes(lab: Lab, state: StateDirectory, k: float | None = None) -> LabChanges:
    """Return what `apply_lab` would do now; of a name that is not deployed, all that a deploy makes.

    Touches nothing. Raises `ChangeRefused`, `PlanError`, and `CapabilityError` for what this machine cannot do.
    """
    if not _is_deployed(lab.name, state):
        return changes_from_nothing(lab, preview(lab, state, k or resolve_scale(lab, state, measure=False).k))
    running = RunningLab.open(lab.name, state)
    if (record := state.read_next(lab.name)) is None:
        return changes_of(running, lab, k)
    begun = RunningLab(record, state)
    asked = keep(running.model, lab)
    if _is_asked(running.record, asked, k):
        return changes_between(begun, running)
    if _is_asked(record, asked, k):
        return changes_between(running, begun)
    return changes_of(begun, lab, k)


def _is_deployed(name: str, state: StateDirectory) -> bool:
    return state.exists(name) and Journal(state.lab_directory(name)).read().state in DEPLOYED


def _deploy(lab: Lab, state: StateDirectory, options: ApplyOptions, notify: StepCallback) -> LabChanges:
    k = options.k or resolve_scale(lab, state).k
    changes = changes_from_nothing(lab, preview(lab, state, k))
    options.told(changes)
    deploy_lab(lab, state, DeployOptions(k=k, timeout_s=options.timeout_s), notify)
    return changes


def _require_machine(lab: Lab, state: StateDirectory) -> None:
    """Raise `CapabilityError` or `PlanError` where this machine cannot give a lab what it asks for."""
    require_rdma(lab)
    require_machine(lab, state)
    planned_reaction_ns(lab, state)  # measured now where no lab has needed it since the machine's start


def _is_asked(record: LabRecord, lab: Lab, k: float | None) -> bool:
    """Tell whether a record is of the lab that is asked for."""
    return (k is None or record.k == k) and say_the_same(record.model, encode_lab(lab))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ended:
    """A change that was cut short and has been ended: `running` is the lab as it is now, which may be what `is_asked`
    for."""

    running: RunningLab
    changes: LabChanges
    is_asked: bool


def _end_what_was_begun(running: RunningLab, lab: Lab, options: ApplyOptions, notify: StepCallback) -> _Ended | None:
    """Finish a change that was cut short, or take it back where the lab is to be what it was; None without any."""
    state = running.state
    if (record := state.read_next(lab.name)) is None:
        return None
    begun, asked = RunningLab(record, state), keep(running.model, lab)
    with unused(running.state_directory, lab.name):
        if _is_asked(running.record, asked, options.k):
            back = changes_between(begun, running)
            require_possible(back)
            options.told(back)
            ChangeExecution(back, begun, _way_back(running, options.timeout_s), notify).carry_out()
            return _Ended(running=running, changes=back, is_asked=True)
        # Where something else is asked for, routing need not converge: what is wrong may be what is changed now.
        is_asked = _is_asked(record, asked, options.k)
        changes = changes_between(running, begun)
        require_possible(changes)
        options.told(changes)
        manner = Manner(timeout_s=options.timeout_s, again=True, waits=None if is_asked else False)
        with interrupted_once():
            _carry_out_or_undo(ChangeExecution(changes, running, manner, notify), notify)
    return _Ended(running=begun, changes=changes, is_asked=is_asked)


def _way_back(running: RunningLab, timeout_s: float, life: LabState | None = None) -> Manner:
    """Return the way back to what a lab was before a change: routing daemons are told where they were told of it."""
    told = TELLING in Journal(running.state_directory).read().steps
    return Manner(timeout_s=timeout_s, again=True, undoes=True, tells=told, life=life)


def _carry_out(carrying: ChangeExecution, notify: StepCallback) -> None:
    """Carry out changes that nothing speaks against; or, after an error, none of them."""
    for feature in features():
        feature.prepare(carrying.changes.lab, carrying.changes.new)
    require_data_path(carrying.changes.new)
    with interrupted_once():
        _carry_out_or_undo(carrying, notify, begins=True)


def _carry_out_or_undo(carrying: ChangeExecution, notify: StepCallback, *, begins: bool = False) -> None:
    """Carry out a change; undo it where it fails or is interrupted. One that has not converged stays, for inspection.

    Raises `ChangeUndone` for what it failed of, `ChangeStuck`, and what is no `TestbedError` as it is.
    """
    running = carrying.running
    try:
        if begins:
            with lock_links(running.state_directory):  # who changes a link from now on is told of the change
                require_links(running, carrying.changes)
                running.state.begin_change(carrying.record)
        carrying.carry_out()
    except ConvergenceError:
        raise
    except BaseException as error:
        if not running.state.is_changing(running.name):
            raise
        with uninterrupted():
            said = _undo(carrying, notify, error)
        if isinstance(error, TestbedError):
            message = f"{running.name} could not be changed, and is as it was{said}: {error.message}"
            raise ChangeUndone(message, hint=error.hint) from error
        raise


def _undo(carrying: ChangeExecution, notify: StepCallback, cause: BaseException) -> str:
    """Take back what was carried out of a change before `cause`; what is to be said of it beside that comes back.

    Raises `ChangeStuck`.
    """
    running, changes = carrying.running, carrying.changes
    begun = RunningLab.planned(carrying.record, running.state, changes.lab, changes.new)
    try:
        back = changes_between(begun, running)
        require_possible(back)
        ChangeExecution(back, begun, _way_back(running, UNDONE_S, carrying.life), notify).carry_out()
    except ConvergenceError:
        return ", but its routing has not converged again"
    except TestbedError as error:
        why = cause.message if isinstance(cause, TestbedError) else type(cause).__name__
        raise ChangeStuck(
            f"{running.name} is in the middle of a change: {why}; and what was done could not be undone:"
            f" {error.message}",
            hint=f"`testbed apply -n {running.name}` tries again, and `testbed destroy -n {running.name}` removes it",
        ) from cause
    return ""
