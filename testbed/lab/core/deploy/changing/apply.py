"""Changing a lab that is up into what its file says now: what differs is made, changed and removed, and nothing else.

The order keeps traffic of others whole: what is new is made first, then routing is told, and what goes is removed once
no route leads there any more. Before anything is touched, `next.json` beside the lab's record says what the lab is to
become, and it goes when all is done. Every step may be carried out again: what it did before stays as it is. So what
fails is undone by the same way in the other direction; after a SIGKILL, `apply` finishes what was begun or takes it
back, whichever the file asks for, and `destroy` removes what the journal names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from testbed.base.errors import ConvergenceError, TestbedError
from testbed.base.files import remove_remains
from testbed.base.linux import namespaces
from testbed.base.names import namespace_name
from testbed.lab.core.deploy.changing.data_path import ChangedDataPath
from testbed.lab.core.deploy.changing.differences import (
    LabChanges,
    changes_between,
    changes_from_nothing,
    changes_of,
    nothing_to_change,
    require_allowed,
    require_possible,
)
from testbed.lab.core.deploy.changing.drift import Drift, find_drift, finish_work, repair_lab
from testbed.lab.core.deploy.changing.in_force import needs_routing, require_free, require_links
from testbed.lab.core.deploy.changing.moved_addresses import announce_moved
from testbed.lab.core.deploy.changing.refusal import ChangeStuck, ChangeUndone
from testbed.lab.core.deploy.changing.routing import comes_last, prepare_daemons, settle_daemons, tell
from testbed.lab.core.deploy.changing.solicitation import solicit_neighbours
from testbed.lab.core.deploy.changing.telling import tell_begin, tell_changes, tell_undone
from testbed.lab.core.deploy.changing.transit import drain_links, hold_back, leave_routes, let_in
from testbed.lab.core.deploy.interruption import uninterrupted
from testbed.lab.core.deploy.lifecycle import (
    DeployOptions,
    await_convergence,
    complete,
    deploy_lab,
    preview,
    raise_neighbour_limits,
    require_machine,
    run_node_commands,
)
from testbed.lab.core.deploy.links.recorded import lock_links, read_link_state
from testbed.lab.core.deploy.listing import recorded_daemons
from testbed.lab.core.deploy.live import RunningLab, environment_of, planned_daemons
from testbed.lab.core.deploy.mechanisms import require_rdma
from testbed.lab.core.deploy.node_files import remove_node_files, write_node_files
from testbed.lab.core.deploy.pausing.attachment import attach, change_attachment, leave_attachment
from testbed.lab.core.deploy.pausing.reaction import planned_reaction_ns
from testbed.lab.core.deploy.preparation import require_data_path
from testbed.lab.core.deploy.records.journal import Journal, LabState, StateError
from testbed.lab.core.deploy.records.lab_record import LabRecord, encode_lab, say_the_same
from testbed.lab.core.deploy.records.labdir import write_lab_directory
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.deploy.records.usage import unused
from testbed.lab.core.deploy.routing import bgp_password, daemon_sets, running_daemons, start_daemons, stop_routing
from testbed.lab.core.deploy.scale import resolve_scale
from testbed.lab.core.deploy.steps import StepCallback, ignore_steps, step
from testbed.lab.core.deploy.watch.converge import ConvergenceWatch
from testbed.lab.core.drivers.nodes.netns import NetnsKernel
from testbed.lab.core.drivers.probing.machine import find_frr, require_root
from testbed.lab.core.drivers.routing.frr import DaemonLauncher
from testbed.lab.core.feature import Changing, features, keep
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.changes import Allow
from testbed.lab.core.plan.operations import CreateNode
from testbed.lab.core.plan.overlay_operations import CreateVrf

TELLING = "routing"
"""The step in which routing daemons are told of a change."""
COMMANDS = "commands"
"""The step in which the commands of new nodes are run."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """The options by which changes are carried out.

    `timeout_s` is how long routing may take to converge. `again`: some of it may have been carried out before.
    `undoes`: it is the way back of a change that was begun. Not `tells`: routing daemons know nothing of what is
    undone, and are not told. `waits` for routing, None where the change needs it. `life` is what the lab is called when
    all is done; by default what it was called before.
    """

    timeout_s: float
    again: bool = False
    undoes: bool = False
    tells: bool = True
    waits: bool | None = None
    life: LabState | None = None


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
        running = _finish_work(RunningLab.open(lab.name, state), notify)
        begun = _end_what_was_begun(running, lab, options, notify)
        if begun is not None and begun.is_asked:
            return begun.changes
        running = running if begun is None else begun.running
        changes = None if begun is not None or options.repair else nothing_to_change(running, lab, options.k)
        if changes is None:
            _require_machine(lab, state)
            changes = changes_of(running, lab, options.k)
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
                _carry_out(_Carrying(changes, running, manner, notify), notify)
        elif (drift and not read_link_state(running.state_directory).changes) or running.life_cycle is LabState.FAILED:
            await_convergence(running.plan, state, options.timeout_s, notify)
            complete(running, state)
        record = changes.record
        if not changes and record is not None and state.read(lab.name).written != record.written:
            state.write(replace(state.read(lab.name), source=record.source, written=record.written))
    if changes.obstacles:
        _recreate(changes, running, state, options, notify)
    return replace(changes, drift=drift)


def _finish_work(running: RunningLab, notify: StepCallback) -> RunningLab:
    """Do again what was done to nodes by a command that was killed; the lab as it is then comes back."""
    if not Journal(running.state_directory).read().work:
        return running
    with unused(running.state_directory, running.name):
        finish_work(running, notify)
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


class _Carrying:
    """Changes that nothing speaks against, to be carried out once. `running` is the lab as it was."""

    def __init__(self, changes: LabChanges, running: RunningLab, manner: Manner, notify: StepCallback) -> None:
        self.changes = changes
        self.running = running
        content = Journal(running.state_directory).read()
        self.life = manner.life or (LabState.FAILED if content.state is LabState.FAILED else LabState.RUNNING)
        """The state of the lab when all is done."""
        needs = manner.waits if manner.waits is not None else needs_routing(changes) or self.life is LabState.FAILED
        self._waits = needs and manner.tells
        self._manner = manner
        self._notify = notify
        self._journal = Journal(running.state_directory)
        self._steps_before = content.steps
        self._state = running.state
        self._run = running.processes_directory
        self._data_path = ChangedDataPath(changes, self._run)
        self.record = self._record()

    def _record(self) -> LabRecord:
        """The record of the lab as it is to be."""
        lab, new, record = self.changes.lab, self.changes.new, self.changes.record
        if record is None:
            raise ValueError(f"{lab.name} is not deployed")
        version_of = self.running.frr_version if record.frr == self.running.record.frr else lambda _: record.frr
        return replace(
            record,
            environment={node.name: more for node in lab.nodes if (more := environment_of(new, self._run, node.name))},
            daemons=recorded_daemons(lab, new, planned_daemons(new, version_of)),
        )

    def carry_out(self) -> None:
        """Carry all of it out, and record the lab as it is then.

        Raises `ConvergenceError` when that is done and routing has not converged; whatever else is raised leaves the
        lab in the middle of the change.
        """
        changes = self.changes
        changing = Changing(
            running=self.running,
            lab=changes.lab,
            plan=changes.new,
            state=self._state,
            journal=self._journal,
            notify=self._notify,
        )
        with self._undoing_without_room():
            self._journal.state(LabState.CHANGING)
        if not self._manner.undoes:
            tell_begin(self.running, changes.rows)
        if self._manner.again:
            for directory in (self._run, self.running.state_directory):
                remove_remains(directory)
        for each in changes.features:
            each.begin(changing)
        kernel, created = self._kernel()
        watch: ConvergenceWatch | None = None
        launcher: DaemonLauncher | None = None
        try:
            if len(changes.new.ports) > len(changes.old.ports):
                with self._state.lock_machine():
                    raise_neighbour_limits(self.record, self._state)
            with self._step("nodes", f"{len(changes.kernel.created)} new"):
                self._create_nodes(kernel, created)
                write_node_files(changes.lab, changes.new, self._run)
            for each in changes.features:
                each.created(changing)
            with self._step("links"), self._data_path.prepared(kernel):
                self._data_path.take_back(kernel, changes.kernel.first)
                kernel.apply(changes.kernel.made, replacing=True)
            with self._step("ports"):
                kernel.change(changes.kernel)
                announce_moved(changes.old, changes.new)
                self._attach()
            for each in changes.features:
                each.linked(changing)
            if self._manner.tells:
                with self._step(TELLING, f"{len(changes.routing)} nodes told"):
                    if not self._manner.again:
                        leave_routes(changes, self._run)
                    watch = ConvergenceWatch(changes.new, self._run) if self._waits else None
                    launcher = self._route()
            unconverged = self._converge(watch, launcher)
            for each in changes.features if unconverged is None else ():
                each.routed(changing)
            with self._step("removals", f"{len(changes.kernel.gone)} nodes"):
                self._remove(kernel)
            for each in changes.features:
                each.removed(changing)
            if self._manner.tells:  # a VRF is part of what zebra runs until it is hidden
                settle_daemons(self.running, changes.new, changes.routing)
            self._end({item.node for item in created}, unconverged)
        finally:
            if launcher is not None:
                launcher.release()
            if watch is not None:
                watch.close()
            kernel.close()

    @contextlib.contextmanager
    def _step(self, name: str, detail: str = "") -> Iterator[None]:
        with step(name, self._notify, detail):
            with self._undoing_without_room():
                self._journal.step(name)
            yield

    @contextlib.contextmanager
    def _undoing_without_room(self) -> Iterator[None]:
        """Undo a change even where the disk is full, and nothing more can be recorded of it."""
        try:
            yield
        except StateError:
            if not self._manner.undoes:
                raise

    def _kernel(self) -> tuple[NetnsKernel, Sequence[CreateNode | CreateVrf]]:
        """The kernel, and the nodes that are to be made of it."""
        kernel, lab = self.changes.kernel, self.changes.new.lab
        if not self._manner.again:
            return NetnsKernel(lab, nodes=kernel.places), kernel.created
        known = Journal(self.running.state_directory).read().identities
        wanted = {*kernel.places, *(item.node for item in kernel.created)}
        names = {namespace_name(lab, node): node for node in wanted if node in known}
        there = {names[name] for name in namespaces.still_published({name: known[names[name]] for name in names})}
        created = [item for item in kernel.created if item.node not in there]
        # Of one that was killed in between there may be a name without its namespace.
        namespaces.unpublish({namespace_name(lab, item.node): known.get(item.node, 0) for item in created})
        return NetnsKernel(lab, nodes=sorted(there), again=True), created

    def _create_nodes(self, kernel: NetnsKernel, created: Sequence[CreateNode | CreateVrf]) -> None:
        if created:
            self._journal.nodes(kernel.create_nodes(created))
            kernel.publish({item.node for item in created})

    def _attach(self) -> None:
        """Have the pause agent serve the ports that there are now, those that go until they are gone.

        Where some of those may be gone already, they are left out: the agent would look for their namespaces.
        """
        changes, places = self.changes, (self._state.run, self._run, self.running.state_directory)
        if self._manner.again:
            attach(changes.new, *places)
        else:
            change_attachment(changes.old, changes.new, *places)

    def _route(self) -> DaemonLauncher:
        """Start the daemons of new nodes, and tell those of others the difference; their files follow."""
        new, lab, run = self.changes.new, self.changes.lab, self._run
        before = {speaker.node for speaker in self.changes.old.speakers}
        added = {speaker.node for speaker in new.speakers} - before
        if self._manner.again:
            added = self._not_running(added)
        here = any(node.container is None for node in lab.speakers if node.name in added)
        launcher = DaemonLauncher(find_frr() if here else None)
        prepare_daemons(self.running, lab, new, self.changes.routing, launcher)
        if added:
            elsewhere = {node: how for each in self.changes.features for node, how in each.elsewhere.items()}
            password = bgp_password(new, self.running.state_directory)
            sets = daemon_sets(lab, new, run, launcher.frr, only=added, elsewhere=elsewhere, password=password)
            start_daemons(launcher, sets, new, run)
            hold_back(self.changes, run)
        tell(self.changes.routing, run, lambda command: not comes_last(command), again=self._manner.again)
        if self._waits:
            solicit_neighbours(self.changes.old, new)
        let_in(self.changes, run)
        return launcher

    def _not_running(self, nodes: Collection[str]) -> set[str]:
        """Return those of `nodes` whose routing daemons do not all run; what is left of them is ended, since they
        depend on each other."""
        wanted = RunningLab.planned(self.record, self._state, self.changes.lab, self.changes.new)
        lacking = {node for node in nodes if len(running_daemons(wanted, node)) < len(wanted.daemons.get(node, ()))}
        for node in lacking:
            stop_routing(wanted, node)
        return lacking

    def _converge(self, watch: ConvergenceWatch | None, launcher: DaemonLauncher | None) -> ConvergenceError | None:
        """Wait until routing has converged; the error of one that has not in time comes back."""
        if watch is None or launcher is None:
            return None
        try:
            with self._step("converge"):
                watch.wait(self._manner.timeout_s, self._notify, launcher.check_alive)
        except ConvergenceError as error:
            return error
        return None

    def _remove(self, kernel: NetnsKernel) -> None:
        """Remove what no route leads to any more."""
        changes, known = self.changes, self.running.identities
        gone = {node: known[node] for node in changes.kernel.gone if node in known}
        if not self._manner.again:
            drain_links(changes, self._run)
        before, after = ({speaker.node for speaker in plan.speakers} for plan in (changes.old, changes.new))
        for node in sorted((before - after) & known.keys()):
            stop_routing(self.running, node)
        self._data_path.take_back(kernel, changes.kernel.removed)
        kernel.apply(changes.kernel.settled, replacing=True)
        leave_attachment(changes.old, changes.new, self._state.run, self._run, self.running.state_directory)
        self._data_path.forget()
        if self._manner.tells:
            tell(changes.routing, self._run, comes_last, again=self._manner.again)
        if gone:
            kernel.remove(gone)
            self._journal.gone(gone)
        remove_node_files(self._run, changes.kernel.gone)

    def _end(self, created: set[str], unconverged: ConvergenceError | None) -> None:
        """Record the lab as it is now. `created` are the nodes that were made.

        Raises `unconverged`, where there is one, and `DriverError` for a command of a new node that fails.
        """
        changes, record = self.changes, self.record
        if COMMANDS not in self._steps_before and not self._manner.undoes:
            before = {node.name for node in self.running.model.nodes}
            created |= {node.name for node in changes.lab.nodes} - before
        if created and unconverged is None:
            with self._step(COMMANDS):
                run_node_commands(changes.lab, RunningLab(record, self._state), created)
        with self._undoing_without_room():
            write_lab_directory(changes.lab, changes.new, Path(record.directory), self._journal)
        if self._state.read(record.name) != record:
            self._state.write(record)
        life = self.life if unconverged is None else LabState.FAILED
        with self._undoing_without_room():
            self._journal.state(LabState.RUNNING if self._waits and unconverged is None else life)
        self._state.end_change(record.name)
        if self._manner.undoes:
            tell_undone(self.running)
        else:
            tell_changes(self.running, changes.rows)
        if unconverged is not None:
            raise ConvergenceError(
                unconverged.message,
                missing=unconverged.missing,
                hint="the lab is changed: look with `testbed inspect bgp` and `testbed logs NODE`; `testbed apply` with"
                " the former file changes it back",
            )


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
            _Carrying(back, begun, _way_back(running, options.timeout_s), notify).carry_out()
            return _Ended(running=running, changes=back, is_asked=True)
        # Where something else is asked for, routing need not converge: what is wrong may be what is changed now.
        is_asked = _is_asked(record, asked, options.k)
        changes = changes_between(running, begun)
        require_possible(changes)
        options.told(changes)
        manner = Manner(timeout_s=options.timeout_s, again=True, waits=None if is_asked else False)
        _carry_out_or_undo(_Carrying(changes, running, manner, notify), notify)
    return _Ended(running=begun, changes=changes, is_asked=is_asked)


def _way_back(running: RunningLab, timeout_s: float, life: LabState | None = None) -> Manner:
    """Return the way back to what a lab was before a change: routing daemons are told where they were told of it."""
    told = TELLING in Journal(running.state_directory).read().steps
    return Manner(timeout_s=timeout_s, again=True, undoes=True, tells=told, life=life)


def _carry_out(carrying: _Carrying, notify: StepCallback) -> None:
    """Carry out changes that nothing speaks against; or, after an error, none of them."""
    for feature in features():
        feature.prepare(carrying.changes.lab, carrying.changes.new)
    require_data_path(carrying.changes.new)
    ChangedDataPath(carrying.changes, carrying.running.processes_directory).require_room()
    _carry_out_or_undo(carrying, notify, begins=True)


def _carry_out_or_undo(carrying: _Carrying, notify: StepCallback, *, begins: bool = False) -> None:
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


def _undo(carrying: _Carrying, notify: StepCallback, cause: BaseException) -> str:
    """Take back what was carried out of a change before `cause`; what is to be said of it beside that comes back.

    Raises `ChangeStuck`.
    """
    running, changes = carrying.running, carrying.changes
    begun = RunningLab.planned(carrying.record, running.state, changes.lab, changes.new)
    try:
        back = changes_between(begun, running)
        require_possible(back)
        _Carrying(back, begun, _way_back(running, UNDONE_S, carrying.life), notify).carry_out()
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
