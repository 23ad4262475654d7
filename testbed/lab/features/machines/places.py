"""The machine of each node: where the file says nothing, whole pods or segments, and spines spread by weight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeVar

from testbed.base.errors import TestbedError
from testbed.base.units import Rate
from testbed.lab.core.model import BACKEND, Lab, Link, LinkKind, Node, ScaleUpBy
from testbed.lab.core.model.machines import LabMachine

MOST_MACHINES = 32
_Item = TypeVar("_Item")
_UNCUT = {
    LinkKind.MEMBER: "link groups of hosts (homing: mlag)",
    LinkKind.PEER: "link groups of hosts (homing: mlag)",
    LinkKind.TENANT: "tenants",
    LinkKind.EXTERNAL: "tenants",
    LinkKind.MANAGEMENT: "a management network",
}
"""The links that a lab over several machines does not have, and what they are of."""


class NotSpread(TestbedError):
    """A lab that cannot be spread over these machines. Nothing of it was touched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutShare:
    """The links that are cut, and their share of the capacity of all links between switches."""

    links: tuple[Link, ...]
    share: float

    @property
    def rate(self) -> Rate:
        """The rates of all of them together, one way, in the units of the real fabric."""
        return Rate(sum(link.rate.bps for link in self.links))


def place_nodes(lab: Lab, machines: Sequence[LabMachine]) -> dict[str, str]:
    """Return the machine of each node of a lab, by the names of both.

    A node is where a pattern of a machine says. What else is of its pod goes with it; in a lab of one pod, its segment.
    Pods go to machines in order, by weight, and so do the switches that are in none, each tier by itself. Raises
    `NotSpread` where a node is claimed twice or is nowhere, and where a machine would have none.
    """
    places = _claimed(lab, machines)
    groups, loose = _groups(lab)
    open_groups = []
    for nodes in groups:
        owners = [places[node] for node in nodes if node in places]
        if not owners:
            open_groups.append(nodes)
        for node in nodes if owners else ():
            places.setdefault(node, owners[0])
    for tier in (open_groups, *([[node] for node in nodes if node not in places] for nodes in loose)):
        for nodes, machine in _dealt(tier, machines):
            places.update(dict.fromkeys(nodes, machine.name))
    if homeless := [node.name for node in lab.nodes if node.name not in places]:
        raise NotSpread(
            f"{lab.name}: nothing says on which machine {', '.join(homeless[:5])} is to be",
            hint=f"machines: {{{machines[0].name}: {{nodes: [{homeless[0]}]}}}}",
        )
    used = set(places.values())
    if idle := [machine.name for machine in machines if machine.name not in used]:
        raise NotSpread(f"{lab.name}: there is nothing for {', '.join(idle)} to do", hint="name fewer machines")
    return {node.name: places[node.name] for node in lab.nodes}


def _claimed(lab: Lab, machines: Sequence[LabMachine]) -> dict[str, str]:
    places: dict[str, str] = {}
    for machine in machines:
        for node in lab.nodes:
            if any(fnmatchcase(node.name, pattern) for pattern in machine.nodes):
                if node.name in places:
                    raise NotSpread(
                        f"{lab.name}: both {places[node.name]} and {machine.name} are to have {node.name}",
                        hint="let the patterns of machines meet no node twice",
                    )
                places[node.name] = machine.name
    return places


def _groups(lab: Lab) -> tuple[list[list[str]], list[list[str]]]:
    """The nodes of each pod or segment, and what is in none, by tier."""
    placed = [(node, node.place) for node in lab.nodes if node.place is not None and node.network == BACKEND]
    by_pod = len({place.pod for _, place in placed if place.pod}) > 1
    groups: dict[tuple[int, int], list[str]] = {}
    loose: dict[tuple[str, str], list[str]] = {}
    for node, place in placed:
        key = (place.pod, 0) if by_pod else (0, place.segment)
        if any(key):
            groups.setdefault(key, []).append(node.name)
        else:
            loose.setdefault(_tier(node), []).append(node.name)
    for node in lab.nodes:
        if node.place is not None and node.network != BACKEND:
            loose.setdefault(_tier(node), []).append(node.name)
    return [groups[key] for key in sorted(groups)], list(loose.values())


def _tier(node: Node) -> tuple[str, str]:
    return node.network, node.role.value if node.role else node.kind.value


def _dealt(items: Sequence[_Item], machines: Sequence[LabMachine]) -> Iterator[tuple[_Item, LabMachine]]:
    """Yield each item with its machine: consecutive ones stay together, and each machine has its share by weight."""
    total = sum(machine.weight for machine in machines)
    for number, item in enumerate(items):
        middle, end = (number + 0.5) * total / len(items), 0
        for machine in machines:
            end += machine.weight
            if middle < end:
                yield item, machine
                break


def require_cuttable(lab: Lab) -> None:
    """Raise `NotSpread` where a lab has what cannot be on several machines, naming all of it."""
    lacking = dict.fromkeys(_UNCUT[link.kind] for link in lab.links if link.kind in _UNCUT)
    if lab.overlay is not None:
        lacking["tenants"] = None
    if lab.infiniband is not None:
        lacking["an InfiniBand back end"] = None
    if any(node.container is not None for node in lab.nodes):
        lacking["nodes that are containers"] = None
    if lab.scale_up.by is ScaleUpBy.PACKETS:
        lacking["scale-up domains by packets"] = None
    if lacking:
        raise NotSpread(
            f"{lab.name} has {', '.join(lacking)}, which a lab over several machines cannot have",
            hint="`testbed --on ssh://user@host deploy` has the whole lab on one machine",
        )


def cut_links(lab: Lab, places: Mapping[str, str]) -> CutShare:
    """Return the links whose ends are on two machines."""
    cut = tuple(link for link in lab.links if places[link.a.node] != places[link.b.node])
    between = sum(link.rate.bps for link in lab.links if link.kind is LinkKind.FABRIC)
    of_fabric = sum(link.rate.bps for link in cut if link.kind is LinkKind.FABRIC)
    return CutShare(links=cut, share=of_fabric / between if between else 0.0)
