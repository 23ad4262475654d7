"""Which machine of a pool gets which point of an emulated sweep. Pure.

Points whose figures are divided by each other go to machines of one kind. Points of one topology go to one machine,
whose lab stays up, as long as there are other topologies for the others.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from testbed.run.schema.model import Expectation, is_point_of
from testbed.run.sweep.points import Point, topology_key
from testbed.run.sweep.verdict import other_point


def allowed_machines(
    points: Sequence[Point], expect: Iterable[Expectation], kinds: Sequence[Sequence[str]]
) -> dict[int, frozenset[str]]:
    """Return the machines that may have each point, by its number. `kinds` are the names of machines by their kind.

    Groups of points that an expectation divides are spread over the kinds by the number of machines of each.
    """
    everyone = frozenset(name for kind in kinds for name in kind)
    allowed = {point.index: everyone for point in points}
    load = [0.0] * len(kinds)
    for group in sorted(divided(points, expect), key=len, reverse=True):
        chosen = min(range(len(kinds)), key=lambda place: ((load[place] + len(group)) / len(kinds[place]), place))
        load[chosen] += len(group)
        allowed |= dict.fromkeys(group, frozenset(kinds[chosen]))
    return allowed


def divided(points: Sequence[Point], expect: Iterable[Expectation]) -> list[frozenset[int]]:
    """Return the groups of points whose figures are divided by each other, by their numbers."""
    groups: list[set[int]] = []
    for item in expect:
        if not item.over:
            continue
        for point in points:
            other = other_point(point, item.over, points) if is_point_of(point.values, item.where) else None
            if other is not None and other is not point:
                pair = {point.index, other.index}
                touched = [group for group in groups if group & pair]
                groups = [group for group in groups if not group & pair]
                groups.append(pair.union(*touched))
    return [frozenset(group) for group in groups]


def next_point(
    machine: str,
    waiting: Sequence[Point],
    allowed: Mapping[int, Container[str]],
    up: Mapping[str, str],
) -> Point | None:
    """Return the point that a machine gets next; None where it may have none of those that wait.

    `up` is the topology of the lab that each machine has up, by `topology_key`.
    """
    mine = [point for point in waiting if machine in allowed[point.index]]
    elsewhere = {key for name, key in up.items() if name != machine}
    for fits in (
        lambda point: topology_key(point.topology) == up.get(machine),
        lambda point: topology_key(point.topology) not in elsewhere,
    ):
        if found := next(filter(fits, mine), None):
            return found
    return mine[0] if mine else None
