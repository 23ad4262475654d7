"""Changing a lab that is up into what its file says now: what differs is made, changed and removed, and nothing else.

The order keeps traffic of others whole: what is new is made first, then routing is told, and what goes is removed once
no route leads there any more. Whatever happens in between, `next.json` beside the lab's record says what it was to
become: `apply` goes on from there, and `destroy` removes what both records and the journal name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from testbed.base.datapath import pins
from testbed.base.datapath.maps import LabMaps
from testbed.base.errors import TestbedError
from testbed.base.linux import vty
from testbed.lab.core.deploy.links.changes import fill_wires
from testbed.lab.core.deploy.listing import recorded_daemons
from testbed.lab.core.deploy.live import RunningLab, planned_daemons
from testbed.lab.core.deploy.pausing.attachment import attach
from testbed.lab.core.deploy.records.journal import Journal, LabState
from testbed.lab.core.deploy.records.lab_record import LabRecord, encode_lab
from testbed.lab.core.deploy.records.labdir import write_lab_directory
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.deploy.routing import bgp_password, daemon_sets, start_daemons, stop_routing
from testbed.lab.core.deploy.steps import StepCallback, ignore_steps, step
from testbed.lab.core.deploy.watch.converge import ConvergenceWatch
from testbed.lab.core.drivers.netlink.port_programs import PortInstaller, fits, forget_ports, write_maps
from testbed.lab.core.drivers.nodes.changing import KernelChanges, kernel_changes
from testbed.lab.core.drivers.nodes.netns import NetnsKernel
from testbed.lab.core.drivers.probing.machine import find_frr, require_root
from testbed.lab.core.drivers.routing.frr import DaemonLauncher
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.lab_plan import LabPlan, SwitchPlan
from testbed.lab.core.plan.qos.numbers import keep_numbers, numbers_of
from testbed.lab.core.render import FrrVersion, render_switch
from testbed.lab.core.render.difference import difference


class ChangeRefused(TestbedError):
    """A change that a lab that is up cannot take."""


NOT_YET = {
    "overlay": "tenants and their networks",
    "link_groups": "link groups of hosts",
    "management": "the management network and its services",
    "scale_up_domains": "scale-up domains",
}
"""The parts of a plan that only a new deploy changes, as fields of `LabPlan`."""


AFTERWARDS = "no interface "
"""The commands that daemons refuse as long as the interface is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabChanges:
    """All that makes a lab what a file says: what is done to the kernel, and commands for routing daemons by node and
    daemon."""

    old: LabPlan
    new: LabPlan
    lab: Lab
    kernel: KernelChanges
    routing: Mapping[str, Mapping[str, Sequence[str]]]

    def __bool__(self) -> bool:
        return bool(self.kernel) or bool(self.routing)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyOptions:
    """`k` is the time scale that the lab is to have, None for the one it has."""

    k: float | None = None
    timeout_s: float = 120.0


def changes_of(running: RunningLab, lab: Lab, k: float | None = None) -> LabChanges:
    """Return what makes a lab that is up what `lab` says. Touches nothing. Raises `ChangeRefused`, `PlanError`."""
    old = running.plan
    new = running.plan_of(lab, k=running.record.k if k is None else k)
    if old.tables is not None and new.tables is not None:
        new = keep_numbers(new, numbers_of(old))
    _refuse(old, new)
    return LabChanges(
        old=old, new=new, lab=lab, kernel=kernel_changes(old, new), routing=_routing_changes(running, old, new)
    )


def _refuse(old: LabPlan, new: LabPlan) -> None:
    """Raise `ChangeRefused` for what only a new deploy can bring about."""
    found = [what for name, what in NOT_YET.items() if getattr(old, name) != getattr(new, name)]
    if (old.tables is None) != (new.tables is None):
        found.append("QoS where there was none, or none where there was")
    if found:
        raise ChangeRefused(
            f"{old.lab} cannot be changed where it is: {', '.join(found)}", hint="deploy --reconfigure replaces it"
        )


def _routing_changes(running: RunningLab, old: LabPlan, new: LabPlan) -> dict[str, dict[str, Sequence[str]]]:
    """The commands for the daemons of nodes that route in both plans. Raises `ChangeRefused`."""
    before = {speaker.node: speaker for speaker in old.speakers}
    found: dict[str, dict[str, Sequence[str]]] = {}
    for speaker in new.speakers:
        was = before.get(speaker.node)
        if was is None or was == speaker:
            continue
        configs = [_render(running, plan, each) for plan, each in ((old, was), (new, speaker))]
        if configs[0].keys() != configs[1].keys():
            raise ChangeRefused(
                f"{speaker.node} would run other daemons: {', '.join(configs[1])} instead of {', '.join(configs[0])}",
                hint="deploy --reconfigure replaces the lab",
            )
        commands: dict[str, Sequence[str]] = {
            daemon: lines for daemon, text in configs[1].items() if (lines := difference(configs[0][daemon], text))
        }
        if commands:
            found[speaker.node] = commands
    return found


def _render(running: RunningLab, plan: LabPlan, speaker: SwitchPlan) -> Mapping[str, str]:
    return render_switch(
        speaker,
        lab=plan.lab,
        version=FrrVersion.parse(running.frr_version(speaker.node)),
        log_directory=str(running.processes_directory / speaker.node),
        password=bgp_password(plan, running.state_directory),
    ).daemons


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
        if changes:
            _Changing(changes, running, state, options, notify).carry_out()
        return changes


class _Changing:
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
        self._journal.state(LabState.CHANGING)
        new_nodes = {item.node for item in self._nodes}
        kernel = NetnsKernel(new.lab, nodes=changes.kernel.places)
        watch: ConvergenceWatch | None = None
        launcher: DaemonLauncher | None = None
        try:
            with step("nodes", self._notify, f"{len(self._nodes)} new"):
                self._journal.nodes(kernel.create_nodes(self._nodes))
                kernel.publish(new_nodes)
            with step("links", self._notify), self._data_path(kernel):
                kernel.undo(changes.kernel.first)
                kernel.apply(changes.kernel.made)
            with step("ports", self._notify):
                kernel.change(changes.kernel)
                attach(new, self._state.run, self._run, self._running.state_directory)
            with step("routing", self._notify, f"{len(changes.routing)} nodes told"):
                watch = ConvergenceWatch(new, self._run)
                launcher = self._route()
            with step("converge", self._notify):
                watch.wait(self._options.timeout_s, self._notify, launcher.check_alive)
            with step("removals", self._notify, f"{len(changes.kernel.gone)} nodes"):
                self._remove(kernel)
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
        frr = find_frr()
        launcher = DaemonLauncher(frr)
        password = bgp_password(new, self._running.state_directory)
        if added:
            start_daemons(launcher, daemon_sets(lab, new, run, frr, only=added, password=password), new, run)
        self._tell(lambda command: not command.startswith(AFTERWARDS))
        return launcher

    def _tell(self, is_meant: Callable[[str], bool]) -> None:
        """Have daemons carry out those of their commands that are meant."""
        for node, daemons in self._changes.routing.items():
            for daemon, commands in daemons.items():
                if meant := [command for command in commands if is_meant(command)]:
                    vty.configure(self._run / node, daemon, meant)

    def _remove(self, kernel: NetnsKernel) -> None:
        """Remove what no route leads to any more."""
        gone = self._changes.kernel.gone
        for node in gone:
            stop_routing(self._running, node)
        kernel.undo(self._changes.kernel.removed)
        if lost := set(self._changes.old.port_numbers.values()) - set(self._changes.new.port_numbers.values()):
            with contextlib.closing(LabMaps.open(pins.lab_directory(self._run), writable=True, with_room=True)) as maps:
                forget_ports(maps, sorted(lost))
        self._tell(lambda command: command.startswith(AFTERWARDS))
        if gone:
            kernel.remove({node: self._running.identities[node] for node in gone})
            self._journal.gone(gone)
