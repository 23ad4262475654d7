"""Sizing: what a lab needs of its switches and what it gives its GPUs. Works for every graph.

Everything is in the units of the real fabric and counted, not simulated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.base.errors import FabricError
from testbed.lab.core.fabric.bisection import Bisection, measure_bisection
from testbed.lab.core.fabric.graph import LabGraph
from testbed.lab.core.fabric.paths import EcmpWidth, PathCount, survey_paths
from testbed.lab.core.model import BACKEND, Lab, Link, LinkKind, NodeKind, Role

if TYPE_CHECKING:
    from testbed.lab.core.fabric.figures.traffic import TrafficLoad


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSizing:
    """The switches of one role. `fullest` is the one with the most ports in use, `ports` how many those are.

    `downlink_bps` and `uplink_bps` are sums over the role; `oversubscription` is the worst switch's downlink
    over its uplink capacity, None for a role that has no uplinks.
    """

    role: Role
    switches: int
    ports: int
    fullest: str
    radix: int | None
    downlink_bps: int
    uplink_bps: int
    oversubscription: float | None

    @property
    def fits(self) -> bool:
        """Tell whether the ports in use fit the radix; true where none is given."""
        return self.radix is None or self.ports <= self.radix


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """A lab in numbers. `nics` counts NICs (not ports) of hosts; GPUs come by `gpus_per_nic`. Links of storage targets
    are among those of hosts.

    In a graph without any rail every host interface counts as one NIC with one GPU.
    """

    hosts: int
    gpus: int
    nics: int
    switches: int
    targets: int
    """Storage targets."""
    links: int
    host_links: int
    rail_spine_links: int
    spine_super_spine_links: int
    roles: tuple[RoleSizing, ...]
    bisection: Bisection | None
    """The most that the links between halves could carry, of the traffic that fits them best: `traffic` has kinds."""
    traffic: tuple[TrafficLoad, ...]
    paths: tuple[PathCount, ...]
    widths: tuple[EcmpWidth, ...]

    @property
    def bisection_traffic(self) -> tuple[TrafficLoad, ...]:
        """The loads of each kind of traffic between the halves of the bisection."""
        between = None if self.bisection is None else self.bisection.between
        return tuple(load for load in self.traffic if load.between == between)

    @property
    def fabric_links(self) -> int:
        """Links between switches: one BGP session each."""
        return self.links - self.host_links


def seen_for_sizing(lab: Lab, network: str) -> Lab:
    """Return the part of a network that is sized: its switches with all on them, or without any its hosts' links."""
    return lab.on_switches_of(network) if lab.carrier_of(network) == network else lab.without_carrier(network)


def measure_sizing(lab: Lab, graph: LabGraph | None = None) -> Sizing:
    """The sizing of `lab`. `graph` is that of the lab."""
    from testbed.lab.core.fabric.figures.traffic import measure_traffic  # a lab that is deployed needs none of it

    roles = {node.name: node.role or Role.RAIL for node in lab.nodes if node.kind is NodeKind.SWITCH}
    tiers: Counter[frozenset[Role | None]] = Counter()
    for link in lab.links:
        tiers[frozenset(_roles_at(link, roles))] += 1
    served = {node.name for node in lab.targets if node.network == BACKEND}
    on_rails = {(link.a.node, link.network, link.rail) for link in lab.links if link.rail and link.a.node not in served}
    if on_rails:
        nics, gpus = len(on_rails), len(on_rails) * lab.gpus_per_nic
    else:
        nics = gpus = sum((link.a.node not in roles) + (link.b.node not in roles) for link in lab.links)
    targets = {node.name for node in lab.targets}
    graph = LabGraph(lab) if graph is None else graph
    survey = survey_paths(lab, graph)
    traffic = measure_traffic(lab, graph, widest=max((one.ways for one in survey.widths), default=0))
    carried = {load.between: load.bandwidth_bps or 0 for load in traffic}
    return Sizing(
        hosts=len(lab.hosts),
        gpus=gpus,
        nics=nics,
        switches=len(roles),
        targets=len({link.a.node for link in lab.links if link.kind is not LinkKind.TENANT} & targets),
        links=len(lab.links),
        host_links=sum(number for ends, number in tiers.items() if None in ends),
        rail_spine_links=tiers[frozenset((Role.RAIL, Role.SPINE))] + tiers[frozenset((Role.LEAF, Role.SPINE))],
        spine_super_spine_links=tiers[frozenset((Role.SPINE, Role.SUPER_SPINE))],
        roles=_role_sizing(lab, roles),
        bisection=measure_bisection(lab, graph, carried),
        traffic=traffic,
        paths=survey.paths,
        widths=survey.widths,
    )


def _roles_at(link: Link, roles: Mapping[str, Role]) -> tuple[Role | None, Role | None]:
    """Return the roles of the switches at the ends of a link. What attaches to a leaf is none there: a switch with its
    port in a network of management that is in band."""
    a, b = roles.get(link.a.node), roles.get(link.b.node)
    return (None if b is not None and link.kind in (LinkKind.ACCESS, LinkKind.TENANT) else a), b


def check_sizing(lab: Lab) -> tuple[FabricError, ...]:
    """One error for each role whose switches need more ports than `switch_radix`."""
    if lab.switch_radix is None and not lab.tier_radix:
        return ()
    roles = {node.name: node.role or Role.RAIL for node in lab.nodes if node.kind is NodeKind.SWITCH}
    return tuple(
        FabricError(
            f"{sizing.role} switch {sizing.fullest} has {sizing.ports} ports in use; switch_radix is {sizing.radix}",
            field="switch_radix",
            code="radix",
            hint=_SMALLER[sizing.role],
        )
        for sizing in _role_sizing(lab, roles)
        if not sizing.fits
    )


_SMALLER = {
    Role.RAIL: "fewer hosts a segment, fewer rails a switch, fewer spines or parallel uplinks, or a larger switch",
    Role.LEAF: "fewer hosts a leaf, fewer spines or parallel uplinks, or a larger switch",
    Role.SPINE: "fewer segments, fewer super-spines or more groups of them, or a larger switch",
    Role.SUPER_SPINE: "fewer pods, more super-spines in more groups (super_spine_groups), or a larger switch",
}


def _role_sizing(lab: Lab, roles: dict[str, Role]) -> tuple[RoleSizing, ...]:
    ports = dict.fromkeys(roles, 0)
    down_bps = dict.fromkeys(roles, 0)
    up_bps = dict.fromkeys(roles, 0)
    for link in lab.links:
        a, b, bps = link.a.node, link.b.node, link.rate.bps
        height_a, height_b = (0 if role is None else role.tier for role in _roles_at(link, roles))
        if height_a:
            ports[a] += 1
            if height_b < height_a:
                down_bps[a] += bps
            elif height_b > height_a:
                up_bps[a] += bps
        if height_b:
            ports[b] += 1
            if height_a < height_b:
                down_bps[b] += bps
            elif height_a > height_b:
                up_bps[b] += bps
    sizings = []
    for role in Role:
        members = [name for name, its_role in roles.items() if its_role is role]
        if not members:
            continue
        fullest = max(members, key=ports.__getitem__)
        sizings.append(
            RoleSizing(
                role=role,
                switches=len(members),
                ports=ports[fullest],
                fullest=fullest,
                radix=lab.radix_of(role),
                downlink_bps=sum(down_bps[name] for name in members),
                uplink_bps=sum(up_bps[name] for name in members),
                oversubscription=max((down_bps[name] / up_bps[name] for name in members if up_bps[name]), default=None),
            )
        )
    return tuple(sizings)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizingRow:
    """A line of the sizing of a lab for people. `file` and `network` are there where several are shown."""

    file: str = ""
    network: str = ""
    what: str
    value: str | int
    note: str = ""
