"""Equal-cost paths: how many shortest ways lead through the switches from one NIC to another.

A path is a sequence of links, so parallel links count each. Hosts forward nothing. What counts is what routing uses: a
switch installs at most `Routing.ecmp` next hops.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from testbed.lab.core.fabric.forwarding.next_hops import installed
from testbed.lab.core.fabric.graph import Graph, LabGraph
from testbed.lab.core.model import BACKEND, Lab, Link, LinkKind, Place


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
    """The fewest and the most equal-cost paths between two NICs of a relation. 0: the fabric does not join them."""

    relation: Relation
    fewest: int
    most: int


def count_paths(switches: Graph[Link], destination: str, ecmp: int) -> dict[str, int]:
    """The number of shortest paths that routing uses from every switch to the switch `destination` (1 from itself),
    where each installs at most `ecmp` next hops."""
    counts = {destination: 1}
    for wave in switches.waves(destination):
        for switch, arrivals in wave.items():
            if sum(len(links) for _, links in arrivals) > ecmp:
                counts[switch] = sum(counts[neighbour] for neighbour, _ in installed(switch, arrivals, ecmp))
            else:
                counts[switch] = sum(counts[before] * len(links) for before, links in arrivals)
    return counts


_Where = tuple[int, int, int] | None
"""Pod, segment and plane of a NIC port; on a leaf `_ON_LEAF`, its number and 0; None for a hand-written host."""
_ON_LEAF = -1


_Rails = dict[int, int]
"""NIC ports of one place on one switch: how many of each rail."""


def summarise_paths(lab: Lab, graph: LabGraph) -> tuple[PathCount, ...]:
    """The fewest and most equal-cost paths by relation, over all pairs of NICs.

    Switches with the same neighbours are interchangeable, so that one search answers for all of them: a pod's
    rail switches need one search together.
    """
    attached = _attached(lab, graph)
    twins: dict[frozenset[tuple[str, int]], list[str]] = defaultdict(list)
    for switch in attached:
        around = graph.switches.neighbours[switch]
        twins[frozenset((neighbour, len(links)) for neighbour, links in around.items())].append(switch)
    found: dict[Relation, list[int]] = defaultdict(list)
    for on_switch in attached.values():
        _on_one_switch(on_switch, found)
    families = [(members, _places(members, attached)) for members in twins.values()]
    for members, places in families:
        counts = count_paths(graph.switches, members[0], lab.routing.ecmp)
        if len(members) > 1:
            _between(places, places, counts.get(members[1], 0), found)
        for others, their_places in families:
            if others is not members:
                _between(places, their_places, counts.get(others[0], 0), found)
    return tuple(
        PathCount(relation=relation, fewest=min(found[relation]), most=max(found[relation]))
        for relation in Relation
        if relation in found
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
            elif place is not None and link.kind in (LinkKind.ACCESS, LinkKind.TENANT):
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


def _on_one_switch(places: dict[_Where, _Rails], found: dict[Relation, list[int]]) -> None:
    """Two ports of one switch: the switch itself is the only path."""
    for where, ports in places.items():
        if where is None:
            if sum(ports.values()) > 1:
                found[Relation.HAND_WRITTEN].append(1)
            continue
        if where[0] == _ON_LEAF:
            if sum(ports.values()) > 1:
                found[Relation.SAME_LEAF].append(1)
            continue
        if max(ports.values()) > 1:
            found[Relation.SAME_RAIL].append(1)
        if len(ports) > 1:
            found[Relation.CROSS_RAIL].append(1)
    wheres = list(places)
    for number, where in enumerate(wheres):
        for other in wheres[number + 1 :]:
            _record(where, other, 1, found)


def _between(
    places: dict[_Where, set[str]], others: dict[_Where, set[str]], paths: int, found: dict[Relation, list[int]]
) -> None:
    """Two ports of different switches with `paths` between them."""
    for where, switches in places.items():
        for other, their_switches in others.items():
            if len(switches | their_switches) > 1:
                _record(where, other, paths, found)


def _record(where: _Where, other: _Where, paths: int, found: dict[Relation, list[int]]) -> None:
    if where is None or other is None:
        found[Relation.HAND_WRITTEN].append(paths)
        return
    (pod, segment, plane), (other_pod, other_segment, other_plane) = where, other
    if plane != other_plane:
        return
    if pod == _ON_LEAF:
        found[Relation.OTHER_LEAF].append(paths)
        return
    if pod != other_pod:
        found[Relation.INTER_POD].append(paths)
    elif segment != other_segment:
        found[Relation.INTER_SEGMENT].append(paths)
    else:
        found[Relation.CROSS_RAIL].append(paths)
