"""The links that sprayed flows use alike, as one: a flow over thirty spines then has six entries, and not a hundred.

Switches that no host hangs off are of one class if they have equally many links of each rate to each other class,
both ways (an equitable partition). Whatever enters such a class evenly leaves it evenly, so that all links from one
class to another carry the same of each sprayed flow, and the limit of one is the limit of all. That is exact. Where
routes use only a part of such links, every link stays by itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping

import numpy as np

from testbed.workload.oracles.fabric_graph import FabricGraph, NoPath
from testbed.workload.oracles.max_min import Floats

_MOST_TURNS = 16
_WHOLE = 1 - 1e-9


class _UnevenError(Exception):
    """Routes use a part of a bundle."""


class LinkBundles:
    """The bundles of a fabric, and how flows between its endpoints divide over them."""

    def __init__(self, graph: FabricGraph) -> None:
        self._graph = graph
        self._classes = _classes_of(graph)
        self._number()

    @property
    def count(self) -> int:
        return len(self._sizes)

    def split(self, source: str, destination: str) -> dict[int, float]:
        """Return what one link of each bundle carries of a flow that every node divides evenly. Raises `NoPath`."""
        try:
            shares = self._split(source, destination)
        except _UnevenError:
            self._classes = {}
            self._number()
            raise
        return {bundle: share / self._sizes[bundle] for bundle, share in shares.items()}

    def pools(self, shares: Mapping[int, float]) -> dict[int, float]:
        """Return the pools that a flow uses whatever path it takes: all links of a tier out of a class, or into one.

        A flow that keeps away from what is congested is held back by these alone. `shares` are those of `split`.
        """
        found: defaultdict[int, float] = defaultdict(float)
        for bundle, share in shares.items():
            for pool in self._pools_of[bundle]:
                found[pool] += share * self._sizes[bundle]
        return {pool: 1.0 for pool, share in found.items() if share >= _WHOLE}

    @property
    def pool_capacities(self) -> Floats:
        """The rate of all links of each pool together, bit/s."""
        return np.array(self._pool_capacities)

    def _number(self) -> None:
        links, classes = self._graph.links, self._classes
        numbers: dict[Hashable, int] = {}
        self.of_link = np.empty(len(links), dtype=np.int64)
        """The bundle of each link of the graph."""
        self._sizes: list[int] = []
        self.capacities: list[float] = []
        """The rate of one link of each bundle, bit/s."""
        self._to: list[str] = []
        self._memo: dict[tuple[int, ...], list[tuple[int, float]]] = {}
        first: dict[Hashable, str] = {}
        senders: defaultdict[int, set[str]] = defaultdict(set)
        self._pools_of: list[tuple[int, int]] = []
        pools: dict[Hashable, int] = {}
        for number, link in enumerate(links):
            a, b = classes.get(link.source, link.source), classes.get(link.destination, link.destination)
            alone = number if not classes else -1
            bundle = numbers.setdefault((a, b, link.capacity_bps, alone), len(numbers))
            if bundle == len(self._sizes):
                self._sizes.append(0)
                self.capacities.append(link.capacity_bps)
                self._to.append(first.setdefault(b, link.destination))
                out = pools.setdefault(("from", a, link.tier), len(pools))
                into = pools.setdefault(("into", b, link.tier), len(pools))
                self._pools_of.append((out, into))
            self.of_link[number] = bundle
            self._sizes[bundle] += 1
            senders[bundle].add(link.source)
        self._fan_out = [size / len(senders[bundle]) for bundle, size in enumerate(self._sizes)]
        self._pool_capacities = [0.0] * len(pools)
        for bundle, both in enumerate(self._pools_of):
            for pool in both:
                self._pool_capacities[pool] += self._sizes[bundle] * self.capacities[bundle]

    def _split(self, source: str, destination: str) -> dict[int, float]:
        shares: defaultdict[int, float] = defaultdict(float)
        at = {source: 1.0}
        for _ in range(len(self._sizes) + 1):
            following: defaultdict[str, float] = defaultdict(float)
            for node, amount in at.items():
                for bundle, part in self._divided(node, destination):
                    shares[bundle] += amount * part
                    following[self._to[bundle]] += amount * part
            following.pop(destination, None)
            if not following:
                return dict(shares)
            at = following
        raise NoPath(f"routes from {source} to {destination} go round in a circle")

    def _divided(self, node: str, destination: str) -> list[tuple[int, float]]:
        hops = self._graph.next_hops(node, destination)
        found = self._memo.get(hops)
        if found is None:
            if not hops:
                raise NoPath(f"no path from {node} to {destination}")
            counts = Counter(self.of_link[list(hops)].tolist())
            if self._classes and any(count != self._fan_out[bundle] for bundle, count in counts.items()):
                raise _UnevenError
            found = self._memo[hops] = [(bundle, count / len(hops)) for bundle, count in counts.items()]
        return found


def even_bundles(graph: FabricGraph, pairs: list[tuple[str, str]]) -> tuple[LinkBundles, list[dict[int, float]]]:
    """Return the bundles, and the division of a flow between each of these pairs. Raises `NoPath`."""
    bundles = LinkBundles(graph)
    for _ in range(2):
        try:
            return bundles, [bundles.split(*pair) for pair in pairs]
        except _UnevenError:  # now every link is by itself
            continue
    raise NoPath("routes divide unevenly")


def _classes_of(graph: FabricGraph) -> dict[str, int]:
    """The class of each switch; endpoints, and switches that one hangs off, are classes by themselves."""
    around: defaultdict[str, list[tuple[str, float, bool]]] = defaultdict(list)
    leaves: set[str] = set()
    for link in graph.links:
        around[link.source].append((link.destination, link.capacity_bps, True))
        around[link.destination].append((link.source, link.capacity_bps, False))
        if link.source in graph.group_of:
            leaves.add(link.destination)
        if link.destination in graph.group_of:
            leaves.add(link.source)
    alone = [node for node in around if node in graph.group_of or node in leaves]
    classes = {node: number for number, node in enumerate(alone)}
    inner = [node for node in around if node not in classes]
    classes |= dict.fromkeys(inner, len(alone))
    kinds = 0
    for _ in range(_MOST_TURNS):
        numbers: dict[Hashable, int] = {}
        found = {
            node: numbers.setdefault(
                (
                    classes[node],
                    frozenset(Counter((classes[other], rate, out) for other, rate, out in around[node]).items()),
                ),
                len(numbers),
            )
            for node in inner
        }
        classes |= {node: len(alone) + number for node, number in found.items()}
        if len(numbers) == kinds:
            return classes
        kinds = len(numbers)
    return {}
