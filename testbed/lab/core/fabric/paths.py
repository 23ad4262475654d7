"""Equal-cost paths: how many shortest ways lead through the switches from one NIC to another, and how long they are.

A path is a sequence of links, so parallel links count each. Hosts forward nothing. What counts is what routing uses: a
switch installs at most `Routing.ecmp` next hops. The length of a path is the number of switches that it passes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from testbed.lab.core.fabric.forwarding.next_hops import installed
from testbed.lab.core.fabric.graph import Graph, LabGraph
from testbed.lab.core.model import BACKEND, Lab, Link, LinkKind, Place, Role


class Relation(StrEnum):
    """The relation of two NICs to each other. Ports of different planes are not compared."""

    SAME_RAIL = "same rail, same segment"
    CROSS_RAIL = "other rail, same segment"
    INTER_SEGMENT = "other segment, same pod"
    INTER_POD = "other pod"
    SAME_LEAF = "same leaf"
    """In a network beside the back end, which has no rails."""
    OTHER_LEAF = "other leaf"
    HAND_WRITTEN = "to or from a hand-written node"


@dataclass(frozen=True, slots=True, kw_only=True)
class PathCount:
    """The fewest and the most equal-cost paths between two NICs of a relation, and of switches that one passes.

    0: the fabric does not join them. The fewest switches are those of NICs that it joins.
    """

    relation: Relation
    fewest: int
    most: int
    fewest_switches: int
    most_switches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EcmpWidth:
    """The most equal-cost next hops that a switch of a role has to one destination (`ways`), and how many of them it
    installs."""

    role: Role
    ways: int
    installed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PathSurvey:
    """The paths between NICs by relation, and the width of ECMP by role, the lowest tier first."""

    paths: tuple[PathCount, ...]
    widths: tuple[EcmpWidth, ...]


@dataclass(slots=True, kw_only=True)
class Ways:
    """The ways from every switch to one: how many, how many switches they pass (both ends too), and over how many next
    hops of equal cost each switch could send."""

    counts: dict[str, int]
    passed: dict[str, int]
    next_hops: dict[str, int]


def ways_to(switches: Graph[Link], destination: str, ecmp: int) -> Ways:
    """The shortest ways that routing uses from every switch to the switch `destination` (one from itself), where each
    installs at most `ecmp` next hops."""
    counts, passed, next_hops = {destination: 1}, {destination: 1}, {destination: 0}
    for distance, wave in enumerate(switches.waves(destination), 2):
        for switch, arrivals in wave.items():
            ways = sum(len(links) for _, links in arrivals)
            passed[switch], next_hops[switch] = distance, ways
            if ways > ecmp:
                counts[switch] = sum(counts[neighbour] for neighbour, _ in installed(switch, arrivals, ecmp))
            else:
                counts[switch] = sum(counts[before] * len(links) for before, links in arrivals)
    return Ways(counts=counts, passed=passed, next_hops=next_hops)


_Where = tuple[int, int, int] | None
"""Pod, segment and plane of a NIC port; on a leaf `_ON_LEAF`, its number and 0; None for a hand-written host."""
_ON_LEAF = -1


_Rails = dict[int, int]
"""NIC ports of one place on one switch: how many of each rail."""
_Way = tuple[int, int]
"""The number of paths from one NIC port to another, and of switches that each passes."""
_ONE_SWITCH: _Way = (1, 1)
_NO_WAY: _Way = (0, 0)


def survey_paths(lab: Lab, graph: LabGraph) -> PathSurvey:
    """The fewest and most equal-cost paths by relation, over all pairs of NICs, and how wide ECMP is.

    Switches with the same neighbours are interchangeable, so that one search answers for all of them: a pod's
    rail switches need one search together.
    """
    attached = _attached(lab, graph)
    twins: dict[frozenset[tuple[str, int]], list[str]] = defaultdict(list)
    for switch in attached:
        around = graph.switches.neighbours[switch]
        twins[frozenset((neighbour, len(links)) for neighbour, links in around.items())].append(switch)
    found: dict[Relation, set[_Way]] = defaultdict(set)
    widest: dict[Role, int] = {}
    roles = {node.name: node.role or Role.RAIL for node in lab.switches}
    for on_switch in attached.values():
        _on_one_switch(on_switch, found)
    families = [(members, _places(members, attached)) for members in twins.values()]
    for members, places in families:
        ways = ways_to(graph.switches, members[0], lab.routing.ecmp)

        def way_from(switch: str, ways: Ways = ways) -> _Way:
            return (ways.counts[switch], ways.passed[switch]) if switch in ways.counts else _NO_WAY

        for switch, number in ways.next_hops.items():
            role = roles[switch]
            if number > widest.get(role, 0):
                widest[role] = number
        if len(members) > 1:
            _between(places, places, way_from(members[1]), found)
        for others, their_places in families:
            if others is not members:
                _between(places, their_places, way_from(others[0]), found)
    return PathSurvey(
        paths=tuple(_counted(relation, found[relation]) for relation in Relation if relation in found),
        widths=tuple(
            EcmpWidth(role=role, ways=widest[role], installed=min(widest[role], lab.routing.ecmp))
            for role in Role
            if role in widest
        ),
    )


def _counted(relation: Relation, ways: set[_Way]) -> PathCount:
    """Sum up the ways of one relation."""
    paths = [number for number, _ in ways]
    passed = [switches for number, switches in ways if number] or [0]
    return PathCount(
        relation=relation,
        fewest=min(paths),
        most=max(paths),
        fewest_switches=min(passed),
        most_switches=max(passed),
    )


def _attached(lab: Lab, graph: LabGraph) -> dict[str, dict[_Where, _Rails]]:
    """The NIC ports on every switch that has some."""
    places: dict[str, Place | None] = {node.name: node.place for node in lab.nodes}
    attached: dict[str, dict[_Where, _Rails]] = {}
    for switch, nics in graph.nics.items():
        switch_place = places[switch]
        plane = 0 if switch_place is None else switch_place.plane
        for end, link in nics:
            place = places[end.node]
            if link.kind is LinkKind.FABRIC:
                continue
            where: _Where = None
            if link.network != BACKEND and switch_place is not None:
                where = (_ON_LEAF, switch_place.index, 0)
            elif place is not None and link.kind in (LinkKind.ACCESS, LinkKind.TENANT, LinkKind.MEMBER):
                where = (place.pod, place.segment, plane)
            rails = attached.setdefault(switch, {}).setdefault(where, {})
            rails[link.rail] = rails.get(link.rail, 0) + 1
    return attached


def _places(members: Sequence[str], attached: dict[str, dict[_Where, _Rails]]) -> dict[_Where, set[str]]:
    """Which of the switches have NIC ports of which place."""
    places: dict[_Where, set[str]] = defaultdict(set)
    for switch in members:
        for where in attached[switch]:
            places[where].add(switch)
    return places


def _on_one_switch(places: dict[_Where, _Rails], found: dict[Relation, set[_Way]]) -> None:
    """Two ports of one switch: the switch itself is the only path."""
    for where, ports in places.items():
        if where is None:
            if sum(ports.values()) > 1:
                found[Relation.HAND_WRITTEN].add(_ONE_SWITCH)
            continue
        if where[0] == _ON_LEAF:
            if sum(ports.values()) > 1:
                found[Relation.SAME_LEAF].add(_ONE_SWITCH)
            continue
        if max(ports.values()) > 1:
            found[Relation.SAME_RAIL].add(_ONE_SWITCH)
        if len(ports) > 1:
            found[Relation.CROSS_RAIL].add(_ONE_SWITCH)
    wheres = list(places)
    for number, where in enumerate(wheres):
        for other in wheres[number + 1 :]:
            _record(where, other, _ONE_SWITCH, found)


def _between(
    places: dict[_Where, set[str]], others: dict[_Where, set[str]], way: _Way, found: dict[Relation, set[_Way]]
) -> None:
    """Two ports of different switches, with the way from one to the other."""
    for where, switches in places.items():
        for other, their_switches in others.items():
            if len(switches | their_switches) > 1:
                _record(where, other, way, found)


def _record(where: _Where, other: _Where, way: _Way, found: dict[Relation, set[_Way]]) -> None:
    if where is None or other is None:
        found[Relation.HAND_WRITTEN].add(way)
        return
    (pod, segment, plane), (other_pod, other_segment, other_plane) = where, other
    if plane != other_plane:
        return
    if pod == _ON_LEAF:
        found[Relation.OTHER_LEAF].add(way)
        return
    if pod != other_pod:
        found[Relation.INTER_POD].add(way)
    elif segment != other_segment:
        found[Relation.INTER_SEGMENT].add(way)
    else:
        found[Relation.CROSS_RAIL].add(way)
