"""The link groups of a lab that is up, changed: hosts, pairs of leaves and tenants above them come and go.

The process of a leaf reads its configuration again (SIGHUP) and keeps the groups that stay as they are, with their
partners: hosts that a change does not concern see no LACPDU that differs.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from testbed.base.errors import DriverError
from testbed.base.linux import traffic_control as traffic
from testbed.base.linux.processes import Process, launch_servers, terminate
from testbed.base.linux.rtnetlink import RouteSocket
from testbed.daemons.kit import configuration
from testbed.daemons.lag.bonding import load_bonding
from testbed.daemons.lag.configuration import (
    PROCESS_NAME,
    HostGroups,
    LagConfiguration,
    NodeConfiguration,
    PairedLeaf,
)
from testbed.daemons.lag.groups import AggregatePlan
from testbed.daemons.lag.kernel import BEHIND_QUEUES
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.drivers.nodes.inside import ask_inside
from testbed.lab.core.feature import Changing, FeatureChange
from testbed.lab.core.plan.changes import Allow, ChangeRow, Effect
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import CreateVeth, DelayPort, InstallPort, place_of
from testbed.lab.core.plan.sysctls import hash_seed
from testbed.lab.features.mlag.apply import (
    CONFIGURATION,
    LOG,
    lag_configuration,
    lag_directory,
    read_lag_configuration,
    wait_link_groups,
    wait_seeds,
)

TIMEOUT_S = 60.0
_AT_STAKE = "hosts go by the other port of their link groups meanwhile"


def change_link_groups(running: RunningLab, plan: LabPlan) -> LinkGroupsChange | None:
    """Return what makes the link groups of a lab that is up those of a plan; None where nothing differs."""
    run = running.processes_directory
    try:
        before = read_lag_configuration(run)
    except PermissionError:  # it has secrets, and who only asks what would differ may be anybody
        before = lag_configuration(running.plan, lag_directory(run))
    after = None if plan.link_groups is None else lag_configuration(plan, lag_directory(run), before)
    if before == after and running.plan.link_groups == plan.link_groups:
        return None
    return LinkGroupsChange(running, before, after, _moved(running.plan, plan))


def _moved(old: LabPlan, new: LabPlan) -> set[str]:
    """The hosts of which a member's link is made anew, since its other end lies in another VRF from now on."""
    places = [
        {
            (item.a.node, item.a.name): item.b.node
            for item in plan.operations
            if isinstance(item, CreateVeth) and item.a.name in members
        }
        for plan in (old, new)
        for members in [{member.name for host in _hosts(plan) for member in host.members}]
    ]
    hosts = {host.node for host in _hosts(old)} & {host.node for host in _hosts(new)}
    ends = {end for end in places[0].keys() | places[1].keys() if places[0].get(end) != places[1].get(end)}
    return {host for host in hosts if any(node == host for node, _ in ends)}


def _release(old: LabPlan, new: LabPlan) -> None:
    """Take the programs of link groups from ports that stay and are members no more, of which they would take every
    frame away."""
    before, after = (frozenset() if each.link_groups is None else each.link_groups.programmed for each in (old, new))
    left = before - after
    shared = {(place_of(item), item.ifindex) for item in new.operations if isinstance(item, InstallPort | DelayPort)}
    wanted: dict[str, list[bytes]] = {}
    for port in (port for port in new.ports if f"{port.node}:{port.name}" in left):
        ways = (traffic.CLSACT_INGRESS, traffic.CLSACT_EGRESS)
        batch = wanted.setdefault(port.place, [])
        batch += [traffic.delete_filters(port.ifindex, way, BEHIND_QUEUES) for way in ways]
        if (port.place, port.ifindex) not in shared:
            batch.append(traffic.delete_clsact(port.ifindex))
    ask_inside(new.lab, wanted, RouteSocket, lambda place, item: item.submit(wanted[place]))


def _hosts(plan: LabPlan) -> Sequence[AggregatePlan]:
    return () if plan.link_groups is None else plan.link_groups.hosts


class LinkGroupsChange(FeatureChange):
    """The part of link groups in a change."""

    def __init__(
        self,
        running: RunningLab,
        before: LagConfiguration | None,
        after: LagConfiguration | None,
        moved: Collection[str],
    ) -> None:
        """`moved` are the hosts whose processes have their sockets at links that are made anew."""
        self._running = running
        self._before, self._after = before, after
        old, new = ({} if each is None else {node.node: node for node in each.nodes} for each in (before, after))
        both = [(node, old[node], new[node]) for node in new if node in old and old[node] != new[node]]
        self._started = [node for node in new if node not in old]
        self._told = [node for node, was, now in both if _is_told(was, now)]
        self._moved = [node for node in new if node in old and node in moved]
        others = [node for node, was, now in both if not _is_told(was, now)]
        self._restarted = [node for node in others if node not in self._moved]
        self._ended = [node for node in old if node not in new]
        what = "the process of its link groups"
        super().__init__(
            [
                *(ChangeRow(effect=Effect.MADE, node=node, what=what) for node in self._started),
                *(ChangeRow(effect=Effect.CHANGED, node=node, what=what) for node in self._told),
                *(
                    ChangeRow(effect=Effect.RESTARTED, node=node, what=what, at_stake=_AT_STAKE, allow=Allow.RESTART)
                    for node in self._restarted
                ),
                *(ChangeRow(effect=Effect.RESTARTED, node=node, what=what) for node in self._moved),
                *(ChangeRow(effect=Effect.REMOVED, node=node, what=what) for node in self._ended),
            ]
        )

    def begin(self, changing: Changing) -> None:
        groups = changing.plan.link_groups
        if groups is not None and any(host.is_bond for host in groups.hosts):
            load_bonding()

    def linked(self, changing: Changing) -> None:
        """Have all processes serve the groups that there are, now that their ports are there."""
        directory = lag_directory(changing.run)
        path = directory / CONFIGURATION
        anew = [*self._restarted, *self._moved]
        running = self._running.processes({*self._told, *anew, *self._ended}, (PROCESS_NAME,))
        anew += [node for node in self._told if not running[node]]  # its process has died
        terminate([process for node in (*anew, *self._ended) for process in running[node]])
        _release(self._running.plan, changing.plan)
        try:
            if self._after is None:
                shutil.rmtree(directory)
                return
            for node in (*self._started, *anew, *self._ended):
                (directory / f"{node}.json").unlink(missing_ok=True)
            directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            configuration.write(path, self._after, mode=0o600)
        except OSError as error:
            raise DriverError(f"link groups do not change: {error}", operation="link groups") from error
        _tell(process for node in self._told for process in running[node])
        if begun := [*self._started, *anew]:
            launch_servers("testbed.daemons.lag", [str(path), *begun], directory / LOG, what="link groups do")

    def routed(self, changing: Changing) -> None:
        """Wait until every member of every group is in sync."""
        wait_link_groups(changing.plan, changing.run, TIMEOUT_S)


def _tell(processes: Iterable[Process]) -> None:
    """Have processes read their configuration again."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGHUP)


def _is_told(before: NodeConfiguration, after: NodeConfiguration) -> bool:
    """Tell whether a process that runs can take the changed configuration of its node."""
    if isinstance(before, PairedLeaf):
        return isinstance(after, PairedLeaf) and before.pair == after.pair
    return isinstance(after, HostGroups) and before.seeded(0) == after.seeded(0)


def seed_link_groups(lab: RunningLab, run: int) -> None:
    """Have hosts choose the members of their link groups as in the run of this seed; returns when they do.

    A bond of the kernel has no seed. Raises `ConvergenceError`, `DriverError`.
    """
    before = read_lag_configuration(lab.processes_directory)
    seeds = {host.node: hash_seed(host.node, run=run) for host in (() if before is None else before.hosts)}
    if before is None or not seeds:
        return
    path = lag_directory(lab.processes_directory) / CONFIGURATION
    hosts = tuple(host.seeded(seeds[host.node]) for host in before.hosts)
    try:
        configuration.write(path, replace(before, hosts=hosts), mode=0o600)
    except OSError as error:
        raise DriverError(f"link groups do not change: {error}", operation="link groups") from error
    running = lab.processes(set(seeds), (PROCESS_NAME,))
    _tell(process for found in running.values() for process in found)
    wait_seeds({node: seed for node, seed in seeds.items() if running[node]}, lab.processes_directory, TIMEOUT_S)
