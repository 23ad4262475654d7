"""The graph of a fabric, and the breadth-first waves in which everything that asks for paths goes through it.

Base RTT, equal-cost paths, bisection bandwidth, the delays of the plan's wires and the pictures of a lab build on this
one graph. A wave is the set of nodes at one distance from a source, each with all the edges by which the wave before
leads to it; what a caller wants of the shortest paths (how many, the slowest, the least delay) is a sum, maximum or
minimum taken wave by wave. Two other graphs are not this one, on purpose: `workload.oracles.fabric_graph` is the
independent check of what labs do, and `lab.core.plan.routes` walks BGP sessions, where policy decides who passes a
route on.

No graph library: importing networkx takes as long as validating the largest topology we ship, and its
maximum flow ten times as long as ours, which first makes one node of interchangeable switches. Tests hold our results
against it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from testbed.lab.core.model import End, Lab, Link, LinkKind, NodeKind

Edge = TypeVar("Edge")
Wave = Mapping[str, list[tuple[str, list[Edge]]]]
"""Node -> the nodes of the wave before that lead to it, each with its edges to it."""


class Graph(Generic[Edge]):
    """Nodes by name, and directed edges of any kind between them. Parallel edges are kept apart."""

    __slots__ = ("neighbours",)

    def __init__(self) -> None:
        self.neighbours: dict[str, dict[str, list[Edge]]] = {}
        """Node -> each node it has edges to -> those edges, in the order in which they were added."""

    def add_node(self, node: str) -> None:
        """Adds a node, which may stay without edges. One that is there already keeps its edges."""
        self.neighbours.setdefault(node, {})

    def add_edge(self, source: str, destination: str, edge: Edge) -> None:
        """Adds one direction of an edge, and its nodes."""
        self.neighbours.setdefault(destination, {})
        self.neighbours.setdefault(source, {}).setdefault(destination, []).append(edge)

    def waves(self, source: str) -> Iterator[Wave[Edge]]:
        """The nodes that `source` reaches, by their distance from it in edges: first those at distance 1."""
        seen = {source}
        frontier = [source]
        while frontier:
            wave: dict[str, list[tuple[str, list[Edge]]]] = {}
            for node in frontier:
                for neighbour, edges in self.neighbours[node].items():
                    if neighbour in seen:
                        continue
                    steps = wave.get(neighbour)
                    if steps is None:
                        wave[neighbour] = [(node, edges)]
                    else:
                        steps.append((node, edges))
            if not wave:
                return
            yield wave
            seen.update(wave)
            frontier = list(wave)


class LabGraph:
    """The links of a lab by what they join: switches to each other, hosts to switches, hosts to each other."""

    __slots__ = ("direct", "management", "nics", "outside", "peers", "switches")

    def __init__(self, lab: Lab) -> None:
        self.switches: Graph[Link] = Graph()
        """The switches and the links between them, each in both directions. Hosts forward nothing."""
        self.nics: dict[str, list[tuple[End, Link]]] = {}
        """Switch -> the host interfaces on it, with their links."""
        self.direct: list[Link] = []
        """Links from host to host."""
        self.peers: list[Link] = []
        """Links between two leaves that are one LACP partner, over which nothing is routed."""
        self.outside: list[Link] = []
        """Links to routers outside of the fabric."""
        self.management: list[Link] = []
        """Links of management ports, over which no data goes: those of switches in a network in band are among them."""
        for node in lab.nodes:
            if node.kind is NodeKind.SWITCH:
                self.switches.add_node(node.name)
        among = self.switches.neighbours
        attached = {node.name for node in lab.nodes if node.kind is not NodeKind.SWITCH}
        for link in lab.links:
            a, b = link.a.node, link.b.node
            if link.kind is LinkKind.EXTERNAL:
                self.outside.append(link)
                continue
            in_band = link.kind in (LinkKind.ACCESS, LinkKind.TENANT) and a not in attached and b in among
            if link.kind is LinkKind.MANAGEMENT or in_band:
                self.management.append(link)
                continue
            match a in among, b in among:
                case True, True if link.kind is LinkKind.PEER:
                    self.peers.append(link)
                case True, True:
                    self.switches.add_edge(a, b, link)
                    self.switches.add_edge(b, a, link)
                case True, False:
                    self.nics.setdefault(a, []).append((link.b, link))
                case False, True:
                    self.nics.setdefault(b, []).append((link.a, link))
                case _:
                    self.direct.append(link)

    def adjacent(self) -> dict[str, set[str]]:
        """Every node that has a link -> the nodes at the other ends of its links."""
        found = {node: set(neighbours) for node, neighbours in self.switches.neighbours.items() if neighbours}
        pairs = [(end.node, switch) for switch, nics in self.nics.items() for end, _ in nics]
        others = (*self.direct, *self.peers, *self.outside, *self.management)
        for a, b in (*pairs, *((link.a.node, link.b.node) for link in others)):
            found.setdefault(a, set()).add(b)
            found.setdefault(b, set()).add(a)
        return found
