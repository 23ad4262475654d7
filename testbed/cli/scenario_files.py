"""Scenario files that a command line names: read, checked against their topologies, cut down to the points wanted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from testbed.cli.labs import parse_settings
from testbed.errors import Problem, SpecError
from testbed.model import Lab
from testbed.model.scenario import Scenario
from testbed.scenario.faults.registry import fault_findings
from testbed.scenario.sweep.points import Point, judgeable, plan_points, select_points, topology_key
from testbed.spec.scenario.against_lab import check_against
from testbed.spec.scenario.file import ScenarioFile, read_scenario
from testbed.spec.validation.engine import in_file_order


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """A scenario, the points of it that are to be run, and the labs that they run on by `topology_key`."""

    file: ScenarioFile
    scenario: Scenario
    points: tuple[Point, ...]
    labs: Mapping[str, Lab]

    def lab_of(self, point: Point) -> Lab:
        return self.labs[topology_key(point.topology)]


def read_sweeps(
    files: Sequence[Path],
    settings: Sequence[str] = (),
    *,
    seed: int | None = None,
    repeat: int | None = None,
    only: Sequence[str] = (),
) -> list[Sweep]:
    """Every file with its topologies. Touches nothing. Raises `SpecError` with the problems of all files."""
    overrides = parse_settings(list(settings))
    if seed is not None:
        overrides["repeat.seed"] = seed
    if repeat is not None:
        overrides["repeat.runs"] = repeat
    wanted = parse_settings(list(only))
    sweeps: list[Sweep] = []
    problems: list[Problem] = []
    for path in files:
        try:
            sweeps.append(_read_sweep(path, overrides, wanted))
        except SpecError as error:
            problems.extend(error.problems)
    if problems:
        raise SpecError(list(dict.fromkeys(problems)))
    return sweeps


def is_scenario(path: Path) -> bool:
    """Whether a file is one by its keys. Raises `SpecError` for what is no mapping in YAML."""
    from testbed.spec import read_document

    return "workload" in read_document(path).data


def _read_sweep(path: Path, overrides: Mapping[str, object], only: Mapping[str, object]) -> Sweep:
    file = read_scenario(path, overrides)
    scenario, points = file.scenario, plan_points(file.scenario)
    if only:
        chosen = select_points(points, only)
        scenario = replace(scenario, expect=judgeable(scenario.expect, chosen))
        points = tuple(replace(point, index=index) for index, point in enumerate(chosen, start=1))
    labs: dict[str, Lab] = {}
    failed: set[str] = set()
    problems: list[Problem] = []
    for point in points:
        key = topology_key(point.topology)
        if key in failed:
            continue
        try:
            if key not in labs:
                labs[key] = file.load_lab(point.scenario)
        except SpecError as error:
            failed.add(key)
            problems.extend(error.problems)
            continue
        problems.extend(check_against(file, point.scenario, labs[key], fault_findings))
    if problems:
        raise SpecError(in_file_order(dict.fromkeys(problems)))
    return Sweep(file=file, scenario=scenario, points=points, labs=labs)
