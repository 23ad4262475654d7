"""Carrying out a change of a lab that is up, in the order that keeps traffic of others whole.

What is new is made first, then routing is told, and what goes is removed once no route leads there any more. Every step
may be carried out again: what it did before stays as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from testbed.base.errors import ConvergenceError
from testbed.base.files import remove_remains
from testbed.base.linux import namespaces
from testbed.base.names import namespace_name
from testbed.lab.core.deploy.changing.carrying.data_path import ChangedDataPath
from testbed.lab.core.deploy.changing.carrying.moved_addresses import announce_moved, names_may_differ
from testbed.lab.core.deploy.changing.carrying.routing import (
    comes_last,
    prepare_daemons,
    require_alive,
    settle_daemons,
    tell,
    with_ended_anew,
)
from testbed.lab.core.deploy.changing.carrying.solicitation import solicit_neighbours
from testbed.lab.core.deploy.changing.carrying.transit import drain_links, hold_back, leave_routes, let_in
from testbed.lab.core.deploy.changing.differences import LabChanges
from testbed.lab.core.deploy.changing.in_force import needs_routing
from testbed.lab.core.deploy.changing.telling.events import tell_begin, tell_changes, tell_undone
from testbed.lab.core.deploy.lifecycle import adjust_machine, run_node_commands
from testbed.lab.core.deploy.listing import recorded_daemons
from testbed.lab.core.deploy.live import RunningLab, environment_of, planned_daemons
from testbed.lab.core.deploy.node_files import remove_node_files, write_node_files
from testbed.lab.core.deploy.pausing.attachment import attach, change_attachment, leave_attachment
from testbed.lab.core.deploy.records.journal import Journal, LabState, StateError
from testbed.lab.core.deploy.records.lab_record import LabRecord
from testbed.lab.core.deploy.records.labdir import write_lab_directory
from testbed.lab.core.deploy.routing import bgp_password, daemon_sets, running_daemons, start_daemons, stop_routing
from testbed.lab.core.deploy.steps import StepCallback, step
from testbed.lab.core.deploy.watch.converge import ConvergenceWatch
from testbed.lab.core.deploy.watch.running_config import forget_configuration
from testbed.lab.core.drivers.nodes.netns import NetnsKernel
from testbed.lab.core.drivers.probing.machine import find_frr
from testbed.lab.core.drivers.routing.frr import DaemonLauncher
from testbed.lab.core.feature import Changing
from testbed.lab.core.plan.operations import CreateNode
from testbed.lab.core.plan.overlay_operations import CreateVrf

TELLING = "routing"
"""The step in which routing daemons are told of a change."""
COMMANDS = "commands"
"""The step in which the commands of new nodes are run."""


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


class ChangeExecution:
    """Changes that nothing speaks against, to be carried out once. `running` is the lab as it was."""

    def __init__(self, changes: LabChanges, running: RunningLab, manner: Manner, notify: StepCallback) -> None:
        self.changes = changes
        self.running = running
        content = Journal(running.state_directory).read()
        self.life = manner.life or (LabState.FAILED if content.state is LabState.FAILED else LabState.RUNNING)
        """The state of the lab when all is done."""
        needs = manner.waits if manner.waits is not None else needs_routing(changes) or self.life is LabState.FAILED
        self._waits = needs and manner.tells and not changes.routing.is_later
        self._manner = manner
        self._notify = notify
        self._journal = Journal(running.state_directory)
        self._steps_before = content.steps
        self._state = running.state
        self._run = running.processes_directory
        self._data_path = ChangedDataPath(changes, self._run)
        self._routing = with_ended_anew(running, changes.routing) if manner.again else changes.routing
        self.record = self._record()

    def _record(self) -> LabRecord:
        """The record of the lab as it is to be, by the releases of FRR that its nodes have now: those that something
        else is to realise have another one once it does."""
        lab, new, record = self.changes.lab, self.changes.new, self.changes.record
        if record is None:
            raise ValueError(f"{lab.name} is not deployed")
        return replace(
            record,
            environment={node.name: more for node in lab.nodes if (more := environment_of(new, self._run, node.name))},
            daemons=recorded_daemons(lab, new, self._daemons()),
        )

    def _daemons(self) -> Mapping[str, tuple[str, ...]]:
        """The daemons of each node of the new plan, by the FRR that it has now."""
        lab, new, record = self.changes.lab, self.changes.new, self.changes.record
        now = RunningLab.planned(self.running.record, self._state, self.running.model, self.running.plan)
        then = now if record is None else RunningLab.planned(record, self._state, lab, new)
        return planned_daemons(new, lambda node: then.frr_version(node) or now.frr_version(node))

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
            record=self.record,
            timeout_s=self._manner.timeout_s,
            undoes=self._manner.undoes,
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
                    adjust_machine(self.record, self._state)
            with self._step("nodes", f"{len(changes.kernel.created)} new"):
                self._create_nodes(kernel, created)
                self._write_node_files()
            for each in changes.features:
                each.created(changing)
            with self._step("links"), self._data_path.prepared(kernel):
                self._make(kernel)
            with self._step("ports"):
                kernel.change(changes.kernel)
                announce_moved(changes.kernel, changes.old, changes.new)
                self._attach()
            for each in changes.features:
                each.linked(changing)
            if self._manner.tells:
                with self._step(TELLING, f"{len(changes.routing)} nodes told"):
                    if not self._manner.again:
                        leave_routes(changes, self._run)
                    watch = self._watch() if self._waits else None
                    launcher = self._route()
            self._write_lab_directory()  # while routing converges
            unconverged = self._converge(watch, launcher)
            for each in changes.features if unconverged is None else ():
                each.routed(changing)
            with self._step("removals", f"{len(changes.kernel.gone)} nodes"):
                self._remove(kernel)
            unconverged = self._end_features(changing) or unconverged
            if self._manner.tells:  # a VRF is part of what zebra runs until it is hidden
                settle_daemons(self.running, changes.new, self._routing, self._daemons())
            self._end({item.node for item in created}, unconverged)
        finally:
            if launcher is not None:
                launcher.release()
            if watch is not None:
                watch.close()
            kernel.close()

    def _make(self, kernel: NetnsKernel) -> None:
        """Take back what is made anew, and make what is new."""
        changes = self.changes.kernel
        self._data_path.take_back(kernel, changes.first)
        kernel.set_queue_lengths(changes)
        kernel.apply(changes.made, replacing=True)

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

    def _write_node_files(self) -> None:
        """Have programs of nodes see the names of the new plan, where there may be others than before."""
        changes = self.changes
        may_differ = names_may_differ(changes.kernel, changes.old, changes.new)
        if may_differ or self._manner.again or changes.features:
            write_node_files(changes.lab, changes.new, self._run)

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
        prepare_daemons(self.running, lab, new, self._routing, launcher)
        if added:
            elsewhere = {node: how for each in self.changes.features for node, how in each.elsewhere.items()}
            password = bgp_password(new, self.running.state_directory)
            sets = daemon_sets(lab, new, run, launcher.frr, only=added, elsewhere=elsewhere, password=password)
            start_daemons(launcher, sets, new, run)
            hold_back(self.changes, run)
        tell(self._routing, run, lambda command: not comes_last(command), again=self._manner.again)
        if self._waits:
            solicit_neighbours(self.changes.old, new, run)
        let_in(self.changes, run)
        return launcher

    def _watch(self) -> ConvergenceWatch:
        """Watch the routing of all nodes that the change concerns."""
        return ConvergenceWatch(self.changes.new, self._run, self._concerned(), self.changes.old)

    def _concerned(self) -> set[str] | None:
        """Return the nodes whose routes or sessions are to become others; None for all, where those of the lab as it
        was may not have converged."""
        if self._manner.waits or self._manner.again or self.life is LabState.FAILED:
            return None
        old, new = self.changes.old, self.changes.new
        before = {speaker.node: speaker for speaker in old.speakers}
        return {
            speaker.node
            for speaker in new.speakers
            if speaker != before.get(speaker.node)
            or old.expected_routes.get(speaker.node) != new.expected_routes.get(speaker.node)
        }

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

        def check_alive() -> None:
            launcher.check_alive()
            require_alive(self._routing, self._run)

        try:
            with self._step("converge"):
                watch.wait(self._manner.timeout_s, self._notify, check_alive)
        except ConvergenceError as error:
            return error
        return None

    def _write_lab_directory(self) -> None:
        before = None if self._manner.again else (self.running.model, self.changes.old)
        with self._undoing_without_room():
            write_lab_directory(self.changes.lab, self.changes.new, Path(self.record.directory), self._journal, before)

    def _remove(self, kernel: NetnsKernel) -> None:
        """Remove what no route leads to any more."""
        changes, known = self.changes, self.running.identities
        gone = {node: known[node] for node in changes.kernel.gone if node in known}
        if not self._manner.again:
            drain_links(changes, self._run)
        before, after = ({speaker.node for speaker in plan.speakers} for plan in (changes.old, changes.new))
        for node in sorted((before - after) & known.keys()):
            stop_routing(self.running, node)
            forget_configuration(self._run, node)
        self._data_path.take_back(kernel, changes.kernel.removed)
        kernel.apply(changes.kernel.settled, replacing=True)
        leave_attachment(changes.old, changes.new, self._state.run, self._run, self.running.state_directory)
        with self._undoing_without_room():
            self._data_path.keep_accounts(self.running.state_directory)
        self._data_path.forget()
        with self._undoing_without_room():
            self._data_path.settle_accounts(self.running.state_directory)
        if self._manner.tells:
            tell(self._routing, self._run, comes_last, again=self._manner.again)
        if gone:
            kernel.remove(gone)
            self._journal.gone(gone)
        remove_node_files(self._run, changes.kernel.gone)

    def _end_features(self, changing: Changing) -> ConvergenceError | None:
        """Have features end their parts; the error of routing that has not converged once more comes back."""
        unconverged: ConvergenceError | None = None
        for each in self.changes.features:
            try:
                each.removed(changing)
            except ConvergenceError as error:
                unconverged = error
        return unconverged

    def _end(self, created: set[str], unconverged: ConvergenceError | None) -> None:
        """Record the lab as it is now. `created` are the nodes that were made.

        Raises `unconverged`, where there is one, and `DriverError` for a command of a new node that fails.
        """
        changes, record = self.changes, self._record()
        if COMMANDS not in self._steps_before and not self._manner.undoes:
            before = {node.name for node in self.running.model.nodes}
            created |= {node.name for node in changes.lab.nodes} - before
        if created and unconverged is None:
            with self._step(COMMANDS):
                run_node_commands(changes.lab, RunningLab(record, self._state), created)
        if not self._manner.again or self._state.read(record.name) != record:
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
