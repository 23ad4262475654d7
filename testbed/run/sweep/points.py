"""A scenario that was read and checked: its points in the order in which they are run, and the labs that they run on.

Runs read no files themselves. Whoever prepares a sweep hands over a `ScenarioReader`, which still knows the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from testbed.base.errors import Finding, PlanError, ScenarioError, SpecError, WorkloadError
from testbed.lab.core.model import Lab
from testbed.run.schema.model import Expectation, Scalar, Scenario, TopologyRef, is_point_of, names_key
from testbed.run.schema.point_names import point_name, short_keys

SCALE_KEY = "scale.time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One combination of a matrix's values; the only one of a scenario without a matrix.

    `index` counts from 1 in the order of running. `scenario` has the values applied, and no matrix.
    """

    index: int
    name: str
    """The values in one line, by the last words of their keys: `mode=spray rate=50%`. Empty without a matrix."""
    values: Mapping[str, Scalar]
    scenario: Scenario

    @property
    def topology(self) -> TopologyRef:
        """The topology with this point's overrides in it."""
        return self.scenario.topology

    @property
    def overrides(self) -> Mapping[str, Scalar]:
        """Return what this point sets of the topology, by dotted key."""
        return self.scenario.topology.set


Prepared = TypeVar("Prepared")
Unfit = tuple[Scenario, WorkloadError | PlanError | Finding]
"""A point's scenario, and why its lab cannot be planned or cannot carry its workload."""


class HasValues(Protocol):
    """A point, planned or measured, as far as its values tell what is expected of it."""

    @property
    def values(self) -> Mapping[str, Any]:
        """Return the value of each key of the matrix."""


class ScenarioReader(Protocol):
    """The file that a scenario was read from, as far as running it needs the file once more."""

    def load_topology(self, topology: TopologyRef) -> Lab:
        """Load the topology of a point; its keys may have been set after the file was read. Raises `SpecError`."""

    def explain(self, unfit: Sequence[Unfit]) -> SpecError:
        """Say where in the file these faults stand, in the order of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSource:
    """The file of a sweep, and what was asked of it: with these another machine reads the same sweep.

    `overrides` replaces keys of the scenario or of its topology, `only` keeps points of its matrix.
    """

    file: Path
    overrides: Mapping[str, object]
    only: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A scenario with the points of it that are to be run; `labs` are their resolved topologies by `topology_key`.

    `source` is None for one that was not read from a file.
    """

    scenario: Scenario
    points: tuple[Point, ...]
    labs: Mapping[str, Lab]
    reader: ScenarioReader
    source: SweepSource | None = None

    def lab_of(self, point: Point) -> Lab:
        """The resolved topology of one of the points."""
        return self.labs[topology_key(point.topology)]

    def only(self, number: int) -> Sweep:
        """Return the sweep of one point alone, by its number. Raises `ScenarioError` where there is none."""
        points = tuple(point for point in self.points if point.index == number)
        if not points:
            numbers = f"1 to {len(self.points)}" if len(self.points) > 1 else "1"
            raise ScenarioError(f"{self.scenario.source} has no point {number}", hint=f"its points are {numbers}")
        key = topology_key(points[0].topology)
        return replace(self, points=points, labs={key: self.labs[key]})

    @property
    def runs(self) -> int:
        """Return the number of runs of all points together."""
        return sum(point.scenario.repeat.runs for point in self.points)

    def prepare(self, points: Iterable[Point], prepare: Callable[[Point], Prepared]) -> list[Prepared]:
        """Return what `prepare` makes of each point.

        Raises `SpecError` with the problems of all points whose lab cannot be planned or cannot carry the workload.
        """
        found: list[Prepared] = []
        unfit: list[Unfit] = []
        for point in points:
            try:
                found.append(prepare(point))
            except PlanError as error:
                unfit.append((point.scenario, error))
            except ScenarioError as error:
                if error.keys:
                    finding = Finding(code="unfit", keys=error.keys, message=error.message, hint=error.hint)
                    unfit.append((point.scenario, finding))
                elif isinstance(error.__cause__, WorkloadError):
                    unfit.append((point.scenario, error.__cause__))
                else:
                    raise
        if unfit:
            raise self.reader.explain(unfit)
        return found


def plan_points(scenario: Scenario) -> tuple[Point, ...]:
    """The points of a scenario, those of equal topologies next to each other, so that a lab is kept from one to the
    next; otherwise in the matrix's order.

    Raises `ScenarioError` for a matrix whose points were never resolved (`spec.load_scenario` does).
    """
    if not scenario.matrix:
        return (Point(index=1, name="", values={}, scenario=scenario),)
    if not scenario.variants:
        raise ScenarioError(f"the points of the scenario {scenario.name} were never resolved")
    labels = short_keys(scenario.matrix)
    groups: dict[str, list[Scenario]] = {}
    for variant in scenario.variants:
        groups.setdefault(topology_key(variant.topology), []).append(variant)
    ordered = [variant for group in groups.values() for variant in group]
    return tuple(
        Point(
            index=index,
            name=point_name(variant.values, labels, variant.written),
            values=variant.values,
            scenario=variant,
        )
        for index, variant in enumerate(ordered, start=1)
    )


def judgeable(expect: Iterable[Expectation], points: Sequence[HasValues]) -> tuple[Expectation, ...]:
    """The expectations of which these points are enough: not those that compare with a point left out."""
    return tuple(item for item in expect if not item.over or _has_both(item, points))


def _has_both(item: Expectation, points: Sequence[HasValues]) -> bool:
    about = [point for point in points if is_point_of(point.values, item.where)]
    others = [point for point in points if is_point_of(point.values, item.over)]
    changed = [key for point in points[:1] for key in point.values if any(names_key(word, key) for word in item.over)]
    rest = [{key: value for key, value in point.values.items() if key not in changed} for point in others]
    return all({key: value for key, value in point.values.items() if key not in changed} in rest for point in about)


def topology_key(topology: TopologyRef) -> str:
    """Equal for topologies that are the same as written."""
    written = {"file": topology.file, "inline": topology.inline, "set": dict(topology.set)}
    return json.dumps(written, sort_keys=True, default=str)
