"""Links that carry less than hosts send into them (their MTU), planes, and switches that planes of ports share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from testbed.lab.core.fabric.graph import LabGraph
from testbed.lab.core.model import BACKEND, End, Lab, Link, LinkKind, Node
from testbed.lab.core.model.overlay import VXLAN_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class LargestPacket:
    """The largest packets that NICs send over a link between two switches, or to a host, and one that sends them."""

    link: Link
    sender: End
    sent_bytes: int


def largest_packets(lab: Lab, graph: LabGraph) -> Iterator[LargestPacket]:
    """Return the largest packet that NICs may send over each link: one of their MTU, of tenants within VXLAN.

    Links to NICs of tenants, which have an MTU of their own, are left out.
    """
    of_tenants = {id(link) for link in lab.tenant_links}
    for switches in islands(graph):
        plain: dict[int, LargestPacket] = {}
        inside: list[LargestPacket] = []
        for switch in switches:
            for end, link in graph.nics.get(switch, ()):
                if link.kind is LinkKind.TENANT or id(link) in of_tenants:
                    inside.append(LargestPacket(link=link, sender=end, sent_bytes=link.mtu_bytes + VXLAN_BYTES))
                else:
                    plain[id(link)] = LargestPacket(link=link, sender=end, sent_bytes=link.mtu_bytes)
        between = {
            id(link): link
            for switch in switches
            for links in graph.switches.neighbours[switch].values()
            for link in links
        }
        for links, loads in (
            (between.values(), (*plain.values(), *inside)),
            ([load.link for load in plain.values()], tuple(plain.values())),
        ):
            if loads:
                most = max(loads, key=lambda load: load.sent_bytes)
                yield from (replace(most, link=link) for link in links)


def narrow_links(lab: Lab, graph: LabGraph) -> list[LargestPacket]:
    """The links whose MTU is smaller than what NICs may send over them: those packets are lost."""
    return [load for load in largest_packets(lab, graph) if load.sent_bytes > load.link.mtu_bytes]


def islands(graph: LabGraph) -> list[list[str]]:
    """The switches, in groups that are joined with each other and with no others."""
    seen: set[str] = set()
    found = []
    for switch in graph.switches.neighbours:
        if switch not in seen:
            island = [switch, *(name for wave in graph.switches.waves(switch) for name in wave)]
            seen.update(island)
            found.append(island)
    return found


def planes_apart(lab: Lab) -> Mapping[str, int]:
    """The plane (from 1) of every switch of the back end, where no path leads from one plane to another; {} where there
    is one."""
    if lab.planes < 2:
        return {}
    return {
        node.name: node.place.plane
        for node in lab.switches
        if node.network == BACKEND and node.place is not None and node.place.plane
    }


def shared_by_planes(lab: Lab, graph: LabGraph) -> tuple[Node, int] | None:
    """A switch that leaves of several planes have links to, and how many planes they are; None where there is none.

    Leaves that are one partner of link groups are meant to share what is above them.
    """
    paired = {leaf for pair in lab.leaf_pairs for leaf in pair}
    planes = {
        node.name: node.place.plane
        for node in lab.switches
        if node.place is not None and node.place.plane and node.name not in paired
    }
    for node in lab.switches:
        met = {planes[name] for name in graph.switches.neighbours[node.name] if name in planes}
        if len(met) > 1:
            return node, len(met)
    return None
