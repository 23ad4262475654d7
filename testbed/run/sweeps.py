"""Reading scenario files for those who run them: checked against their topologies, cut down to the points wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from testbed.base.errors import Finding, PlanError, Problem, ScenarioError, SpecError, WorkloadError
from testbed.base.validation.engine import in_file_order
from testbed.lab.core.model import Lab
from testbed.run.placed.lab import lab_of_runs
from testbed.run.schema.against_lab import check_against, workload_problem
from testbed.run.schema.file import NOTHING, ScenarioFile, load_scenario_text, load_scenario_topology, read_scenario
from testbed.run.schema.model import Fault, Scenario, TopologyRef
from testbed.run.sweep.points import Point, Sweep, SweepSource, Unfit, judgeable, plan_points, topology_key


@dataclass(frozen=True, slots=True)
class FileReader:
    """The file of a scenario that is being run, as the scenario asks it (`ScenarioReader`)."""

    file: ScenarioFile

    def load_topology(self, topology: TopologyRef) -> Lab:
        """Load the topology of a point. Raises `SpecError`."""
        return load_scenario_topology(topology)

    def explain(self, unfit: Sequence[Unfit]) -> SpecError:
        """Name each fault at its place in the file."""
        problems = [self._problem(point, error) for point, error in unfit]
        return SpecError(in_file_order(dict.fromkeys(problems)))

    def _problem(self, point: Scenario, error: WorkloadError | PlanError | Finding) -> Problem:
        if isinstance(error, Finding):
            return self.file.document.problem(error.code, error.keys, error.message, hint=error.hint, key=error.at_key)
        if isinstance(error, PlanError):
            return self.file.document.problem(error.code, ("topology",), error.message, hint=error.hint, key=True)
        return workload_problem(self.file, point, error)


def read_sweep(
    scenario: str | Path,
    overrides: Mapping[str, object] = NOTHING,
    only: Mapping[str, object] = NOTHING,
    *,
    warn: Callable[[Problem], None] | None = None,
) -> Sweep:
    """Read a scenario file, or YAML text if it has a line break, and all topologies that its points run on.

    `overrides` replaces keys of the scenario or of its topology; `only` keeps the points of the matrix with these
    values; what is wrong with the others alone is no problem then. `warn` is told of what is valid in a topology and
    works less well than it looks. Nothing is touched. Raises `SpecError` with every problem, and `ScenarioError` where
    `only` leaves no point.
    """
    file = _read(scenario, overrides, only)
    sweep, points = _cut(file, only)
    labs: dict[str, Lab] = {}
    failed: set[str] = set()
    problems: list[Problem] = []
    for point in points:
        key = topology_key(point.topology)
        if key in failed:
            continue
        try:
            if key not in labs:
                labs[key] = lab_of_runs(file.load_lab(point.scenario, warn))
        except SpecError as error:
            failed.add(key)
            problems.extend(error.problems)
            continue
        problems.extend(check_against(file, point.scenario, labs[key], _fault_findings))
    if problems:
        raise SpecError(in_file_order(dict.fromkeys(problems)))
    text = "\n" in str(scenario)
    source = None if text else SweepSource(file=Path(scenario).absolute(), overrides=overrides, only=only)
    return Sweep(scenario=sweep, points=points, labs=labs, reader=FileReader(file), source=source)


def read_sweep_for(
    lab: Lab, scenario: str | Path, overrides: Mapping[str, object] = NOTHING, only: Mapping[str, object] = NOTHING
) -> Sweep:
    """Read a scenario that is going to run on a lab which is there: its own topology is not looked at.

    What is recorded as the topology is the one that the lab was deployed from. Raises `SpecError` where the scenario
    asks for hosts, ports or classes that the lab does not have, and `ScenarioError` where its matrix or `overrides`
    would change the topology.
    """
    file = _read(scenario, overrides, only)
    whole, points = _cut(file, only)
    changed = [key for key in overrides if key in whole.topology.set]
    changed += [key for key in whole.matrix if any(key in point.overrides for point in points)]
    if changed:
        raise ScenarioError(
            f"{', '.join(changed)}: the topology of {lab.name} cannot change, since the lab is up already",
            hint="testbed.run_scenario deploys a lab for every point",
        )
    seen = lab_of_runs(lab)
    problems = [problem for point in points for problem in check_against(file, point.scenario, seen, _fault_findings)]
    if problems:
        raise SpecError(in_file_order(dict.fromkeys(problems)))
    topology = TopologyRef(file=lab.source or lab.name, set={})
    points = tuple(replace(point, scenario=replace(point.scenario, topology=topology)) for point in points)
    return Sweep(
        scenario=replace(whole, topology=topology),
        points=points,
        labs={topology_key(topology): seen},
        reader=FileReader(file),
    )


def _fault_findings(faults: Sequence[Fault], lab: Lab) -> Iterable[tuple[int, Finding]]:
    """Find what faults ask of a lab that it does not have. Most have none, and the module of faults is large."""
    if not faults:
        return ()
    from testbed.run.faults.registry import findings_of_all

    return findings_of_all(faults, lab)


def _read(scenario: str | Path, overrides: Mapping[str, object], only: Mapping[str, object]) -> ScenarioFile:
    if "\n" in str(scenario):
        return load_scenario_text(str(scenario), file="<text>", overrides=overrides, only=only)
    return read_scenario(Path(scenario), overrides, only)


def _cut(file: ScenarioFile, only: Mapping[str, object]) -> tuple[Scenario, tuple[Point, ...]]:
    """The points that were read, and the scenario with the expectations that they suffice for."""
    scenario, points = file.scenario, plan_points(file.scenario)
    return replace(scenario, expect=judgeable(scenario.expect, points)) if only else scenario, points
