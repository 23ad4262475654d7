"""Changing a lab that is up into what its file says now: what differs is made, changed and removed, and nothing else.

The order keeps traffic of others whole: what is new is made first, then routing is told, and what goes is removed once
no route leads there any more. Whatever happens in between, `next.json` beside the lab's record says what it was to
become: `apply` goes on from there, and `destroy` removes what both records and the journal name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from testbed.base.datapath import pins
from testbed.base.datapath.maps import LabMaps
from testbed.lab.core.deploy.changing.differences import LabChanges, changes_of, require_allowed
from testbed.lab.core.deploy.changing.refusal import ChangeRefused
from testbed.lab.core.deploy.changing.routing import comes_last, tell
from testbed.lab.core.deploy.links.changes import fill_wires
from testbed.lab.core.deploy.listing import recorded_daemons
from testbed.lab.core.deploy.live import RunningLab, environment_of, planned_daemons
from testbed.lab.core.deploy.pausing.attachment import attach
from testbed.lab.core.deploy.records.journal import Journal, LabState
from testbed.lab.core.deploy.records.lab_record import LabRecord, encode_lab
from testbed.lab.core.deploy.records.labdir import write_lab_directory
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.deploy.routing import bgp_password, daemon_sets, start_daemons, stop_routing
from testbed.lab.core.deploy.steps import StepCallback, ignore_steps, step
from testbed.lab.core.deploy.watch.converge import ConvergenceWatch
from testbed.lab.core.drivers.netlink.port_programs import PortInstaller, fits, forget_ports, write_maps
from testbed.lab.core.drivers.nodes.netns import NetnsKernel
from testbed.lab.core.drivers.probing.machine import find_frr, require_root
from testbed.lab.core.drivers.routing.frr import DaemonLauncher
from testbed.lab.core.feature import Changing
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.changes import Allow
from testbed.lab.core.plan.qos.numbers import numbers_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyOptions:
    """`k` is the time scale that the lab is to have, None for the one it has. `allow`: what may be done to the lab that
    is more than changing it where it is."""

    k: float | None = None
    timeout_s: float = 120.0
    allow: frozenset[Allow] = field(default_factory=frozenset)


def apply_lab(
    lab: Lab, state: StateDirectory, options: ApplyOptions, notify: StepCallback = ignore_steps
) -> LabChanges:
    """Change a lab that is up into `lab`, and wait until its routing has converged.

    Raises `ChangeRefused` and `PlanError` before anything is touched; `DriverError` and `ConvergenceError` leave the
    lab as far as it came, and `apply` goes on from there.
    """
    require_root()
    with state.lock_lab(lab.name):
        running = RunningLab.open(lab.name, state)
        changes = changes_of(running, lab, options.k)
        require_allowed(changes, options.allow)
        if changes:
            _Carrying(changes, running, state, options, notify).carry_out()
        return changes


class _Carrying:
    """The carrying out of changes that nothing speaks against."""

    def __init__(
        self,
        changes: LabChanges,
        running: RunningLab,
        state: StateDirectory,
        options: ApplyOptions,
        notify: StepCallback,
    ) -> None:
        self._changes = changes
        self._running = running
        self._state = state
        self._options = options
        self._notify = notify
        self._journal = Journal(running.state_directory)
        self._run = running.processes_directory
        self._nodes = changes.kernel.created

    def carry_out(self) -> None:
        changes, new = self._changes, self._changes.new
        record = self._record()
        features = changes.features
        changing = Changing(
            running=self._running,
            lab=changes.lab,
            plan=new,
            state=self._state,
            journal=self._journal,
            notify=self._notify,
        )
        self._journal.state(LabState.CHANGING)
        for each in features:
            each.begin(changing)
        new_nodes = {item.node for item in self._nodes}
        kernel = NetnsKernel(new.lab, nodes=changes.kernel.places)
        watch: ConvergenceWatch | None = None
        launcher: DaemonLauncher | None = None
        try:
            with step("nodes", self._notify, f"{len(self._nodes)} new"):
                self._journal.nodes(kernel.create_nodes(self._nodes))
                kernel.publish(new_nodes)
            for each in features:
                each.created(changing)
            with step("links", self._notify), self._data_path(kernel):
                kernel.undo(changes.kernel.first)
                kernel.apply(changes.kernel.made, replacing=True)
            with step("ports", self._notify):
                kernel.change(changes.kernel)
                attach(new, self._state.run, self._run, self._running.state_directory)
            for each in features:
                each.linked(changing)
            with step("routing", self._notify, f"{len(changes.routing)} nodes told"):
                watch = ConvergenceWatch(new, self._run)
                launcher = self._route()
            with step("converge", self._notify):
                watch.wait(self._options.timeout_s, self._notify, launcher.check_alive)
            for each in features:
                each.routed(changing)
            with step("removals", self._notify, f"{len(changes.kernel.gone)} nodes"):
                self._remove(kernel)
            for each in features:
                each.removed(changing)
            self._state.write(record)
            write_lab_directory(changes.lab, new, Path(record.directory), self._journal)
            self._journal.state(LabState.RUNNING)
        finally:
            if launcher is not None:
                launcher.release()
            if watch is not None:
                watch.close()
            kernel.close()

    def _record(self) -> LabRecord:
        """The record of the lab as it is to be."""
        lab, new, was = self._changes.lab, self._changes.new, self._running.record
        return replace(
            was,
            k=new.k,
            source=lab.source,
            model=encode_lab(lab),
            environment={node.name: more for node in lab.nodes if (more := environment_of(new, self._run, node.name))},
            daemons=recorded_daemons(lab, new, planned_daemons(new, self._running.frr_version)),
            numbers=asdict(numbers_of(new)) if new.tables is not None else None,
        )

    @contextlib.contextmanager
    def _data_path(self, kernel: NetnsKernel) -> Iterator[None]:
        """Write the numbers of the new plan into the maps, and have programs ready for new ports."""
        new = self._changes.new
        if new.tables is None:
            yield
            return
        directory = pins.lab_directory(self._run)
        with contextlib.closing(LabMaps.open(directory, writable=True, with_room=True)) as maps:
            installs = self._changes.kernel.installs
            if not fits(maps, new.tables, installs):
                raise ChangeRefused(
                    f"{new.lab} has no room for so many more ports", hint="deploy --reconfigure replaces it"
                )
            write_maps(maps, new.tables, installs)
            fill_wires(maps, new)
        kernel.use_data_path(PortInstaller.open(directory, new.tables))
        yield

    def _route(self) -> DaemonLauncher:
        """Start the daemons of new nodes, and tell those of others the difference; their files follow."""
        new, lab, run = self._changes.new, self._changes.lab, self._run
        before = {speaker.node for speaker in self._changes.old.speakers}
        added = {speaker.node for speaker in new.speakers} - before
        frr = find_frr() if any(node.container is None for node in lab.speakers) else None
        elsewhere = {node: how for each in self._changes.features for node, how in each.elsewhere.items()}
        launcher = DaemonLauncher(frr)
        password = bgp_password(new, self._running.state_directory)
        if added:
            sets = daemon_sets(lab, new, run, frr, only=added, elsewhere=elsewhere, password=password)
            start_daemons(launcher, sets, new, run)
        tell(self._changes.routing, self._run, lambda command: not comes_last(command))
        return launcher

    def _remove(self, kernel: NetnsKernel) -> None:
        """Remove what no route leads to any more."""
        gone = self._changes.kernel.gone
        for node in {speaker.node for speaker in self._changes.old.speakers}.intersection(gone):
            stop_routing(self._running, node)
        kernel.undo(self._changes.kernel.removed)
        kernel.apply(self._changes.kernel.settled, replacing=True)
        if lost := set(self._changes.old.port_numbers.values()) - set(self._changes.new.port_numbers.values()):
            with contextlib.closing(LabMaps.open(pins.lab_directory(self._run), writable=True, with_room=True)) as maps:
                forget_ports(maps, sorted(lost))
        tell(self._changes.routing, self._run, comes_last)
        if gone:
            kernel.remove({node: self._running.identities[node] for node in gone})
            self._journal.gone(gone)
