"""Every shipped scenario that this machine can run is run as a user would, and passes.

Those whose head says `--on vm` need the lab VM's kernel (RDMA, RED, DCTCP): tests/integration/vm runs them there.

A run on a machine that was overrun is invalid and says nothing; one that fails may have met a moment that no trust
check knows of. A failure is run again, twice at most: what fails each time fails here. What is invalid is run once
more as long as there is time for it, and shown.
"""

import warnings

import pytest
from scenario_runs import SCENARIOS, ScenarioRuns

from testbed.record.record import Backend, Outcome

HERE = [path.stem for path in sorted(SCENARIOS.glob("*.yml")) if "# testbed --on vm run" not in path.read_text()]
IN_CI = ("incast-trimming", "rail-switch-fails", "whole-datacentre")
"""Those of the gate: a transport with trimming, a failure, all networks at once; the others run with `--everything`,
and programs of MPI in `netns/test_program_scenarios.py`."""
LONGEST_S = 60
"""Of a scenario, in wall-clock time; twice that on a machine that others use too."""
SECOND_CHANCES_S = 60.0
"""All repeats of invalid runs together: on a machine that others use all the time they would only be invalid again."""

pytestmark = [pytest.mark.scenarios, pytest.mark.netns, pytest.mark.frr, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def chances() -> list[float]:
    """How long each repeat of an invalid run took."""
    return []


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in IN_CI else [pytest.mark.thorough]) for name in HERE]
)
def test_it_passes(name: str, scenario_runs: ScenarioRuns, chances: list[float]) -> None:
    (run, *_) = scenario_runs.all_of(name, Backend.EMULATION)
    for attempt in (2, 3):
        invalid = run.outcome is Outcome.INVALID
        if run.outcome is Outcome.PASS or (invalid and (attempt > 2 or sum(chances) > SECOND_CHANCES_S)):
            break
        print(f"{name}: {run.outcome.value}: {run.why}: once more")
        run = scenario_runs.all_of(name, Backend.EMULATION, at_least=attempt)[attempt - 1]
        if invalid:
            chances.append(run.took_s)
    assert run.outcome is not Outcome.FAIL, run.why
    if run.outcome is Outcome.INVALID:
        warnings.warn(f"{name} cannot be judged here: {run.why}", stacklevel=1)
    else:
        assert run.took_s < 2 * LONGEST_S
    print(f"{name}: {run.outcome.value} in {run.took_s:.0f} s")
