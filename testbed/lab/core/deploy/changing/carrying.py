"""The carrying out of a change, step by step; each is in the lab's journal when it begins.

The order keeps traffic of others whole: what is new is made first, then routing is told, and what goes is removed once
no route leads there any more. Every step may be carried out again: what it did before stays as it is, so that a change
that was killed anywhere is finished, or undone, by carrying out all of it in the one direction or the other.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from testbed.base.datapath import pins
from testbed.base.datapath.maps import LabMaps
from testbed.base.errors import ConvergenceError
from testbed.base.linux import namespaces
from testbed.base.names import namespace_name
from testbed.lab.core.deploy.changing.differences import LabChanges
from testbed.lab.core.deploy.changing.in_force import needs_routing
from testbed.lab.core.deploy.changing.refusal import ChangeRefused
from testbed.lab.core.deploy.changing.routing import AFTERWARDS, tell
from testbed.lab.core.deploy.changing.telling import tell_begin, tell_changes, tell_undone
from testbed.lab.core.deploy.lifecycle import raise_neighbour_limits, run_node_commands
from testbed.lab.core.deploy.links.changes import probability
from testbed.lab.core.deploy.listing import recorded_daemons
from testbed.lab.core.deploy.live import RunningLab, planned_daemons
from testbed.lab.core.deploy.pausing.attachment import attach
from testbed.lab.core.deploy.records.journal import Journal, LabState, StateError
from testbed.lab.core.deploy.records.lab_record import LabRecord
from testbed.lab.core.deploy.records.labdir import write_lab_directory
from testbed.lab.core.deploy.routing import bgp_password, daemon_sets, start_daemons, start_routing, stop_routing
from testbed.lab.core.deploy.steps import StepCallback, step
from testbed.lab.core.deploy.watch.converge import ConvergenceWatch
from testbed.lab.core.drivers.netlink.port_programs import PortInstaller, fits, forget_ports, write_maps
from testbed.lab.core.drivers.nodes.netns import NetnsKernel
from testbed.lab.core.drivers.probing.machine import find_frr
from testbed.lab.core.drivers.routing.frr import DaemonLauncher
from testbed.lab.core.feature import Changing
from testbed.lab.core.plan.operations import CreateNode, DelayPort, Operation

TELLING = "routing"
"""The step in which routing daemons are told of a change."""
COMMANDS = "commands"
"""The step in which the commands of new nodes are run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How changes are carried out.

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


class Carrying:
    """Changes that nothing speaks against, to be carried out once. `running` is the lab as it was."""

    def __init__(self, changes: LabChanges, running: RunningLab, manner: Manner, notify: StepCallback) -> None:
        """Raise `ChangeRefused` for what only a new deploy can bring about."""
        if changes.obstacles:
            raise ChangeRefused(f"{running.name} cannot be changed where it is: {'; '.join(changes.obstacles)}")
        self.changes = changes
        self.running = running
        content = Journal(running.state_directory).read()
        self.life = manner.life or (LabState.FAILED if content.state is LabState.FAILED else LabState.RUNNING)
        """What the lab is called when all is done."""
        needs = manner.waits if manner.waits is not None else needs_routing(changes) or self.life is LabState.FAILED
        self._waits = needs and manner.tells
        self._manner = manner
        self._notify = notify
        self._journal = Journal(running.state_directory)
        self._steps_before = content.steps
        self._state = running.state
        self._run = running.processes_directory
        self.record = self._record()

    def _record(self) -> LabRecord:
        """The record of the lab as it is to be."""
        lab, new, record = self.changes.lab, self.changes.new, self.changes.record
        if record is None:
            raise ValueError(f"{lab.name} is not deployed")
        version_of = self.running.frr_version if record.frr == self.running.record.frr else lambda _: record.frr
        return replace(record, daemons=recorded_daemons(lab, new, planned_daemons(new, version_of)))

    def require_room(self) -> None:
        """Raise `ChangeRefused` where the maps of the data path have no room for the ports that are added."""
        new = self.changes.new
        if new.tables is None:
            return
        with contextlib.closing(LabMaps.open(pins.lab_directory(self._run), with_room=True)) as maps:
            if not fits(maps, new.tables, self.changes.kernel.installs):
                raise ChangeRefused(
                    f"{new.lab} has no room for so many more ports", hint="deploy --reconfigure replaces it"
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
        kernel, created = self._kernel()
        watch: ConvergenceWatch | None = None
        launcher: DaemonLauncher | None = None
        try:
            for each in changes.features:
                each.begin(changing)
            if len(changes.new.ports) > len(changes.old.ports):
                with self._state.lock_machine():
                    raise_neighbour_limits(self.record, self._state)
            with self._step("nodes", f"{len(changes.kernel.created)} new"):
                self._create_nodes(kernel, created)
            with self._step("links"), self._data_path(kernel):
                self._undo(kernel, changes.kernel.first)
                kernel.apply(changes.kernel.made)
            with self._step("ports"):
                kernel.change(changes.kernel)
                attach(changes.new, self._state.run, self._run, self.running.state_directory)
            for each in changes.features:
                each.linked(changing)
            if self._manner.tells:
                with self._step(TELLING, f"{len(changes.routing)} nodes told"):
                    watch = ConvergenceWatch(changes.new, self._run) if self._waits else None
                    launcher = self._route()
            unconverged = self._converge(watch, launcher)
            for each in changes.features if unconverged is None else ():
                each.routed(changing)
            with self._step("removals", f"{len(changes.kernel.gone)} nodes"):
                self._remove(kernel)
            for each in changes.features:
                each.removed(changing)
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

    def _kernel(self) -> tuple[NetnsKernel, Sequence[CreateNode]]:
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

    def _create_nodes(self, kernel: NetnsKernel, created: Sequence[CreateNode]) -> None:
        if created:
            self._journal.nodes(kernel.create_nodes(created))
            kernel.publish({item.node for item in created})

    @contextlib.contextmanager
    def _data_path(self, kernel: NetnsKernel) -> Iterator[None]:
        """Write the numbers of the new plan into the maps, and have programs ready for new ports.

        What is sent through a device that delays is led there once it is there.
        """
        new, changes = self.changes.new, self.changes
        if new.tables is None:
            yield
            return
        directory = pins.lab_directory(self._run)
        with contextlib.closing(LabMaps.open(directory, writable=True, with_room=True)) as maps:
            write_maps(maps, new.tables, changes.kernel.installs)
            numbers, peers = new.port_numbers, {f"{port.node}:{port.name}": port.peer for port in new.ports}
            for port, loss in changes.losses.items():
                if (number := numbers.get(peers[port])) is not None:
                    maps.ports["loss"][number] = probability(loss)
        kernel.use_data_path(PortInstaller.open(directory, new.tables))
        yield
        self._lead_to_delays(changes.kernel.made, there=True)

    def _lead_to_delays(self, operations: Sequence[Operation], *, there: bool) -> None:
        """Lead what ports receive to the devices that delay it, or past them."""
        delays = [item for item in operations if isinstance(item, DelayPort) and not item.clsact]
        if not delays:
            return
        with contextlib.closing(LabMaps.open(pins.lab_directory(self._run), writable=True, with_room=True)) as maps:
            for item in delays:
                maps.ports["delay_ifindex"][item.port] = item.ifb_ifindex if there else 0

    def _undo(self, kernel: NetnsKernel, operations: Sequence[Operation]) -> None:
        self._lead_to_delays(operations, there=False)
        kernel.undo(operations)

    def _route(self) -> DaemonLauncher:
        """Start the daemons of new nodes, and tell those of others the difference; their files follow."""
        new, lab, run = self.changes.new, self.changes.lab, self._run
        before = {speaker.node for speaker in self.changes.old.speakers}
        added = {speaker.node for speaker in new.speakers} - before
        launcher = DaemonLauncher(find_frr() if added else None)
        if added and self._manner.again:
            wanted = RunningLab.planned(self.record, self._state, lab, new)
            for node in sorted(added):
                start_routing(wanted, node)
        elif added:
            password = bgp_password(new, self.running.state_directory)
            sets = daemon_sets(lab, new, run, find_frr(), only=added, password=password)
            start_daemons(launcher, sets, new, run)
        tell(self.changes.routing, run, lambda command: not command.startswith(AFTERWARDS), again=self._manner.again)
        return launcher

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
        for node in gone:
            stop_routing(self.running, node)
        self._undo(kernel, changes.kernel.removed)
        if lost := set(changes.old.port_numbers.values()) - set(changes.new.port_numbers.values()):
            with contextlib.closing(LabMaps.open(pins.lab_directory(self._run), writable=True, with_room=True)) as maps:
                forget_ports(maps, sorted(lost))
        if self._manner.tells:
            tell(changes.routing, self._run, lambda command: command.startswith(AFTERWARDS), again=self._manner.again)
        if gone:
            kernel.remove(gone)
            self._journal.gone(gone)
            for node in gone:
                shutil.rmtree(self._run / node, ignore_errors=True)

    def _end(self, created: set[str], unconverged: ConvergenceError | None) -> None:
        """Record the lab as it is now. `created` are the nodes that were made.

        Raises `unconverged`, where there is one, and `DriverError` for a command of a new node that fails.
        """
        changes, record = self.changes, self.record
        if COMMANDS not in self._steps_before and not self._manner.undoes:
            created |= {item.node for item in changes.kernel.created}
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
