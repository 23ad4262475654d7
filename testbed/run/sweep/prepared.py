"""A scenario that was read and checked: the points to be run, and the labs that they run on.

Scenarios read no files themselves. Whoever prepares a sweep hands over a `ScenarioReader`, which still knows the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from testbed.base.errors import PlanError, SpecError, WorkloadError
from testbed.lab.core.model import Lab
from testbed.run.schema.model import Scenario, TopologyRef
from testbed.run.sweep.points import Point, topology_key

Unfit = tuple[Scenario, WorkloadError | PlanError]
"""A point's scenario, and why its lab cannot be planned or cannot carry its workload."""


class ScenarioReader(Protocol):
    """The file that a scenario was read from, as far as running it needs the file once more."""

    def load_topology(self, topology: TopologyRef) -> Lab:
        """Load the topology of a point; its keys may have been set after the file was read. Raises `SpecError`."""
        ...

    def explain(self, unfit: Sequence[Unfit]) -> SpecError:
        """Say where in the file these faults stand, in the order of the file."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A scenario with the points of it that are to be run; `labs` are their resolved topologies by `topology_key`."""

    scenario: Scenario
    points: tuple[Point, ...]
    labs: Mapping[str, Lab]
    reader: ScenarioReader

    def lab_of(self, point: Point) -> Lab:
        """The resolved topology of one of the points."""
        return self.labs[topology_key(point.topology)]

    @property
    def runs(self) -> int:
        """How many runs all points together have."""
        return sum(point.scenario.repeat.runs for point in self.points)
