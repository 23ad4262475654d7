"""Drift: a lab that is up and is not what its record says, because a person changed it by hand, or something died.

`diff` shows it, and `apply --repair` mends it: what lacks is made again and what was added goes, in namespaces, in the
configuration of routing daemons, and of processes that ended. A repair is a change of the lab: it is journalled before
anything is touched, and one that was killed is begun anew by the next `apply`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from testbed.base.errors import DriverError
from testbed.base.linux import vty
from testbed.base.names import first_few
from testbed.lab.core.deploy.changing.drift.data_path_drift import DataPathDrift, look_at_data_path, repair_data_path
from testbed.lab.core.deploy.changing.drift.kernel_drift import BY_HAND, KernelDrift
from testbed.lab.core.deploy.changing.drift.kernel_repair import look_at_kernel, repair_kernel
from testbed.lab.core.deploy.changing.node import RECREATE, RESTART, rebuild, restart, working
from testbed.lab.core.deploy.changing.refusal import ChangeRefused
from testbed.lab.core.deploy.changing.telling.events import tell_changes
from testbed.lab.core.deploy.changing.telling.rows import lines_that_say
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.journal import Journal
from testbed.lab.core.deploy.records.lab_record import say_the_same
from testbed.lab.core.deploy.routing import await_daemons, start_routing
from testbed.lab.core.deploy.steps import StepCallback, ignore_steps, step
from testbed.lab.core.deploy.watch.running_config import (
    Difference,
    await_files,
    compare_configuration,
    read_configuration,
)
from testbed.lab.core.drivers.routing.frr import configuration_file
from testbed.lab.core.feature import EndedProcess, features
from testbed.lab.core.model import NETNS
from testbed.lab.core.plan.changes import ChangeRow, Effect
from testbed.lab.core.plan.overlay_operations import CreateVrf
from testbed.lab.core.render.difference import difference

REPAIR = "repair"
ENDED = "it ended"
PASSES = 3
"""A repair goes on: an address that goes may take others with it, and a daemon that starts may be told of the rest."""
SHOWN = 5
"""Things that an error names."""
_AT_ONCE = 4
_HIDDEN = "(hidden)"
"""The word that a noted configuration has in the place of a secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDrift:
    """A node that does not run as it should: `lacking` are daemons that ended; without any, the node itself is gone."""

    node: str
    state: str
    lacking: tuple[str, ...] = ()

    @property
    def row(self) -> ChangeRow:
        """Return the row that tells of it."""
        if self.lacking:
            return ChangeRow(
                effect=Effect.RESTARTED,
                node=self.node,
                what=f"{', '.join(self.lacking)} of {self.node}",
                reason=ENDED,
                at_stake="sessions of the node",
            )
        return ChangeRow(
            effect=Effect.REMADE,
            node=self.node,
            what=f"node {self.node}",
            reason=f"it is {self.state}",
            at_stake="all that runs on the node",
        )


@dataclass(frozen=True, kw_only=True)
class Drift:
    """All that a lab has otherwise than its record says. `routing` are commands for daemons, by node and daemon."""

    kernel: KernelDrift = field(default_factory=KernelDrift)
    data_path: DataPathDrift = field(default_factory=DataPathDrift)
    routing: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    nodes: Sequence[NodeDrift] = ()
    ended: Sequence[EndedProcess] = ()

    def __bool__(self) -> bool:
        return bool(self.rows)

    @cached_property
    def rows(self) -> tuple[ChangeRow, ...]:
        """All that a repair does, one row for each thing."""
        return (
            *(item.row for item in self.nodes),
            *self.kernel.rows,
            *self.data_path.rows,
            *(
                ChangeRow(effect=Effect.CHANGED, node=node, what=f"{daemon} of {node}", detail=line, reason=BY_HAND)
                for node, daemons in self.routing.items()
                for daemon, lines in daemons.items()
                for line in lines_that_say(lines)
            ),
            *(ChangeRow(effect=Effect.RESTARTED, node=item.node, what=item.what, reason=ENDED) for item in self.ended),
        )

    def __str__(self) -> str:
        return first_few([f"{row.node}: {row.what}" for row in self.rows], SHOWN, "; ")


def find_drift(lab: RunningLab) -> Drift:
    """Look at a lab that is up for what differs from its record. Touches nothing.

    Links that `link set` or a fault has changed, and nodes without power, are as somebody wants them: no drift. Raises
    `DriverError`, `StateError`.
    """
    plan = lab.plan
    statuses = lab.status()
    off = {status.name for status in statuses if status.state == "off"}
    kernel, lost = look_at_kernel(lab)
    nodes = [
        NodeDrift(node=status.name, state=status.state, lacking=status.missing_daemons)
        for status in statuses
        if status.state not in ("running", "off", "unhealthy", "unknown")
    ]
    told = {item.node for item in nodes}
    switches = {item.node: item.switch for item in plan.operations if isinstance(item, CreateVrf)}
    lost_nodes = dict.fromkeys(switches.get(place, place) for place in lost)
    nodes += [NodeDrift(node=node, state="gone") for node in lost_nodes if node not in told]
    quiet = {*told, *off}
    return Drift(
        kernel=kernel,
        data_path=look_at_data_path(lab),
        routing=_routing_drift(lab, [speaker.node for speaker in plan.speakers if speaker.node not in quiet]),
        nodes=nodes,
        ended=[item for feature in features() for item in feature.ended(lab) if item.node not in quiet],
    )


def _routing_drift(lab: RunningLab, nodes: Sequence[str]) -> dict[str, dict[str, Sequence[str]]]:
    """The commands that bring the configurations of daemons back to what they were started or told with."""

    def of_node(node: str) -> dict[str, Sequence[str]]:
        directory, daemons = lab.run_directory(node), lab.daemons.get(node, ())
        await_daemons(directory, daemons)  # they may have been started right now
        running = read_configuration(directory, daemons)
        lines, known = compare_configuration(lab.processes_directory, node, running)
        found: dict[str, Sequence[str]] = {}
        for daemon, now in running.items():
            mine = [line for line in lines if line.daemon == daemon]
            if not known or not any(line.differs for line in mine):
                continue
            planned = [line.line for line in mine if line.differs is not Difference.ADDED]
            if commands := difference("\n".join(now), "\n".join(planned)):
                found[daemon] = commands
        return found

    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="configurations") as pool:
        return {node: found for node, found in zip(nodes, pool.map(of_node, nodes), strict=True) if found}


def _with_secrets(commands: Sequence[str], file: Path) -> list[str]:
    """Put secrets, which no note has, into commands, from the file that the daemon was started from."""
    if not any(_HIDDEN in command for command in commands):
        return list(commands)
    written = [line.strip() for line in file.read_text().splitlines()]
    found = []
    for command in commands:
        begin, hidden, _ = command.partition(_HIDDEN)
        whole = next((line for line in written if line.startswith(begin)), command) if hidden else command
        found.append(whole)
    return found


def repair_lab(lab: RunningLab, drift: Drift, notify: StepCallback = ignore_steps) -> None:
    """Bring a lab back to what its record says, from which it differs by `drift`. Call with the lab locked.

    Raises `LabInUse` and `ChangeRefused` before anything is touched, `DriverError`, `StateError`.
    """
    if {item.node for item in drift.nodes if item.state == "gone"} >= {node.name for node in lab.model.nodes}:
        raise ChangeRefused(
            f"nothing of {lab.name} is there any more", hint="`testbed deploy --reconfigure` brings it up anew"
        )
    with working(lab, "", REPAIR):
        repair(lab, drift, notify)
    tell_changes(lab, drift.rows)


def finish_work(lab: RunningLab, notify: StepCallback = ignore_steps, *, back: bool = False) -> bool:
    """Do what a command that was killed was doing to nodes of a lab, and mend what it left; False where none was.

    A node that a change was making anew, which is the last of what it does, is made as that says, or as the lab was
    where the change is taken `back`; whoever ends the change mends the rest. Call with the lab locked. Raises
    `DriverError`.
    """
    journal = Journal(lab.state_directory)
    work = journal.read().work
    record = lab.state.read_next(lab.name) or lab.record
    in_change = not say_the_same(record.model, lab.record.model)
    meant, was = lab, None
    if in_change:
        begun = RunningLab(record, lab.state)
        meant, was = (lab, begun) if back else (begun, lab)
    for node, word in work.items():
        if word == RECREATE:
            rebuild(meant, node, notify, was=was)
        elif word == RESTART:
            restart(lab, node, notify)
        journal.work(node, "")
    if work and not in_change:
        lab = RunningLab(lab.record, lab.state)
        repair(lab, find_drift(lab), notify)
    return bool(work)


def repair(lab: RunningLab, drift: Drift, notify: StepCallback = ignore_steps) -> None:
    """Bring a lab back to what its record says. Call with the lab locked, and the change begun.

    Raises `DriverError` where something is not as recorded even then, naming it.
    """
    known = {node.name for node in lab.model.nodes}
    if strange := [item.node for item in drift.nodes if item.node not in known]:
        raise DriverError(
            f"the namespace {strange[0]} of {lab.name} is gone, which is no node's alone",
            operation="repair",
            hint="`testbed deploy --reconfigure` brings the lab up anew",
        )
    with step("repair", notify, f"{len(drift.rows)} things"):
        journal = Journal(lab.state_directory)
        for item in drift.nodes:
            if not item.lacking:
                journal.work(item.node, RECREATE)
                rebuild(lab, item.node, notify, keep=True)
                journal.work(item.node, "")
        if any(not item.lacking for item in drift.nodes):
            drift = find_drift(lab)  # a node that is made anew is as planned, and so are its links
        for _ in range(PASSES):
            _mend(lab, drift)
            if not (drift := find_drift(lab)):
                break
        else:
            raise DriverError(
                f"{lab.name} is not what its record says even after the repair: {drift}",
                operation="repair",
                hint="testbed node recreate NODE makes a node anew",
            )


def _mend(lab: RunningLab, drift: Drift) -> None:
    """Bring back what is in no need of a new node."""
    repair_data_path(lab, drift.data_path)
    repair_kernel(lab, drift.kernel)
    for item in drift.nodes:
        if item.lacking:
            _start_daemons(lab, item)
    for node, daemons in drift.routing.items():
        for daemon, commands in daemons.items():
            directory = lab.run_directory(node)
            vty.configure(directory, daemon, _with_secrets(commands, configuration_file(directory, daemon)), again=True)
    for part in drift.ended:
        part.start()


def _start_daemons(lab: RunningLab, item: NodeDrift) -> None:
    """Start the daemons of a node that lacks some; what its link groups run comes first."""
    if lab.node(item.node).runtime != NETNS:
        restart(lab, item.node)
        return
    if any(speaker.node == item.node for speaker in lab.plan.speakers):
        start_routing(lab, item.node)
        await_files(lab.processes_directory, {item.node: lab.daemons.get(item.node, ())})
        return
    for feature in features():
        feature.before_routing(lab.plan, lab.processes_directory, item.node)
