"""Every shipped scenario that can be simulated runs to its verdict on the simulator, and passes.

Nothing of this machine has a part in it, so no run is repeated. The reference page of what is simulated is made by the
same check that refuses the others (`tests/unit/run/simulated/test_shipped_simulations.py`).
"""

import subprocess
import sys
from pathlib import Path

import pytest
from scenario_runs import NOT_SIMULATED, SCENARIOS, ScenarioRuns

from testbed.record.record import Backend, Outcome

SIMULATED = [path.stem for path in sorted(SCENARIOS.glob("*.yml")) if path.stem not in NOT_SIMULATED]
PAPERS = [path.stem for path in sorted((SCENARIOS / "papers").glob("*.yml"))]
SEEDS = 5
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


@pytest.mark.thorough
@pytest.mark.parametrize("name", [*SIMULATED, *(f"papers/{name}" for name in PAPERS)])
def test_its_bands_hold_whatever_the_seed(name: str, tmp_path: Path) -> None:
    """What a seed draws (arrivals, paths, losses) is no reason for a verdict, though the file has one seed alone."""
    argv = [sys.executable, "-m", "testbed", "run", str(SCENARIOS / f"{name}.yml"), "--backend", "simulation"]
    argv += ["--steady", str(SEEDS), "-q", "--no-report", "-o", str(tmp_path)]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, [line for line in done.stdout.splitlines() if ": fail" in line] or done.stderr
