"""The link groups of a live lab: their processes started, and waited for until every member is in sync.

A host whose NIC is a bond of the kernel has no process: what its group does is asked of the kernel.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from pathlib import Path

from testbed.base.errors import DriverError
from testbed.base.linux.inotify import DirectoryWatch
from testbed.base.linux.namespaces import open_namespaces
from testbed.base.linux.processes import last_line, launch_servers
from testbed.base.names import namespace_name
from testbed.daemons.kit import configuration
from testbed.daemons.lag.bonding import bond_states, bond_status
from testbed.daemons.lag.configuration import (
    HostAggregate,
    HostGroups,
    LagConfiguration,
    LeafGroup,
    MemberPort,
    PairedBridge,
    PairedLeaf,
)
from testbed.daemons.lag.groups import AggregatePlan, MemberPlan, PairedBridgePlan, PairedLeafPlan
from testbed.daemons.lag.node import LagNodeStatus, read_status
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.check import CheckResult, judge
from testbed.lab.core.deploy.watch.converge import convergence_error
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.sysctls import hash_seed

DIRECTORY_NAME = ".link-groups"
"""In the lab's run directory; no node can have this name."""
CONFIGURATION = "configuration.json"
LOG = "processes.log"
_FIRST_PORT = {True: 0x100, False: 0x200}
"""Ports of the two leaves of a pair have numbers of their own, for they are one system."""
_SECRET_BYTES = 32


def lag_directory(run: Path) -> Path:
    """Return the file in which the processes of a lab with this run directory keep what is known of its link groups."""
    return run / DIRECTORY_NAME


def start_link_groups(plan: LabPlan, run: Path, only: Collection[str] = ()) -> None:
    """Start the processes of all nodes that have link groups, or of `only` those, if they have; returns when they are
    at work.

    Raises `DriverError`. A process lives in its node's network namespace, and goes with the node's other processes.
    """
    if plan.link_groups is None or not set(only) <= set(plan.link_groups.served):
        return
    directory = lag_directory(run)
    path = directory / CONFIGURATION
    try:
        if not only:
            directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            configuration.write(path, lag_configuration(plan, directory), mode=0o600)
        for node in only:
            (directory / f"{node}.json").unlink(missing_ok=True)
    except OSError as error:
        raise DriverError(f"link groups do not start: {error}", operation="link groups") from error
    launch_servers("testbed.daemons.lag", [str(path), *only], directory / LOG, what="link groups do")


def read_lag_configuration(run: Path) -> LagConfiguration | None:
    """Return what the processes of a lab were started from; None where it has none.

    Raises `PermissionError` for whoever is not root, and `DriverError` where the file is none of ours.
    """
    try:
        return configuration.read(lag_directory(run) / CONFIGURATION, LagConfiguration)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise DriverError(f"link groups: {error}", operation="link groups") from error


def lag_configuration(plan: LabPlan, directory: Path, before: LagConfiguration | None = None) -> LagConfiguration:
    """The configuration of a lab's link groups. `before` is that of the processes that run: pairs keep their secret,
    and groups their keys, which hosts know."""
    assert plan.link_groups is not None
    secret = before.leaves[0].secret if before is not None and before.leaves else secrets.token_hex(_SECRET_BYTES)
    keys = _keys(plan, before)
    indexes = {(port.node, port.name): port.ifindex for port in plan.ports}
    switches = {switch.node: switch for switch in plan.switches}

    def leaf(item: PairedLeafPlan) -> PairedLeaf:
        ours = switches[item.node]
        return PairedLeaf(
            namespace=namespace_name(plan.lab, item.node),
            node=item.node,
            peer=item.peer,
            primary=item.primary,
            system=item.system,
            secret=secret,
            peer_interface=item.peer_interface,
            peer_ifindex=item.peer_ifindex,
            loopback=str(ours.loopback.ip),
            peer_loopback=str(switches[item.peer].loopback.ip),
            bridges=tuple(bridge(one, groups(item)) for one in item.bridges),
            uplinks=tuple(indexes[item.node, neighbor.interface] for neighbor in ours.neighbors),
            routes=sum(bool(route.interfaces) for route in plan.expected_routes[item.node]),
            vtep="" if item.vtep is None else str(item.vtep),
        )

    def groups(item: PairedLeafPlan) -> dict[str, LeafGroup]:
        return {
            member.group: LeafGroup(
                name=member.group,
                key=(key := keys[item.system][member.group]),
                member=_port(member, _FIRST_PORT[item.primary] + key),
            )
            for member in item.members
        }

    def bridge(one: PairedBridgePlan, groups: Mapping[str, LeafGroup]) -> PairedBridge:
        return PairedBridge(
            namespace=namespace_name(plan.lab, one.node),
            ifindex=one.ifindex,
            peer_port=one.peer_ifindex,
            groups=tuple(groups[member.group] for member in one.members),
            vlan=one.vlan,
            tail=one.tail_ifindex,
            vxlan=one.vxlan_ifindex,
            entries=one.entries,
        )

    def aggregate(item: AggregatePlan) -> HostAggregate:
        return HostAggregate(
            nic=item.nic,
            inner=item.inner_ifindex,
            system=item.mac,
            key=1,
            seed=hash_seed(item.node),
            members=tuple(_port(member, number) for number, member in enumerate(item.members, 1)),
        )

    leaves = tuple(map(leaf, plan.link_groups.leaves))
    of_host: dict[str, list[HostAggregate]] = {}
    for item in plan.link_groups.hosts:
        if not item.is_bond:
            of_host.setdefault(item.node, []).append(aggregate(item))
    hosts = tuple(
        HostGroups(namespace=namespace_name(plan.lab, node), node=node, aggregates=tuple(found))
        for node, found in of_host.items()
    )
    return LagConfiguration(directory=directory, leaves=leaves, hosts=hosts)


def _keys(plan: LabPlan, before: LagConfiguration | None) -> dict[str, dict[str, int]]:
    """The key of each host's group at a pair, by the pair's system: the one that it has, or the least that is free."""
    found: dict[str, dict[str, int]] = {}
    for leaf in () if before is None else before.leaves:
        found.setdefault(leaf.system, {}).update({group.name: group.key for group in leaf.groups})
    for item in () if plan.link_groups is None else plan.link_groups.leaves:
        keys = found.setdefault(item.system, {})
        names = {member.group for member in item.members}
        for name in keys.keys() - names:
            del keys[name]
        free = (number for number in count(1) if number not in keys.values())
        for member in item.members:
            if member.group not in keys:
                keys[member.group] = next(free)
    return found


def _port(member: MemberPlan, number: int) -> MemberPort:
    return MemberPort(name=member.name, ifindex=member.ifindex, number=number)


def read_link_groups(lab: RunningLab) -> list[LagNodeStatus]:
    """Return the state of the link groups of every node, hosts first; nodes that say nothing are left out."""
    found = _statuses(lab.plan, lab.state.run_directory(lab.name))
    return [status for status in found.values() if status is not None]


def _statuses(plan: LabPlan, run: Path) -> dict[str, LagNodeStatus | None]:
    """Return the state of the link groups of each node, hosts first; None where that is not known."""
    groups = plan.link_groups
    if groups is None:
        return {}
    bonds: dict[str, list[AggregatePlan]] = {}
    for host in groups.hosts:
        if host.is_bond:
            bonds.setdefault(host.node, []).append(host)
    directory = lag_directory(run)
    served = {node: read_status(directory, node) for node in groups.nodes if node not in bonds}
    found: dict[str, LagNodeStatus | None] = {**served, **_bond_statuses(plan.lab, bonds)}
    return {node: found[node] for node in groups.nodes}


def _bond_statuses(lab: str, hosts: Mapping[str, Sequence[AggregatePlan]]) -> dict[str, LagNodeStatus | None]:
    """Return the state of the bonds of hosts, by the kernel; None for a host of which one is gone."""
    return {node: _bond_status(node, namespace_name(lab, node), bonds) for node, bonds in hosts.items()}


def _bond_status(node: str, name: str, planned: Sequence[AggregatePlan]) -> LagNodeStatus | None:
    try:
        (namespace,) = open_namespaces([name]).values()
    except DriverError:
        return None
    with contextlib.closing(namespace):
        there = bond_states(namespace.route)
    groups = []
    for one in planned:
        bond = there.get(one.ifindex)
        if bond is None:
            return None
        groups.append(bond_status(one.nic, bond, {member.ifindex: member.name for member in one.members}))
    return LagNodeStatus(node=node, groups=tuple(groups))


def missing_members(plan: LabPlan, run: Path) -> list[str]:
    """Say why link groups are not whole: a line for each member that is not in sync."""
    return _missing(plan, run, _statuses(plan, run))


def _missing(plan: LabPlan, run: Path, statuses: Mapping[str, LagNodeStatus | None]) -> list[str]:
    lines = []
    planned = _planned_groups(plan)
    for node, status in statuses.items():
        if status is None:
            lines.append(f"{node}: no link groups")
            continue
        if not status.is_served:
            lines.append(_ended(node, run))
            continue
        there = {group.name for group in status.groups}
        lines += [f"{node}: no link group of {name} yet" for name in planned[node] if name not in there]
        reason = f" ({status.pair.reason})" if status.pair is not None and status.pair.reason else ""
        lines += [
            f"{node}:{member.name} is not in sync: {member.receive}{reason}"
            for group in status.groups
            for member in group.members
            if not member.in_sync
        ]
        if status.pair is not None and status.pair.peer_link != "up":
            lines.append(f"{node}: the peer link to {status.pair.peer} is {status.pair.peer_link}")
    return lines


def _ended(node: str, run: Path) -> str:
    """Say that the process of a node has ended, and what was last said in the log that it has with the others."""
    return f"{node}: the process of its link groups has ended: {last_line(lag_directory(run) / LOG) or 'no reason'}"


def _planned_groups(plan: LabPlan) -> dict[str, list[str]]:
    """The names of the groups of each node: a host's NIC, and at a leaf the hosts."""
    groups = plan.link_groups
    if groups is None:
        return {}
    hosts: dict[str, list[str]] = {}
    for item in groups.hosts:
        hosts.setdefault(item.node, []).append(item.nic)
    return hosts | {item.node: [member.group for member in item.members] for item in groups.leaves}


def check_link_groups(lab: RunningLab) -> CheckResult:
    """Every member of every group is in sync."""
    count = 0 if lab.plan.link_groups is None else lab.plan.link_groups.members
    return judge(count, "members in sync", missing_members(lab.plan, lab.state.run_directory(lab.name)))


def wait_link_groups(plan: LabPlan, run: Path, timeout_s: float) -> None:
    """Wait until every member of every group is in sync. Raises `ConvergenceError`, and `DriverError` at once where the
    process of a node has ended."""

    def missing() -> list[str]:
        statuses = _statuses(plan, run)
        for node, status in statuses.items():
            if status is not None and not status.is_served:
                raise DriverError(_ended(node, run), operation="link groups")
        return _missing(plan, run, statuses)

    if plan.link_groups is not None:
        _wait(missing, run, timeout_s)


def wait_seeds(seeds: Mapping[str, int], run: Path, timeout_s: float) -> None:
    """Wait until these hosts choose members by hashes that begin with these seeds. Raises `ConvergenceError`."""

    def missing() -> list[str]:
        found = {node: read_status(lag_directory(run), node) for node in seeds}
        return [
            f"{node}: its link groups have another hash seed"
            for node, status in found.items()
            if status is None or {group.seed for group in status.groups} != {seeds[node]}
        ]

    _wait(missing, run, timeout_s)


def _wait(missing_now: Callable[[], list[str]], run: Path, timeout_s: float) -> None:
    """Wait until nothing is missing any more of what statuses say. Raises `ConvergenceError`."""
    watch = DirectoryWatch()
    deadline = time.monotonic() + timeout_s
    with contextlib.closing(watch):
        watch.add(lag_directory(run))
        while missing := missing_now():
            list(watch.read())
            left = deadline - time.monotonic()
            if left <= 0:
                raise convergence_error(missing, timeout_s)
            watch.wait(min(left, 0.5))
