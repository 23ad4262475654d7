"""The scenarios of the gallery of papers, run to their verdict."""

import pytest
from scenario_runs import SCENARIOS, ScenarioRuns

from testbed.record.record import Backend, Outcome

EMULATED = ("hpn-link-fails",)
"""Those that run on a lab as well."""
PAPERS = [path.stem for path in sorted((SCENARIOS / "papers").glob("*.yml"))]

pytestmark = [pytest.mark.scenarios, pytest.mark.thorough, pytest.mark.timeout(600), pytest.mark.may_skip]


@pytest.mark.parametrize("name", PAPERS)
def test_a_paper_carries_over_to_the_simulator(name: str, scenario_runs: ScenarioRuns) -> None:
    (run, *_) = scenario_runs.all_of(f"papers/{name}", Backend.SIMULATION)
    assert run.outcome is Outcome.PASS, run.why


@pytest.mark.netns
@pytest.mark.frr
@pytest.mark.parametrize("name", EMULATED)
def test_a_paper_carries_over_to_a_lab(name: str, scenario_runs: ScenarioRuns) -> None:
    (run, *_) = scenario_runs.all_of(f"papers/{name}", Backend.EMULATION)
    if run.outcome is Outcome.INVALID:
        pytest.skip(f"the machine was too busy: {run.why}")
    assert run.outcome is Outcome.PASS, run.why
