"""Every shipped scenario that can be simulated runs to its verdict on the simulator, and passes.

Nothing of this machine has a part in it, so no run is repeated. The reference page of what is simulated is made by the
same check that refuses the others (`tests/unit/run/simulated/test_shipped_simulations.py`).
"""

import pytest
from scenario_runs import NOT_SIMULATED, SCENARIOS, ScenarioRuns

from testbed.record.record import Backend, Outcome

SIMULATED = [path.stem for path in sorted(SCENARIOS.glob("*.yml")) if path.stem not in NOT_SIMULATED]
IN_CI = ("whole-datacentre", "scale-up-deadlock", "nic-port-fails", "storage-target-dies")
"""Those of the gate: several transports at once, a domain by packets, and faults under TCP and NVMe/TCP. The others run
with `--everything`."""

pytestmark = [pytest.mark.scenarios, pytest.mark.timeout(600)]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in IN_CI else [pytest.mark.thorough]) for name in SIMULATED]
)
def test_it_is_simulated_to_its_verdict(name: str, scenario_runs: ScenarioRuns) -> None:
    (run, *_) = scenario_runs.all_of(name, Backend.SIMULATION)
    print(f"{name}: {run.outcome.value} in {run.took_s:.0f} s: {run.why}")
    assert run.outcome is Outcome.PASS, run.why
