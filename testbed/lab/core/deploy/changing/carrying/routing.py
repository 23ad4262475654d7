"""The routing daemons of a lab that is up: told what differs between two renderings of their configuration.

A daemon more is started, one less is ended, and lines that a daemon takes only when it starts have all daemons of the
node started anew, if that is allowed. Everything may be done once more, and in the other direction: who is there
already is not started, and who was only frozen goes on.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from testbed.base.errors import DriverError
from testbed.base.linux import vty
from testbed.base.linux.processes import Process, freeze, kill_processes, processes_in, thaw
from testbed.base.names import first_few
from testbed.lab.core.deploy.changing.refusal import ChangeRefused
from testbed.lab.core.deploy.changing.telling.grouping import counted
from testbed.lab.core.deploy.configurations import require_configurations, require_taken
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.routing import (
    bgp_password,
    daemon_sets,
    planned_sets,
    start_daemons,
    stop_routing,
    takes_namespaces,
)
from testbed.lab.core.deploy.watch.running_config import note_configurations
from testbed.lab.core.drivers.probing.machine import find_frr
from testbed.lab.core.drivers.routing.frr import (
    DaemonLauncher,
    last_output,
    remove_crash_directories,
    remove_daemon_files,
    write_configurations,
)
from testbed.lab.core.feature import features
from testbed.lab.core.model import NETNS, Lab, Node
from testbed.lab.core.plan.changes import Allow, ChangeRow, Effect
from testbed.lab.core.plan.lab_plan import LabPlan, SwitchPlan
from testbed.lab.core.render import FrrVersion, SwitchConfig, render_switch
from testbed.lab.core.render.difference import difference, only_at_start
from testbed.lab.core.render.frr import OWN_NEXT_HOPS

WITH_ITS_NAMESPACE = "no vrf "
AFTERWARDS = ("no interface ", WITH_ITS_NAMESPACE)
"""The commands that daemons refuse as long as the interface, or the namespace of the VRF, is there."""
_WITH_ITS_VNI = re.compile(r"no router bgp \d+ vrf ")
"""The instance of a VRF, which stays as long as its L3VNI is there."""
FROZEN = frozenset({"bfdd"})
"""The daemons that must not say goodbye: a neighbour that hears of the end of BFD ends its BGP session."""
SHOWN = 2


def comes_last(command: str) -> bool:
    """Tell whether a daemon takes a command only once what it is about is gone from the kernel."""
    return command.startswith(AFTERWARDS) or _WITH_ITS_VNI.match(command) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRouting:
    """The fate of the daemons of one node, beside what they are told.

    `started` are more than before, `ended` run no longer; `anew` are the lines for which all of them are started anew,
    at the cost of `sessions`. `config` is what they are to run.
    """

    node: str
    config: SwitchConfig
    started: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    anew: tuple[str, ...] = ()
    sessions: int = 0

    def rows(self) -> Iterator[ChangeRow]:
        """One row for each daemon that is started or ended, or for all of them."""
        for daemon in self.started:
            yield ChangeRow(effect=Effect.MADE, node=self.node, kind=daemon, what=f"{daemon} of {self.node}")
        for daemon in self.ended:
            yield ChangeRow(effect=Effect.REMOVED, node=self.node, kind=daemon, what=f"{daemon} of {self.node}")
        if self.anew:
            lines = first_few([*map(vty.without_secrets, self.anew)], SHOWN, "; ")
            yield ChangeRow(
                effect=Effect.RESTARTED,
                node=self.node,
                kind="set of routing daemons",
                what=f"routing daemons of {self.node}",
                detail=f"FRR takes this only when it starts: {lines}",
                at_stake=f"{counted(self.sessions, 'BGP session')}, and packets through the node meanwhile",
                allow=Allow.RESTART,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingChanges(Mapping[str, Mapping[str, Sequence[str]]]):
    """The commands of each daemon by node, which it is as a mapping, and what becomes of daemons themselves."""

    commands: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    nodes: Sequence[NodeRouting] = ()
    is_later: bool = False
    """Daemons come or go with a node that something else realises at the end of the change: routing has not converged
    before."""

    def __getitem__(self, node: str) -> Mapping[str, Sequence[str]]:
        return self.commands[node]

    def __iter__(self) -> Iterator[str]:
        return iter(self.commands)

    def __len__(self) -> int:
        return len(self.commands)

    def __bool__(self) -> bool:
        return bool(self.commands) or bool(self.nodes) or self.is_later

    def rows(self) -> Iterator[ChangeRow]:
        """The rows beside those of commands."""
        for node in self.nodes:
            yield from node.rows()


def routing_changes(running: RunningLab, old: LabPlan, new: LabPlan, lab: Lab | None = None) -> RoutingChanges:
    """Return what is to be done to the daemons of nodes that route in both plans. `lab` is what `new` is planned for.

    Raises `ChangeRefused`; `SpecError` and `PlanError` for lines of a node's own configuration that FRR does not take.
    """
    before = {speaker.node: speaker for speaker in old.speakers}
    if any(_is_told_otherwise(before.get(speaker.node), speaker) for speaker in new.speakers):
        require_configurations(running.model if lab is None else lab)
    gone = _interfaces(old) - _interfaces(new)
    wanted = {node.name: node for node in (running.model if lab is None else lab).nodes}
    commands: dict[str, Mapping[str, Sequence[str]]] = {}
    nodes: list[NodeRouting] = []
    is_later = False
    for speaker in new.speakers:
        was = before.get(speaker.node)
        if was is None or was == speaker:
            continue
        earlier, later = _render(running, old, was), _render(running, new, speaker)
        if earlier.daemons == later.daemons:
            continue
        told, found = _changes_of(speaker, earlier, later, {name for node, name in gone if node == speaker.node})
        if takes_namespaces(was) != takes_namespaces(speaker):
            told, found = {}, _anew(speaker, later, ["VRFs that are namespaces"])
        if running.frr_version(speaker.node):  # else a change that was cut short has not made the container
            if _begins_anew(running, wanted[speaker.node]) and _is_more_than_told(found):
                is_later = True
                continue
            _require_ours(running, found)
        nodes.append(found)
        if told:
            commands[speaker.node] = told
    return RoutingChanges(commands=commands, nodes=nodes, is_later=is_later)


def _is_told_otherwise(was: SwitchPlan | None, now: SwitchPlan) -> bool:
    """Tell whether the own configuration of a node is not the one that it had."""
    return now.startup is not None and (was is None or was.startup != now.startup)


def _interfaces(plan: LabPlan) -> set[tuple[str, str]]:
    return {(port.node, port.name) for port in plan.ports}


def _changes_of(
    speaker: SwitchPlan, old: SwitchConfig, new: SwitchConfig, leaving: set[str]
) -> tuple[dict[str, Sequence[str]], NodeRouting]:
    """The commands of one node's daemons, and what becomes of these."""
    both = [daemon for daemon, text in new.daemons.items() if old.daemons.get(daemon, text) != text]
    anew = [line for daemon in both for line in only_at_start(old.daemons[daemon], new.daemons[daemon])]
    anew += [f"module {name}" for name in _modules(new) - _modules(old)]
    if OWN_NEXT_HOPS in new.daemons["zebra"] and OWN_NEXT_HOPS not in old.daemons["zebra"]:
        anew += OWN_NEXT_HOPS.splitlines()[:1]  # zebra takes it at any time, and routes keep the groups that they have
    if anew:
        return {}, _anew(speaker, new, anew)
    commands: dict[str, Sequence[str]] = {
        daemon: lines
        for daemon in both
        if (lines := difference(old.daemons[daemon], new.daemons[daemon], leaving=leaving))
    }
    return commands, NodeRouting(
        node=speaker.node,
        config=new,
        started=tuple(daemon for daemon in new.daemons if daemon not in old.daemons),
        ended=tuple(daemon for daemon in old.daemons if daemon not in new.daemons),
    )


def _anew(speaker: SwitchPlan, config: SwitchConfig, lines: Sequence[str]) -> NodeRouting:
    """All daemons of a node, started anew for what they take only when they start."""
    told = tuple(dict.fromkeys(lines))
    return NodeRouting(node=speaker.node, config=config, anew=told, sessions=len(speaker.neighbors))


def _modules(config: SwitchConfig) -> set[str]:
    return {name for names in config.modules.values() for name in names}


def _begins_anew(running: RunningLab, wanted: Node) -> bool:
    """Tell whether a node is a container, and is to be another one or none: all its daemons begin with that."""
    container = running.node(wanted.name).container
    return container is not None and container != wanted.container


def _is_more_than_told(found: NodeRouting) -> bool:
    """Tell whether daemons of a node are to be started or ended."""
    return bool(found.started or found.ended or found.anew)


def _require_ours(running: RunningLab, found: NodeRouting) -> None:
    """Raise `ChangeRefused` where daemons of a container would be started or ended: they are its engine's."""
    if running.node(found.node).runtime != NETNS and _is_more_than_told(found):
        raise ChangeRefused(
            f"{found.node} is a container: its routing daemons are started with the lab alone",
            hint="deploy --reconfigure replaces the lab",
        )


def _render(running: RunningLab, plan: LabPlan, speaker: SwitchPlan) -> SwitchConfig:
    version = FrrVersion.parse(running.configured_frr(speaker.node))
    return render_switch(
        speaker,
        lab=plan.lab,
        version=FrrVersion(version.major, version.minor),  # as a deploy writes it
        log_directory=str(running.processes_directory / speaker.node),
        password=bgp_password(plan, running.state_directory),
    )


def prepare_daemons(
    running: RunningLab, lab: Lab, new: LabPlan, routing: Mapping[str, object], launcher: DaemonLauncher
) -> None:
    """Have the daemons of nodes there that are to be told something, or that are started anew; their files follow.

    Raises `DriverError`, `CapabilityError`.
    """
    nodes = _nodes_of(routing)
    run = running.processes_directory
    if launcher.frr is None and any(node.started or node.anew for node in nodes):
        launcher.frr = find_frr()
    freeze(_processes(running, {node.node: node.ended for node in nodes}, FROZEN))
    for node in nodes:
        if not node.anew:
            write_configurations(run / node.node, node.config.daemons, node.config.integrated)
    _start_more(running, lab, new, nodes, launcher)
    anew = {node.node for node in nodes if node.anew}
    if not anew:
        return
    for name in sorted(anew):
        stop_routing(running, name)
        for feature in features():
            feature.before_routing(new, run, name)
    password = bgp_password(new, running.state_directory)
    sets = daemon_sets(lab, new, run, launcher.frr, only=anew, password=password)
    start_daemons(launcher, sets, new, run)
    for name in sorted(anew):
        for feature in features():
            feature.after_routing(new, running.state, name)


def _start_more(
    running: RunningLab, lab: Lab, new: LabPlan, nodes: Sequence[NodeRouting], launcher: DaemonLauncher
) -> None:
    """Start the daemons that nodes have more than before; those that were frozen go on."""
    wanted = {node.node: node.started for node in nodes if node.started}
    if not wanted:
        return
    there = _processes(running, wanted)
    thaw(there)
    found = {(process.identity, process.command) for process in there}
    more = {
        node: tuple(daemon for daemon in daemons if (running.identities[node], daemon) not in found)
        for node, daemons in wanted.items()
    }
    only = {node for node, daemons in more.items() if daemons}
    password = bgp_password(new, running.state_directory)
    run = running.processes_directory
    sets = planned_sets(lab, new, run, launcher.frr, only=only, password=password)
    launcher.start_beside(sets, more)


def _processes(
    running: RunningLab, daemons: Mapping[str, Sequence[str]], among: frozenset[str] | None = None
) -> list[Process]:
    """The processes of these daemons of nodes, or of those among some names."""
    wanted = {
        (running.identities[node], name)
        for node, names in daemons.items()
        for name in names
        if node in running.identities and (among is None or name in among)
    }
    if not wanted:
        return []
    found = processes_in({identity for identity, _ in wanted})
    return [process for process in found if (process.identity, process.command) in wanted]


def settle_daemons(
    running: RunningLab, new: LabPlan, routing: Mapping[str, object], daemons: Mapping[str, Sequence[str]]
) -> None:
    """End the daemons that nodes have no more, and note what those of changed nodes run now as planned: each node has
    these `daemons`, by the FRR that it has now.

    Raises `DriverError` where one that was started did not take all of its file, and `StateError`.
    """
    nodes = _nodes_of(routing)
    run = running.processes_directory
    begun = {node.node for node in nodes if node.started or node.anew}
    require_taken([speaker for speaker in new.speakers if speaker.node in begun], run)
    ended = {node.node: node.ended for node in nodes if node.ended}
    found = _processes(running, ended)
    kill_processes(found)
    remove_crash_directories([], found)
    for node, names in ended.items():
        remove_daemon_files(run / node, names)
    before = {speaker.node for speaker in running.plan.speakers}
    added = {speaker.node for speaker in new.speakers} - before
    changed = {node.node for node in nodes} | {node for node in added if (run / node).is_dir()}
    if changed:
        note_configurations(run, {node: daemons[node] for node in sorted(changed)})


def with_ended_anew(running: RunningLab, routing: RoutingChanges) -> RoutingChanges:
    """Have all daemons of a node started anew with what they are to run where one of those that are to be told has
    ended, instead of being told.

    It is for the way back of a change, and for one that goes on: a daemon that ended while it was told of something
    cannot be told anything else. Those of a container are its engine's.
    """
    told = {node: running.identities[node] for node in routing if node in running.identities}
    there = {(process.identity, process.command) for process in processes_in(set(told.values()))} if told else set()
    lacking = {
        node
        for node, identity in told.items()
        if running.node(node).runtime == NETNS and any((identity, daemon) not in there for daemon in routing[node])
    }
    if not lacking:
        return routing
    return RoutingChanges(
        commands={node: daemons for node, daemons in routing.commands.items() if node not in lacking},
        nodes=[replace(node, anew=("one ended",)) if node.node in lacking else node for node in routing.nodes],
    )


def require_alive(routing: Mapping[str, Mapping[str, Sequence[str]]], run: Path) -> None:
    """Raise `DriverError` for a daemon that has ended since it was told of a change, with what it said."""
    for node, daemons in routing.items():
        for daemon in daemons:
            if not vty.is_there(run / node, daemon):
                said = last_output(run / node, daemon)
                raise DriverError(
                    f"{daemon} of {node} ended when it was told of the change" + (f": {said}" if said else ""),
                    operation="routing",
                    hint=f"testbed logs {node} has its last words",
                )


def _nodes_of(routing: Mapping[str, object]) -> Sequence[NodeRouting]:
    return routing.nodes if isinstance(routing, RoutingChanges) else ()


def tell(
    routing: Mapping[str, Mapping[str, Sequence[str]]],
    run: Path,
    is_meant: Callable[[str], bool],
    *,
    again: bool = False,
) -> None:
    """Have daemons carry out those of their commands that are meant. `again`: some may have been carried out before.

    Raises `DriverError` for one that is refused.
    """
    for node, daemons in routing.items():
        for daemon, commands in daemons.items():
            meant = [command for command in commands if is_meant(command)]
            strict = [command for command in meant if not command.startswith(WITH_ITS_NAMESPACE)]
            if strict:
                try:
                    vty.configure(run / node, daemon, strict, again=again)
                except DriverError:
                    require_alive({node: {daemon: strict}}, run)
                    raise
            for command in meant:
                if command.startswith(WITH_ITS_NAMESPACE):
                    with contextlib.suppress(DriverError):  # zebra may have noticed itself that it is gone
                        vty.configure(run / node, daemon, [command])
