"""Oversubscription by kind of traffic: what NICs can send of their rate, on their own rail and to all others.

A tier's oversubscription tells what its switches have above and below. What a collective meets depends on where its
traffic goes, so two patterns are told apart:

* **rail**: every NIC sends to NICs of its own rail, in the same plane, as ring and tree collectives do;
* **all-to-all**: every NIC sends to all NICs of the same plane, as expert parallelism does.

Hosts are halved at every level that there is: the hosts of each segment, the segments of each pod, the pods. All NICs
of both halves send at once, at the same share of their rate, evenly to those of the other half (in proportion to their
rates; a larger half sends no more than the smaller one takes). Switches divide what they send evenly over the next hops
of equal cost that they install, as ECMP by flow does at best and spraying by packet does; with `routing: {weighted:
true}` by the weights of those. Oversubscription is the load
of the fullest link when NICs send at their rate: 2.0 means that each can send half of it. It is at least 1, which is
what a NIC itself can do.

Counted and not simulated. Switches that have the same neighbours and the same NICs are one class, as all of them carry
the same: what is computed grows with the number of classes, and not with that of links.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any

from testbed.lab.core.fabric.forwarding.hop_shares import HopShares, Shares, told_bandwidths, weights_differ
from testbed.lab.core.fabric.forwarding.link_bandwidths import LinkBandwidths
from testbed.lab.core.fabric.forwarding.links import islands
from testbed.lab.core.fabric.forwarding.next_hops import installed
from testbed.lab.core.fabric.graph import LabGraph
from testbed.lab.core.model import BACKEND, Lab, Link, Node, Role

_MOST_PAIRS = 20_000
"""Pairs of leaves up to which loads are computed switch by switch, where ECMP installs fewer next hops than there
are, or gives them different shares."""
_ROUNDED = 9
"""Digits of a ratio that are kept, so that sums of parts of a whole are the whole."""


class TrafficPattern(StrEnum):
    """A choice of the NICs to which every NIC sends."""

    RAIL = "rail"
    ALL_TO_ALL = "all-to-all"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficLoad:
    """The load that a traffic pattern is between halves (`between` is "hosts", "segments" or "pods").

    `places` names them for people: "hosts of a segment", or "hosts" in a graph without segments.
    `access_bps` is what the NICs of the smaller halves can send, per direction. `oversubscription` is None where the
    fabric does not join all that would send to each other, or where there are too many leaves to tell; `joined` is the
    share of the traffic that has a path. `fullest` are the tiers of the link that is full first, "" where that is the
    NIC's own.
    """

    pattern: TrafficPattern
    between: str
    places: str
    access_bps: int
    oversubscription: float | None
    joined: float
    fullest: str = ""

    @property
    def is_joined(self) -> bool:
        """Tell whether all of the traffic has a path."""
        return self.joined >= 1

    @property
    def bandwidth_bps(self) -> int | None:
        """The rate at which the NICs of the smaller halves send, per direction; None where oversubscription is."""
        return None if self.oversubscription is None else round(self.access_bps / self.oversubscription)


def measure_traffic(lab: Lab, graph: LabGraph, *, widest: int) -> tuple[TrafficLoad, ...]:
    """The loads of both patterns at each level of `lab`, the lowest level first.

    Rail traffic is that of NICs which have a rail. `widest` is the largest number of next hops that a switch has to one
    destination: where routing installs fewer, or gives them different shares, switches are looked at one by one.
    """
    ports = list(_ports(lab, graph))
    bandwidths = told_bandwidths(lab)
    weighted = weights_differ(graph.switches, graph.nics, bandwidths, lab.routing.ecmp)
    one_by_one = weighted or widest > lab.routing.ecmp
    leaves = len({port.switch for port in ports})
    alike = {} if one_by_one else _alike(graph)
    found = []
    for level in _levels(lab, {port.host for port in ports}):
        for pattern in TrafficPattern:
            rail = pattern is TrafficPattern.RAIL
            sending = [port for port in ports if port.host in level.sides and (port.rail or not rail)]
            if not sending:
                continue
            demand = _Demand.of(sending, level, pattern)
            if not demand.offered:
                continue
            if one_by_one and leaves**2 > _MOST_PAIRS:
                found.append(_untold(pattern, level, demand))
                continue
            classes = _Classes(graph, demand.attached, alike)
            loads = _Loads(lab, classes, demand, bandwidths if weighted else None)
            found.append(loads.measured(pattern, level))
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Port:
    """A NIC port of a host on a switch."""

    host: str
    switch: str
    rate_bps: int
    rail: int
    plane: int


def _ports(lab: Lab, graph: LabGraph) -> Iterator[_Port]:
    """The NIC ports of hosts. Where nothing says on which plane those of a host are, switches that are not joined are
    planes of their own."""
    hosts = {node.name for node in lab.hosts}
    planes = {node.name: 0 if node.place is None else node.place.plane for node in lab.switches}
    apart = _apart(graph)
    for switch, nics in graph.nics.items():
        for end, link in nics:
            if end.node in hosts:
                rail = link.rail if link.network == BACKEND else 0
                plane = planes[switch] if link.network == BACKEND else 0
                if not rail and end.node in apart:
                    plane = apart[end.node][switch]
                yield _Port(host=end.node, switch=switch, rate_bps=link.rate.bps, rail=rail, plane=plane)


def _apart(graph: LabGraph) -> dict[str, Mapping[str, int]]:
    """The numbers of the planes of switches, for each host that has ports on several which are not joined."""
    number = {switch: one for one, island in enumerate(islands(graph), 1) for switch in island}
    if len(set(number.values())) < 2:
        return {}
    met: dict[str, set[int]] = defaultdict(set)
    for switch, nics in graph.nics.items():
        for end, _ in nics:
            met[end.node].add(number[switch])
    return {host: number for host, several in met.items() if len(several) > 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    """A level at which hosts are halved. `sides` has the group of each host, and its half in there (0 or 1)."""

    between: str
    places: str
    sides: Mapping[str, tuple[Hashable, int]]


def _levels(lab: Lab, wired: set[str]) -> Iterator[_Level]:
    """The levels of a generated fabric; of a hand-written graph its hosts, in the order of the file."""
    hosts = [node for node in lab.hosts if node.name in wired]
    placed = [node for node in hosts if node.place is not None]
    if not placed:
        yield from _halved("hosts", "hosts", {None: [[node.name] for node in hosts]})
        return
    segments: dict[tuple[int, int], list[Node]] = defaultdict(list)
    for node in placed:
        assert node.place is not None
        segments[node.place.pod, node.place.segment].append(node)
    pods: dict[int, list[list[str]]] = defaultdict(list)
    for (pod, _), members in segments.items():
        pods[pod].append([node.name for node in members])
    yield from _halved(
        "hosts", "hosts of a segment", {key: [[node.name] for node in members] for key, members in segments.items()}
    )
    yield from _halved("segments", "segments of a pod", pods)
    yield from _halved("pods", "pods", {None: [[name for unit in units for name in unit] for units in pods.values()]})


def _halved(between: str, places: str, groups: Mapping[Any, list[list[str]]]) -> Iterator[_Level]:
    """The level of groups of units, whose first halves send to the second ones; none where no group has two units."""
    sides: dict[str, tuple[Hashable, int]] = {}
    for group, units in groups.items():
        if len(units) > 1:
            for number, unit in enumerate(units):
                sides |= dict.fromkeys(unit, (group, int(number >= len(units) // 2)))
    if sides:
        yield _Level(between=between, places=places, sides=sides)


_Key = Hashable
"""Whose NICs send to each other: a group, a plane and, for rail traffic, a rail."""
_Attached = dict[tuple[_Key, int], int]
"""The rate at which the NICs of a key and a half can send from one switch, in bit/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Demand:
    """The rates at which NICs would send: by switch (`attached`), of both halves by key (`totals`), and of the smaller
    one (`offered`)."""

    attached: Mapping[str, _Attached]
    totals: Mapping[_Key, tuple[int, int]]
    offered: Mapping[_Key, int]

    @classmethod
    def of(cls, ports: Sequence[_Port], level: _Level, pattern: TrafficPattern) -> _Demand:
        attached: dict[str, _Attached] = defaultdict(dict)
        totals: dict[_Key, list[int]] = defaultdict(lambda: [0, 0])
        for port in ports:
            group, half = level.sides[port.host]
            key = (group, port.plane, port.rail if pattern is TrafficPattern.RAIL else 0)
            here = attached[port.switch]
            here[key, half] = here.get((key, half), 0) + port.rate_bps
            totals[key][half] += port.rate_bps
        return cls(
            attached=attached,
            totals={key: (first, second) for key, (first, second) in totals.items()},
            offered={key: min(both) for key, both in totals.items() if min(both)},
        )

    @property
    def access_bps(self) -> int:
        return sum(self.offered.values())


def _alike(graph: LabGraph) -> dict[str, int]:
    """Give switches one number that have links of the same rates to the same neighbours; none to those without any."""
    numbers: dict[Hashable, int] = {}
    found = {}
    for switch, around in graph.switches.neighbours.items():
        if around:
            rates = frozenset((name, tuple(sorted(link.rate.bps for link in on))) for name, on in around.items())
            found[switch] = numbers.setdefault(rates, len(numbers))
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Class:
    """Switches that all carry the same. `first` stands for each of them."""

    members: tuple[str, ...]
    attached: _Attached
    edges: dict[_Class, Sequence[Link]] = field(default_factory=dict)
    """The classes of neighbours, each with the links from one switch to one of them."""

    @property
    def first(self) -> str:
        return self.members[0]


class _Classes:
    """The switches of a lab in classes, with their neighbours; in one those that are `alike` and have NICs alike."""

    def __init__(self, graph: LabGraph, attached: Mapping[str, _Attached], alike: Mapping[str, int]) -> None:
        self._neighbours = graph.switches.neighbours
        members: dict[Hashable, list[str]] = defaultdict(list)
        for switch in self._neighbours:
            nics = frozenset(attached.get(switch, {}).items())
            members[(alike[switch], nics) if switch in alike else switch].append(switch)
        self.all = [_Class(members=tuple(names), attached=attached.get(names[0], {})) for names in members.values()]
        of = {name: one for one in self.all for name in one.members}
        for one in self.all:
            one.edges.update({of[name]: links for name, links in self._neighbours[one.first].items()})
        self.of_key: dict[tuple[_Key, int], list[_Class]] = defaultdict(list)
        for one in self.all:
            for key_and_half in one.attached:
                self.of_key[key_and_half].append(one)

    def distances(self, destination: _Class, sources: Sequence[_Class]) -> list[list[_Class]]:
        """The classes by their distance from one, as far as the sources are."""
        missing = set(sources) - {destination}
        seen = {destination}
        waves = [[destination]]
        while waves[-1] and (missing or len(waves) < 2):
            wave: dict[_Class, None] = {}
            for one in waves[-1]:
                wave.update(dict.fromkeys(near for near in one.edges if near not in seen))
            seen.update(wave)
            missing.difference_update(wave)
            waves.append(list(wave))
        return waves


class _Loads:
    """The loads of links, in bit/s of one link, when every NIC sends at its rate."""

    def __init__(self, lab: Lab, classes: _Classes, demand: _Demand, bandwidths: LinkBandwidths | None) -> None:
        """With `bandwidths` next hops have shares by those, and each class is one switch."""
        self._classes = classes
        self._bandwidths = bandwidths
        self._demand = demand
        self._ecmp = lab.routing.ecmp
        self._roles = {node.name: node.role or Role.RAIL for node in lab.switches}
        self._loads: dict[tuple[_Class, _Class], float] = defaultdict(float)
        self._weighed: dict[tuple[_Class, _Class, Link], float] = defaultdict(float)
        self._lost = 0.0

    def measured(self, pattern: TrafficPattern, level: _Level) -> TrafficLoad:
        """Send everything, and look for the link that is full first."""
        for key, offered in self._demand.offered.items():
            for half in (0, 1):
                self._send(key, half, offered)
        fullest, tiers = 1.0, ""
        for one, other, used in self._used():
            if round(used, _ROUNDED) > fullest:
                fullest, tiers = used, f"{self._roles[one.first]} to {self._roles[other.first]}"
        access_bps = self._demand.access_bps
        joined = round(1 - self._lost / (2 * access_bps), _ROUNDED)
        return TrafficLoad(
            pattern=pattern,
            between=level.between,
            places=level.places,
            access_bps=access_bps,
            oversubscription=round(fullest, _ROUNDED) if joined >= 1 else None,
            joined=joined,
            fullest=tiers,
        )

    def _used(self) -> Iterator[tuple[_Class, _Class, float]]:
        """The load of links from one class to another, over their rate."""
        for (one, other), load in self._loads.items():
            yield one, other, load / min(link.rate.bps for link in one.edges[other])
        for (one, other, link), load in self._weighed.items():
            yield one, other, load / link.rate.bps

    def _send(self, key: _Key, half: int, offered: int) -> None:
        """Send what the NICs of one half have for those of the other."""
        sources = self._classes.of_key[key, half]
        sent, taken = self._demand.totals[key][half], self._demand.totals[key][1 - half]
        for destination in self._classes.of_key[key, 1 - half]:
            many = len(destination.members)
            wanted = offered * many * destination.attached[key, 1 - half] / taken
            amounts: dict[_Class, float] = {}
            for one in sources:
                amount = wanted * len(one.members) * one.attached[key, half] / sent
                if one is destination:
                    amount *= (many - 1) / many  # the rest stays on its switch
                if amount:
                    amounts[one] = amount
            if amounts:
                self._carry(destination, amounts)

    def _carry(self, destination: _Class, amounts: dict[_Class, float]) -> None:
        """Carry amounts (bit/s of whole classes) to the switches of one class, wave by wave."""
        waves = self._classes.distances(destination, list(amounts))
        shares = {} if self._bandwidths is None else self._shares(waves, self._bandwidths)
        to_its_own = amounts.pop(destination, 0.0)
        if to_its_own:
            if not destination.edges:
                self._lost += to_its_own
            else:
                self._pass_on(destination, to_its_own, waves[1], amounts)
        for number in range(len(waves) - 1, 0, -1):
            nearer = waves[number - 1]
            for one in waves[number]:
                if amount := amounts.pop(one, 0.0):
                    if one in shares:
                        self._weigh(one, amount, shares[one], nearer, amounts)
                    else:
                        self._pass_on(one, amount, nearer, amounts)
        amounts.pop(destination, None)
        self._lost += sum(amounts.values())

    def _shares(self, waves: Sequence[Sequence[_Class]], bandwidths: LinkBandwidths) -> dict[_Class, Shares]:
        """The shares of the next hops of all switches, whose distance from the destination the waves are."""
        hops = HopShares(bandwidths, self._ecmp)
        return {
            one: hops.add(one.first, [(near.first, one.edges[near]) for near in nearer if near in one.edges])
            for nearer, wave in pairwise(waves)
            for one in wave
        }

    def _weigh(
        self, one: _Class, amount: float, shares: Shares, nearer: Sequence[_Class], amounts: dict[_Class, float]
    ) -> None:
        """Divide an amount over the next hops of a switch by their weights."""
        named = {near.first: near for near in nearer if near in one.edges}
        whole = sum(weight for _, weight in shares)
        for (name, link), weight in shares:
            near, part = named[name], amount * weight / whole
            self._weighed[one, near, link] += part
            amounts[near] = amounts.get(near, 0.0) + part

    def _pass_on(self, one: _Class, amount: float, nearer: Sequence[_Class], amounts: dict[_Class, float]) -> None:
        """Divide an amount evenly over the next hops that the switches of a class install."""
        hops = [(near, one.edges[near]) for near in nearer if near in one.edges]
        used = {near: len(links) for near, links in hops}
        ways = sum(len(near.members) * number for near, number in used.items())
        if ways > self._ecmp:  # where classes are single switches
            arrivals = [(near.first, links) for near, links in hops]
            chosen = Counter(name for name, _ in installed(one.first, arrivals, self._ecmp))
            used = {near: chosen[near.first] for near, _ in hops if chosen[near.first]}
            ways = self._ecmp
        for near, number in used.items():
            self._loads[one, near] += amount / len(one.members) / ways
            amounts[near] = amounts.get(near, 0.0) + amount * len(near.members) * number / ways


def _untold(pattern: TrafficPattern, level: _Level, demand: _Demand) -> TrafficLoad:
    return TrafficLoad(
        pattern=pattern,
        between=level.between,
        places=level.places,
        access_bps=demand.access_bps,
        oversubscription=None,
        joined=1.0,
    )
