"""Bisection bandwidth: what one half of the hosts can send to the other half, all at once.

Definition: the maximum flow (bit/s, one direction) from the NICs of the first half to those of the second,
every link carrying up to its rate in each direction and load spread ideally. Halves are taken at the highest
level that can be split: pods if there are several, else segments, else hosts (an odd one goes to the second
half). A hand-written graph is split by hosts in the order of the file. Rails do not count: a host may
send from any of its NICs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from testbed.lab.core.fabric.forwarding.hop_shares import HopShares, Shares, told_bandwidths, weights_differ
from testbed.lab.core.fabric.forwarding.link_bandwidths import LinkBandwidths
from testbed.lab.core.fabric.forwarding.next_hops import find_faults
from testbed.lab.core.fabric.graph import LabGraph
from testbed.lab.core.model import Lab, Node

_SOURCE, _SINK = "<first half>", "<second half>"
_Capacity = dict[str, dict[str, int]]
_MOST_FLOWS = 20_000
"""Pairs of leaves up to which the share of ECMP is computed, in some seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisection:
    """`between` is "pods", "segments" or "hosts". All rates are per direction.

    `access_bps` is what the NICs of the smaller half could send: the fabric is non-blocking where both are equal.
    `ecmp_bps` is what ECMP carries of `bandwidth_bps`; None where there are too many leaves to tell. `weighted` tells
    whether it gives next hops different shares, by the bandwidth behind them.
    """

    between: str
    bandwidth_bps: int
    access_bps: int
    ecmp_bps: int | None
    weighted: bool = False

    @property
    def share(self) -> float:
        """Bandwidth as a share of what the NICs could send: 1.0 is full bisection bandwidth."""
        return self.bandwidth_bps / self.access_bps if self.access_bps else 0.0

    @property
    def ecmp_share(self) -> float | None:
        """ECMP's bandwidth as a share of what the NICs could send."""
        return None if self.ecmp_bps is None else self.ecmp_bps / self.access_bps if self.access_bps else 0.0

    @property
    def balancing(self) -> str:
        """Name the way in which switches divide what they send."""
        return "weighted ECMP" if self.weighted else "plain ECMP"


def measure_bisection(
    lab: Lab, graph: LabGraph | None = None, carried: Mapping[str, int] = MappingProxyType({})
) -> Bisection | None:
    """The bisection bandwidth of `lab`; None for fewer than two hosts on switches. `graph` is that of the lab.

    `carried` is what ECMP is known to carry between such halves: where that is all, next hops are not looked at.
    """
    graph = LabGraph(lab) if graph is None else graph
    wired = {end.node for nics in graph.nics.values() for end, _ in nics}
    between, first, second = _halves([node for node in lab.hosts if node.name in wired])
    if not first or not second:
        return None
    side = {**dict.fromkeys(first, _SOURCE), **dict.fromkeys(second, _SINK)}
    capacity: _Capacity = {
        switch: {other: sum(link.rate.bps for link in links) for other, links in around.items()}
        for switch, around in graph.switches.neighbours.items()
    }
    capacity |= {_SOURCE: {}, _SINK: {}}
    access = {_SOURCE: 0, _SINK: 0}
    leaves: dict[str, dict[str, int]] = {_SOURCE: {}, _SINK: {}}
    for switch, nics in graph.nics.items():
        for end, link in nics:
            half = side.get(end.node)
            if half is None:
                continue  # a hand-written host beside generated ones is in neither half
            access[half] += link.rate.bps
            leaves[half][switch] = leaves[half].get(switch, 0) + link.rate.bps
            capacity[half][switch] = capacity[switch][half] = capacity[switch].get(half, 0) + link.rate.bps
    bandwidth = _maximum_flow(_merge_twins(capacity))
    ecmp, bandwidths = lab.routing.ecmp, told_bandwidths(lab)
    weighted = weights_differ(graph.switches, graph.nics, bandwidths, ecmp)
    divided: int | None = bandwidth
    if carried.get(between, 0) < bandwidth and (weighted or find_faults(graph.switches, graph.nics, ecmp)):
        ways = (
            _divided(graph, bandwidths, ecmp, leaves[one], leaves[other])
            for one, other in ((_SOURCE, _SINK), (_SINK, _SOURCE))
        )
        divided = None if len(leaves[_SOURCE]) * len(leaves[_SINK]) > _MOST_FLOWS else min(bandwidth, *ways)
    return Bisection(
        between=between,
        bandwidth_bps=bandwidth,
        access_bps=min(access.values()),
        ecmp_bps=divided,
        weighted=weighted,
    )


def _divided(
    graph: LabGraph, bandwidths: LinkBandwidths, ecmp: int, sources: Mapping[str, int], sinks: Mapping[str, int]
) -> int:
    """The sum of rates (bit/s) of flows from each source to each sink, which are leaves with the rate of their NICs."""
    from testbed.workload.oracles.max_min import max_min_shares

    numbers: dict[Hashable, int] = {}
    capacities: list[float] = []

    def number(key: Hashable, bps: int) -> int:
        if key not in numbers:
            numbers[key] = len(capacities)
            capacities.append(float(bps))
        return numbers[key]

    routes: list[list[int]] = []
    weights: list[list[float]] = []
    for sink, entering in sinks.items():
        hops: dict[str, Shares] = {}
        shares = HopShares(bandwidths, ecmp)
        for wave in graph.switches.waves(sink):
            hops |= {switch: shares.add(switch, arrivals) for switch, arrivals in wave.items()}
        for source, leaving in sources.items():
            if source != sink and source not in hops:
                continue  # the fabric does not join them
            used = {number(("from", source), leaving): 1.0, number(("to", sink), entering): 1.0}
            at = {source: 1.0}
            while at.pop(sink, None) is None or at:
                following: dict[str, float] = {}
                for switch, amount in at.items():
                    whole = sum(weight for _, weight in hops[switch])
                    for (neighbour, link), weight in hops[switch]:
                        part = amount * weight / whole
                        key = number((switch, link), link.rate.bps)
                        used[key] = used.get(key, 0.0) + part
                        following[neighbour] = following.get(neighbour, 0.0) + part
                at = following
            routes.append(list(used))
            weights.append(list(used.values()))
    return round(float(max_min_shares(routes, capacities, weights=weights).sum())) if routes else 0


def _halves(hosts: list[Node]) -> tuple[str, list[str], list[str]]:
    """The level of the split and the hosts of each half."""
    placed = [(node.name, node.place) for node in hosts if node.place is not None]
    units: dict[str, dict[Hashable, list[str]]] = {"pods": {}, "segments": {}, "hosts": {}}
    for name, place in placed:
        units["pods"].setdefault(place.pod, []).append(name)
        units["segments"].setdefault((place.pod, place.segment), []).append(name)
        units["hosts"].setdefault(name, []).append(name)
    if not placed:
        units["hosts"] = {node.name: [node.name] for node in hosts}
    between = next((level for level in ("pods", "segments") if len(units[level]) > 1), "hosts")
    members = list(units[between].values())
    middle = len(members) // 2
    return (
        between,
        [name for unit in members[:middle] for name in unit],
        [name for unit in members[middle:] for name in unit],
    )


def _merge_twins(capacity: Mapping[str, Mapping[str, int]]) -> _Capacity:
    """The graph with interchangeable switches made one, as often as that finds any.

    Switches with the same capacities to the same neighbours can share a flow evenly, so one switch with the
    capacity of all carries exactly as much. A symmetric Clos shrinks to a handful of nodes.
    """
    graph: _Capacity = {node: dict(edges) for node, edges in capacity.items()}
    while True:
        leader: dict[Hashable, str] = {}
        merged_into: dict[str, str] = {}
        for node, edges in graph.items():
            key: Hashable = node if node in (_SOURCE, _SINK) else frozenset(edges.items())
            merged_into[node] = leader.setdefault(key, node)
        if len(leader) == len(graph):
            return graph
        smaller: _Capacity = {node: {} for node in leader.values()}
        for node, edges in graph.items():
            into = smaller[merged_into[node]]
            for neighbour, bps in edges.items():
                other = merged_into[neighbour]
                into[other] = into.get(other, 0) + bps
        graph = smaller


def _maximum_flow(capacity: _Capacity) -> int:
    """Edmonds and Karp: augment along shortest paths until none is left. Consumes `capacity`."""
    total = 0
    while True:
        came_from = _shortest_path(capacity)
        if came_from is None:
            return total
        path = []
        node = _SINK
        while node != _SOURCE:
            path.append((came_from[node], node))
            node = came_from[node]
        amount = min(capacity[tail][head] for tail, head in path)
        for tail, head in path:
            capacity[tail][head] -= amount
            capacity[head][tail] = capacity[head].get(tail, 0) + amount
        total += amount


def _shortest_path(capacity: _Capacity) -> dict[str, str] | None:
    """Each node's predecessor on the way from the source; None where the sink cannot be reached."""
    came_from: dict[str, str] = {}
    queue = deque([_SOURCE])
    while queue:
        node = queue.popleft()
        for neighbour, left in capacity.get(node, {}).items():
            if left and neighbour not in came_from and neighbour != _SOURCE:
                came_from[neighbour] = node
                if neighbour == _SINK:
                    return came_from
                queue.append(neighbour)
    return None
