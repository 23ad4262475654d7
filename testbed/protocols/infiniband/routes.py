"""The oracles of a subnet's tables: is every pair routed, do shifts contend, can waiting for buffers go in a circle.

* A **shift** by k has each HCA send to the k-th one after it, in the order in which a tree has them: leaf by leaf, port
  by port, whatever a file calls them. On a fat tree with as many uplinks as downlinks, D-mod-K
  routing has no link that carries two flows of any shift (Zahavi, "D-Mod-K routing providing non-blocking traffic for
  shift permutations on real life fat trees", 2010).
* A frame that holds a buffer waits for one of the next link of its path, of the same virtual lane. Where these
  dependencies have no cycle on any lane, no deadlock is possible (Dally and Seitz, IEEE ToC C-36, 1987); where they
  have one, lossless frames may wait for each other for ever.

All paths are followed at once, a shift at a time, so that thousands of HCAs take seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from testbed.protocols.infiniband.subnet import MAX_PATH, NO_PORT, Channel, Subnet

_Numbers = NDArray[np.int64]
MOST_BROKEN = 20
"""So many pairs without a route are named; all are counted."""
_PORTS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteReport:
    """The findings of all pairs of HCAs.

    `worst_flows[k - 1]` is the number of flows on the busiest link between switches in the shift by k. `lanes` are the
    VLs in use, `cycle` the channels of a cycle of dependencies on `cyclic_lane`; empty, and -1, where there is none.
    """

    hcas: int
    pairs: int
    broken: int
    broken_pairs: tuple[tuple[str, str], ...]
    longest: int
    worst_flows: tuple[int, ...]
    lanes: tuple[int, ...]
    cyclic_lane: int = -1
    cycle: tuple[Channel, ...] = ()

    @property
    def free_shifts(self) -> int:
        """The number of shifts in which no link between switches carries two flows."""
        return sum(flows <= 1 for flows in self.worst_flows)


class _Tables:
    """A subnet as arrays: switches by number, channels as switch x 256 + output port, and HCAs last."""

    def __init__(self, subnet: Subnet) -> None:
        self.switches = [node.name for node in subnet.switches]
        self.hcas = order_hcas(subnet)
        number = {name: index for index, name in enumerate((*self.switches, *self.hcas))}
        count, top = len(self.switches), max((node.lid for node in subnet.nodes.values()), default=0)
        self.names = [*self.switches, *self.hcas]
        self.lids: _Numbers = np.array([subnet.nodes[name].lid for name in self.hcas], np.int64)
        self.lft = np.full((count, top + 1), NO_PORT, np.uint8)
        for index, name in enumerate(self.switches):
            table = subnet.lfts.get(name, b"")[: top + 1]
            self.lft[index, : len(table)] = np.frombuffer(table, np.uint8)
        self.next: _Numbers = np.full((len(number), _PORTS), -1, np.int64)
        """The node behind each output port; -1 for none."""
        for (name, port), (other, _) in subnet.peers.items():
            self.next[number[name], port] = number[other]
        self.lanes: NDArray[np.uint8] | None = None
        """The VL of each pair; None where all are on that of SL 0."""
        self.lane_of_zero = subnet.sl2vl[0]
        if subnet.sls:
            self.lanes = np.full((len(self.hcas), len(self.hcas)), self.lane_of_zero, np.uint8)
            of_lid = {int(lid): index for index, lid in enumerate(self.lids)}
            for (source, destination), sl in subnet.sls.items():
                if source in of_lid and destination in of_lid:
                    self.lanes[of_lid[source], of_lid[destination]] = subnet.sl2vl[sl]

    def follow(self, shift: int) -> tuple[list[_Numbers], NDArray[np.bool_]]:
        """The channels of all paths of a shift, hop by hop (-1 behind the end of a path), and who has arrived."""
        count, hcas = len(self.switches), len(self.hcas)
        sources = np.arange(hcas)
        targets = (sources + shift) % hcas
        lids, wanted = self.lids[targets], targets + count
        here = self.next[sources + count, 1]
        hops = [(sources + count) * _PORTS + 1]
        for _ in range(MAX_PATH):
            under_way = (here >= 0) & (here < count)
            if not under_way.any():
                break
            ports = np.where(under_way, self.lft[np.where(under_way, here, 0), lids], NO_PORT).astype(np.int64)
            ports[ports == 0] = NO_PORT  # a route to the switch itself
            hops.append(np.where(under_way & (ports != NO_PORT), here * _PORTS + ports, -1))
            here = np.where(under_way, self.next[np.where(under_way, here, 0), ports], here)
            here = np.where(under_way & (ports == NO_PORT), -1, here)
        return hops, here == wanted

    def channel(self, number: int) -> Channel:
        """Return a channel by its names."""
        return self.names[number // _PORTS], number % _PORTS


def judge_routes(subnet: Subnet) -> RouteReport:
    """Follow the paths between all pairs of HCAs, and judge them."""
    tables = _Tables(subnet)
    hcas = len(tables.hcas)
    limit = len(tables.names) * _PORTS
    broken, longest = 0, 0
    named: list[tuple[str, str]] = []
    worst: list[int] = []
    dependencies: dict[int, set[int]] = {}
    for shift in range(1, hcas):
        hops, arrived = tables.follow(shift)
        missing = np.flatnonzero(~arrived)
        broken += len(missing)
        named += [
            (tables.hcas[source], tables.hcas[(source + shift) % hcas])
            for source in missing[: MOST_BROKEN - len(named)].tolist()
        ]
        longest = max(longest, len(hops))
        worst.append(_busiest(hops, tables))
        for lane, codes in _dependencies(hops, shift, tables, limit):
            dependencies.setdefault(lane, set()).update(codes)
    cyclic, cycle = _find_cycle(dependencies, tables, limit)
    return RouteReport(
        hcas=hcas,
        pairs=hcas * (hcas - 1),
        broken=broken,
        broken_pairs=tuple(named),
        longest=longest,
        worst_flows=tuple(worst),
        lanes=tuple(sorted(dependencies)),
        cyclic_lane=cyclic,
        cycle=cycle,
    )


def _busiest(hops: list[_Numbers], tables: _Tables) -> int:
    """The flows on the busiest link between two switches."""
    used = np.concatenate(hops[1:]) if len(hops) > 1 else np.empty(0, np.int64)
    used = used[used >= 0]
    used = used[tables.next[used // _PORTS, used % _PORTS] < len(tables.switches)]
    return int(np.bincount(used).max()) if len(used) else 0


def _dependencies(hops: list[_Numbers], shift: int, tables: _Tables, limit: int) -> Iterator[tuple[int, list[int]]]:
    """The dependencies of the paths of a shift by lane, each as first channel x `limit` + second channel."""
    sources = np.arange(len(tables.hcas))
    lanes = None if tables.lanes is None else tables.lanes[sources, (sources + shift) % len(tables.hcas)]
    for first, second in pairwise(hops):
        there = (first >= 0) & (second >= 0)
        codes = first * limit + second
        if lanes is None:
            yield tables.lane_of_zero, np.unique(codes[there]).tolist()
            continue
        for lane in np.unique(lanes).tolist():
            yield lane, np.unique(codes[there & (lanes == lane)]).tolist()


def _find_cycle(dependencies: dict[int, set[int]], tables: _Tables, limit: int) -> tuple[int, tuple[Channel, ...]]:
    """The first lane whose dependencies have a cycle, and the channels of it; -1 and nothing without one."""
    for lane in sorted(dependencies):
        graph: dict[int, list[int]] = {}
        for code in dependencies[lane]:
            graph.setdefault(code // limit, []).append(code % limit)
        try:
            TopologicalSorter(graph).prepare()
        except CycleError as error:
            return lane, tuple(tables.channel(number) for number in reversed(error.args[1]))
    return -1, ()


def order_hcas(subnet: Subnet) -> list[str]:
    """Return the HCAs in the order of a tree: from a switch at its top down, port by port. Where there is no tree of
    tiers, and for those that the switch does not reach, the order is that of GUIDs."""
    rest = [node.name for node in subnet.hcas]
    tier = _tiers(subnet)
    if tier is None or not subnet.switches:
        return rest
    below: dict[str, list[str]] = {}
    for (name, _), (other, _) in sorted(subnet.peers.items()):
        if tier[other] < tier[name]:
            below.setdefault(name, []).append(other)
    top = max(tier.values())
    stack = [next(node.name for node in subnet.switches if tier[node.name] == top)]
    found: dict[str, None] = {}
    while stack:
        name = stack.pop()
        if name not in found:
            found[name] = None
            stack += reversed(below.get(name, ()))
    return [name for name in found if not tier[name]] + [name for name in rest if name not in found]


def is_full_fat_tree(subnet: Subnet) -> bool:
    """Tell whether D-mod-K has to be free of contention: tiers of switches, each below the top with as many links up as
    down, all of a tier alike, and whole; two switches that have one above them in common have all in common, as in a
    parallel-ports generalised fat tree (Zahavi's PGFT).

    The tier of a switch is its distance from the HCAs; switches of one tier are not joined, and HCAs are on the lowest.
    """
    tier = _tiers(subnet)
    if tier is None:
        return False
    links: dict[str, tuple[int, int]] = {node.name: (0, 0) for node in subnet.switches}
    spread: dict[str, list[str]] = {node.name: [] for node in subnet.switches}
    for (name, _), (other, _) in subnet.peers.items():
        if name not in links:
            continue
        down, up = links[name]
        above = tier[other] > tier[name]
        links[name] = (down, up + 1) if above else (down + 1, up)
        if above:
            spread[name].append(other)
    top = max(tier.values())
    for level in range(1, top + 1):
        found = {links[name] for name in links if tier[name] == level}
        if len(found) != 1:
            return False
        down, up = next(iter(found))
        if up != (0 if level == top else down):
            return False
    families: dict[str, frozenset[str]] = {}
    for names in spread.values():
        # Each switch has as many links to every one above it that it reaches, and so have its siblings.
        parents = frozenset(names)
        if len({names.count(other) for other in parents}) > 1:
            return False
        if any(families.setdefault(other, parents) != parents for other in parents):
            return False
    return True


def _tiers(subnet: Subnet) -> dict[str, int] | None:
    """The distance of each node from the HCAs; None where this makes no tree of tiers."""
    neighbours: dict[str, set[str]] = {}
    for (name, _), (other, _) in subnet.peers.items():
        neighbours.setdefault(name, set()).add(other)
    tier = {node.name: 0 for node in subnet.hcas}
    level = list(tier)
    while level:
        above = {other for name in level for other in neighbours.get(name, ()) if other not in tier}
        tier |= dict.fromkeys(above, tier[level[0]] + 1)
        level = sorted(above)
    if len(tier) != len(subnet.nodes):
        return None
    if any(abs(tier[name] - tier[other]) != 1 for (name, _), (other, _) in subnet.peers.items()):
        return None
    return tier
