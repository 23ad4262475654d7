"""The scenarios of the gallery of papers, simulated to their verdict."""

from __future__ import annotations

import pytest
from scenario_runs import SCENARIOS, ScenarioRuns

from testbed.record.record import Backend, Outcome

pytestmark = [pytest.mark.scenarios, pytest.mark.thorough, pytest.mark.timeout(600)]


@pytest.mark.parametrize("name", [path.stem for path in sorted((SCENARIOS / "papers").glob("*.yml"))])
def test_a_paper_carries_over(name: str, scenario_runs: ScenarioRuns) -> None:
    (run, *_) = scenario_runs.all_of(f"papers/{name}", Backend.SIMULATION)
    assert run.outcome is Outcome.PASS, run.why
