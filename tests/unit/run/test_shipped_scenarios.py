"""Every scenario we ship loads, has points whose labs and traffic can be made, and says what it expects and why."""

from pathlib import Path

import pytest

from testbed.lab.core.plan.lab import plan_lab
from testbed.run.faults.registry import findings_of_all
from testbed.run.placed.lab import PlannedLab, lab_of_runs, lab_of_transports
from testbed.run.placed.traffic import make_traffic
from testbed.run.schema.file import load_scenario, load_scenario_topology
from testbed.run.sweep.points import plan_points

SCENARIOS = sorted((Path(__file__).parents[3] / "scenarios").glob("*.yml"))


def test_there_are_enough() -> None:
    assert len(SCENARIOS) >= 16


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_its_points_can_be_run(path: Path) -> None:
    scenario = load_scenario(path)
    assert scenario.name == path.stem
    for point in plan_points(scenario):
        written = load_scenario_topology(point.scenario.topology)
        model = lab_of_transports(lab_of_runs(written), point.scenario.transports)
        lab = PlannedLab(model=model, plan=plan_lab(model, slot=0, k=1000.0))
        for seed in point.scenario.repeat.seeds:
            traffic = make_traffic(point.scenario, lab, seed=seed)
            assert traffic.workload.transfers or traffic.workload.requests
        assert not list(findings_of_all(point.scenario.faults, model))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_it_says_what_it_shows_and_what_is_expected(path: Path) -> None:
    scenario = load_scenario(path)
    assert scenario.description or path.read_text().startswith("# ")
    assert scenario.expect and all(item.source for item in scenario.expect)
