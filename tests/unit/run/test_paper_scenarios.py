"""The scenarios of the gallery of papers are right, can be run, and stand in the gallery with their source."""

import re
import sys
from pathlib import Path

import pytest

from testbed.lab.core.plan.lab import plan_lab
from testbed.run.placed.lab import PlannedLab
from testbed.run.placed.traffic import make_traffic
from testbed.run.schema.file import load_scenario_topology
from testbed.run.schema.model import TopologyRef
from testbed.run.simulated.support import check_supported
from testbed.run.sweeps import read_sweep

ROOT = Path(__file__).parents[3]
SCENARIOS = sorted((ROOT / "scenarios" / "papers").glob("*.yml"))


def test_there_are_enough() -> None:
    assert len(SCENARIOS) >= 12


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_paper_is_a_scenario_that_can_be_run_and_says_what_it_expects(path: Path) -> None:
    sweep = read_sweep(path)
    check_supported(sweep)
    scenario = sweep.scenario
    assert scenario.name == path.stem
    assert scenario.description and path.read_text().startswith("# ")
    assert scenario.expect and all(item.source for item in scenario.expect)
    for item in scenario.expect:
        assert item.metric == "drops" or re.search(r"\d", item.source), f"{item.metric}: a paper's figure, or theory"
    for point in sweep.points:
        model = load_scenario_topology(point.scenario.topology)
        traffic = make_traffic(point.scenario, PlannedLab(model=model, plan=plan_lab(model, slot=0, k=1000.0)), seed=1)
        assert traffic.workload.transfers or point.scenario.workload.duration is not None


@pytest.mark.parametrize("path", sorted((ROOT / "topologies" / "papers").glob("*.yml")), ids=lambda path: path.stem)
def test_a_topology_of_a_paper_is_right_and_used(path: Path) -> None:
    model = load_scenario_topology(TopologyRef(file=str(path)))
    assert model.name == path.stem
    assert any(path.name in scenario.read_text() for scenario in SCENARIOS)


def test_the_gallery_has_each_of_them_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs/_ext")
    from gallery import PAGE, sections

    found = sections(PAGE.read_text())
    sys.modules.pop("gallery")
    assert [section.number for section in found] == [*range(1, len(found) + 1)]
    assert all(section.verdict and "**Figures from:**" in section.text for section in found)
    named = [name for section in found for name in section.scenarios]
    assert len(set(named)) == len(named)
    assert {path.stem for path in SCENARIOS} <= set(named)
    shipped = {path.stem for path in ROOT.glob("scenarios/*.yml")}
    assert set(named) <= shipped | {path.stem for path in SCENARIOS}
