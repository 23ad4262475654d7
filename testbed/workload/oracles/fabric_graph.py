"""A fabric as oracles see it: directed links with capacities, and equal-cost next hops towards each endpoint.

It is apart from `testbed.lab.core.fabric.graph`, which plans and sizes labs, and shares no line with it: an oracle that
went wrong together with what it checks would be worth nothing.

An endpoint is a NIC port; endpoints forward nothing. Parallel links are links of their own. `FabricGraph` takes next
hops as they are (those of a routing protocol, say); `shortest_path_graph` computes them by hops.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

Choose = Callable[[str, int], int]
"""(node, number of equal-cost links) -> which, from 0."""
UPLINKS = "uplink"
"""The tier whose loads are judged."""


def leads_up(tier: str) -> bool:
    """Tell whether links of a tier lead from a switch to a higher one: from rail switches, or from spines."""
    return tier == UPLINKS or tier.endswith(f"-{UPLINKS}")


class NoPath(ValueError):
    """The graph does not join two endpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectedLink:
    """One direction of a link. `tier` says what it is among the others: `access`, `uplink`, `downlink`, ..."""

    source: str
    destination: str
    capacity_bps: float
    name: str = ""
    tier: str = ""

    def __post_init__(self) -> None:
        if not self.capacity_bps >= 0:
            raise ValueError(f"link {self.name or self.source} has a capacity of {self.capacity_bps}")


Routes = Mapping[str, Mapping[str, tuple[int, ...]]]
"""Group of destinations -> node -> equal-cost links out of that node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricGraph:
    """`group_of[endpoint]` is the group whose routes lead to it: the switch it hangs off, as a rule.

    A node next to an endpoint delivers over its links to it, whatever `routes` say. A link that stands in a route twice
    has twice the share of one that stands there once.
    """

    links: tuple[DirectedLink, ...]
    routes: Routes
    group_of: Mapping[str, str]
    _between: Mapping[tuple[str, str], tuple[int, ...]] = field(init=False, repr=False)
    _outgoing: Mapping[str, tuple[int, ...]] = field(init=False, repr=False)
    _incoming: Mapping[str, tuple[int, ...]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        between: defaultdict[tuple[str, str], tuple[int, ...]] = defaultdict(tuple)
        outgoing: defaultdict[str, tuple[int, ...]] = defaultdict(tuple)
        incoming: defaultdict[str, tuple[int, ...]] = defaultdict(tuple)
        for number, link in enumerate(self.links):
            between[link.source, link.destination] += (number,)
            outgoing[link.source] += (number,)
            incoming[link.destination] += (number,)
        object.__setattr__(self, "_between", dict(between))
        object.__setattr__(self, "_outgoing", dict(outgoing))
        object.__setattr__(self, "_incoming", dict(incoming))

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(self.group_of)

    @property
    def capacities(self) -> tuple[float, ...]:
        return tuple(link.capacity_bps for link in self.links)

    def leaving_bps(self, endpoint: str) -> float:
        """Return what its links carry from it."""
        return sum(self.links[number].capacity_bps for number in self._outgoing.get(endpoint, ()))

    def entering_bps(self, endpoint: str) -> float:
        """Return what its links carry to it."""
        return sum(self.links[number].capacity_bps for number in self._incoming.get(endpoint, ()))

    def access_bps(self, source: str, destination: str) -> float:
        """The slower of what can leave `source` and what can enter `destination`."""
        return min(self.leaving_bps(source), self.entering_bps(destination))

    def next_hops(self, node: str, destination: str) -> tuple[int, ...]:
        """The equal-cost links out of `node` towards the endpoint `destination`; none where it has no route."""
        direct = self._between.get((node, destination))
        if direct is not None:
            return direct
        if node in self.group_of:  # an endpoint sends by all its links that lead on
            return tuple(n for n in self._outgoing.get(node, ()) if self._leads(self.links[n].destination, destination))
        return self.routes.get(self.group_of.get(destination, destination), {}).get(node, ())

    def path(self, source: str, destination: str, choose: Choose) -> tuple[int, ...]:
        """The links of one path; `choose` decides at each node with several next hops. Raises `NoPath`."""
        self._check(source, destination)
        node = source
        links: list[int] = []
        while node != destination:
            hops = self.next_hops(node, destination)
            if not hops or len(links) > len(self.links):
                raise NoPath(f"no path from {source} to {destination}" + (f" at {node}" if node != source else ""))
            link = hops[choose(node, len(hops)) if len(hops) > 1 else 0]
            links.append(link)
            node = self.links[link].destination
        return tuple(links)

    def split(self, source: str, destination: str) -> dict[int, float]:
        """Link -> share of the flow, where every node divides evenly over its next hops. Raises `NoPath`."""
        self._check(source, destination)
        shares: defaultdict[int, float] = defaultdict(float)
        at = {source: 1.0}
        for _ in range(len(self.links) + 1):
            following: defaultdict[str, float] = defaultdict(float)
            for node, amount in at.items():
                hops = self.next_hops(node, destination)
                if not hops:
                    raise NoPath(f"no path from {source} to {destination}")
                for link in hops:
                    shares[link] += amount / len(hops)
                    following[self.links[link].destination] += amount / len(hops)
            following.pop(destination, None)
            if not following:
                return dict(shares)
            at = following
        raise NoPath(f"routes from {source} to {destination} go round in a circle")

    def paths(self, source: str, destination: str, limit: int = 4096) -> list[tuple[int, ...]]:
        """Return all equal-cost paths. Raises `NoPath`, and `ValueError` where there are more than `limit`."""
        self._check(source, destination)
        found: list[tuple[int, ...]] = []
        waiting: list[tuple[str, tuple[int, ...]]] = [(source, ())]
        while waiting:
            node, links = waiting.pop()
            if node == destination:
                found.append(links)
                continue
            if len(links) > len(self.links):
                raise NoPath(f"routes from {source} to {destination} go round in a circle")
            hops = tuple(dict.fromkeys(self.next_hops(node, destination)))
            waiting.extend((self.links[link].destination, (*links, link)) for link in reversed(hops))
            if len(found) + len(waiting) > limit:
                raise ValueError(f"more than {limit} equal-cost paths from {source} to {destination}")
        if not found:
            raise NoPath(f"no path from {source} to {destination}")
        return found

    def without(self, names: Collection[str]) -> FabricGraph:
        """Return the graph once routing has withdrawn these directions of links: they carry nothing, no route leads to
        a node that has none left. Longer ways that a protocol might then find are not looked for."""
        self._known(names)
        gone = {number for number, link in enumerate(self.links) if link.name in names}
        routes = {group: self._prune(group, dict(table), gone) for group, table in self.routes.items()}
        kept = [number for number in range(len(self.links)) if number not in gone]
        renumbered = {old: new for new, old in enumerate(kept)}
        return FabricGraph(
            links=tuple(self.links[number] for number in kept),
            routes={
                group: {node: tuple(renumbered[link] for link in hops) for node, hops in table.items()}
                for group, table in routes.items()
            },
            group_of=self.group_of,
        )

    def _prune(
        self, group: str, table: dict[str, tuple[int, ...]], gone: Collection[int]
    ) -> dict[str, tuple[int, ...]]:
        while True:
            kept = {
                node: tuple(
                    link
                    for link in hops
                    if link not in gone and self._arrives(self.links[link].destination, group, table)
                )
                for node, hops in table.items()
            }
            if kept == table:
                return kept
            table = kept

    def _arrives(self, node: str, group: str, table: Mapping[str, tuple[int, ...]]) -> bool:
        return node == group or self.group_of.get(node) == group or bool(table.get(node))

    def _leads(self, node: str, destination: str) -> bool:
        group = self.group_of.get(destination, destination)
        return node == group or (node, destination) in self._between or bool(self.routes.get(group, {}).get(node))

    def _check(self, source: str, destination: str) -> None:
        for end in (source, destination):
            if end not in self.group_of:
                raise NoPath(f"{end} is not an endpoint of this fabric")
        if source == destination:
            raise NoPath(f"{source} cannot have a path to itself")

    def _known(self, names: Iterable[str]) -> None:
        unknown = set(names) - {link.name for link in self.links}
        if unknown:
            raise ValueError(f"no link is named {', '.join(sorted(unknown))}")


def groups_of(links: Iterable[DirectedLink], endpoints: Collection[str]) -> dict[str, str]:
    """Each endpoint's group: the one node it hangs off, or itself where it hangs off several or off an endpoint."""
    near: dict[str, set[str]] = {endpoint: set() for endpoint in endpoints}
    for link in links:
        if link.destination in near:
            near[link.destination].add(link.source)
    return {
        endpoint: next(iter(nodes)) if len(nodes) == 1 and not nodes & near.keys() else endpoint
        for endpoint, nodes in near.items()
    }


def shortest_path_graph(
    links: Iterable[DirectedLink], endpoints: Collection[str], *, most: Mapping[str, int] = MappingProxyType({})
) -> FabricGraph:
    """Next hops are all links that lead to a node with one hop less to go. Endpoints forward nothing.

    A node that is in `most` has so many next hops at most, the first of them by their names.
    """
    links = tuple(links)
    group_of = groups_of(links, set(endpoints))
    return FabricGraph(
        links=links,
        routes=_ShortestRoutes(links, group_of, most),
        group_of={endpoint: group_of[endpoint] for endpoint in endpoints},
    )


class _ShortestRoutes(Mapping[str, Mapping[str, tuple[int, ...]]]):
    """The next hops to each group, found when they are asked for: of thousands of groups, that is a second each way."""

    def __init__(self, links: tuple[DirectedLink, ...], group_of: Mapping[str, str], most: Mapping[str, int]) -> None:
        self._links, self._most = links, most
        self._groups = dict.fromkeys(group_of.values())
        self._names = list(dict.fromkeys(node for link in links for node in (link.source, link.destination)))
        self._place = {name: place for place, name in enumerate(self._names)}
        self._before: list[set[int]] = [set() for _ in self._names]
        """The nodes that forward, by those that they have a link to."""
        self._leaving: list[list[tuple[int, int]]] = [[] for _ in self._names]
        """The links of each of them, with where they lead."""
        for number, link in enumerate(links):
            if link.source not in group_of:
                source, destination = self._place[link.source], self._place[link.destination]
                self._before[destination].add(source)
                self._leaving[source].append((number, destination))
        self._found: dict[str, _HopsTowards] = {}

    def __getitem__(self, group: str) -> Mapping[str, tuple[int, ...]]:
        found = self._found.get(group)
        if found is None:
            if group not in self._groups:
                raise KeyError(group)
            found = self._found[group] = _HopsTowards(
                self._names, self._place, self._leaving, self._distances(self._place[group]), self._narrowed
            )
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)

    def _narrowed(self, node: str, hops: tuple[int, ...]) -> tuple[int, ...]:
        """The next hops that a node uses of those that lead on, in their order."""
        most = self._most.get(node, len(hops))
        if len(hops) <= most:
            return hops
        kept = set(sorted(hops, key=lambda number: self._links[number].name)[:most])
        return tuple(number for number in hops if number in kept)

    def _distances(self, group: int) -> bytearray:
        """The links that each node is away, plus one; 0 for a node that has no way."""
        distances = bytearray(len(self._names))
        distances[group] = 1
        seen, frontier, away = {group}, {group}, 1
        while frontier and away < _MOST_HOPS:
            away += 1
            frontier = set().union(*(self._before[node] for node in frontier)) - seen
            seen |= frontier
            for node in frontier:
                distances[node] = away
        return distances


_MOST_HOPS = 255


class _HopsTowards(Mapping[str, tuple[int, ...]]):
    """The next hops of every node towards one group: the links to nodes that are one link nearer."""

    def __init__(
        self,
        names: Sequence[str],
        place: Mapping[str, int],
        leaving: Sequence[Sequence[tuple[int, int]]],
        distances: bytearray,
        narrowed: Callable[[str, tuple[int, ...]], tuple[int, ...]],
    ) -> None:
        self._names, self._place, self._leaving, self._distances = names, place, leaving, distances
        self._narrowed = narrowed
        self._found: dict[str, tuple[int, ...]] = {}

    def __getitem__(self, node: str) -> tuple[int, ...]:
        found = self._found.get(node)
        if found is None:
            place = self._place[node]
            away = self._distances[place]
            if away < 2:  # the group itself, and what does not reach it
                raise KeyError(node)
            hops = tuple(number for number, to in self._leaving[place] if self._distances[to] == away - 1)
            found = self._found[node] = self._narrowed(node, hops)
        return found

    def __iter__(self) -> Iterator[str]:
        return (name for name, away in zip(self._names, self._distances, strict=True) if away > 1)

    def __len__(self) -> int:
        return sum(away > 1 for away in self._distances)
