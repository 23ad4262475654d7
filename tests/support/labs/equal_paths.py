"""How many equal-cost paths there are between two NICs, which sizing, plans and oracles are held against."""

from __future__ import annotations

from testbed.lab.core.fabric.graph import LabGraph
from testbed.lab.core.fabric.paths import ways_to
from testbed.lab.core.model import End, Lab, Link


def equal_cost_paths(lab: Lab, a: End, b: End) -> int:
    """The number of shortest paths between the host interfaces `a` and `b`; 0 where no path exists."""
    far = {end: other for link in lab.links for end, other in ((link.a, link.b), (link.b, link.a))}
    if far[a] == b:
        return 1
    hosts = {node.name for node in lab.hosts}
    if far[a].node in hosts or far[b].node in hosts:
        return 0
    return ways_to(LabGraph(lab).switches, far[b].node, lab.routing.ecmp).counts.get(far[a].node, 0)


def shortest_hops(lab: Lab, source: str, destination: str) -> list[tuple[str, list[tuple[str, Link]]]]:
    """The switches on the shortest paths from one to another, the farthest first, each with its next hops and links."""
    around: dict[str, list[tuple[str, Link]]] = {}
    switches = {node.name for node in lab.switches}
    for link in lab.links:
        for near, far in ((link.a.node, link.b.node), (link.b.node, link.a.node)):
            if near in switches and far in switches:
                around.setdefault(near, []).append((far, link))
    distance = {destination: 0}
    queue = [destination]
    for switch in queue:
        for neighbour, _ in around.get(switch, ()):
            if neighbour not in distance:
                distance[neighbour] = distance[switch] + 1
                queue.append(neighbour)
    if source not in distance:
        return []
    found = []
    wave = {source: None}
    while wave and destination not in wave:
        following: dict[str, None] = {}
        for switch in wave:
            hops = [(near, link) for near, link in around[switch] if distance[near] == distance[switch] - 1]
            found.append((switch, hops))
            following.update(dict.fromkeys(near for near, _ in hops))
        wave = following
    return found
