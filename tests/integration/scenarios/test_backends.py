"""Shipped scenarios on both backends: what an emulated lab and the simulator say must lie in a stated band.

Both have the same plan, traffic, seeds and endpoints. What is compared is a share or a ratio, so that the time scale
is no part of it. The emulation may be up to a quarter slower or faster: it schedules on a shared machine, its ports
send in bursts, and its endpoints hand packets to a NIC ahead of time.

One emulation in the band is enough. One outside may have met a moment that no trust check knows of: then it is run
again, and each point is judged by the median of all valid emulations, never by the best.
"""

import pytest
from scenario_runs import ScenarioRuns, in_band, simulation_over_emulation

from testbed.record.record import Backend, Outcome

IN_CI = ("incast-trimming",)
"""The others run with `--everything`."""
BAND = (0.75, 1.25)
"""Simulation over emulation."""
METRICS = {
    "incast-trimming": "tail_fct_ratio",
    "incast-lossless": "tail_fct_ratio",
    "non-blocking-pod": "tail_fct_ratio",
    "rail-alignment": "busbw_share",
    "ecmp-against-spraying": "aggregate_share",
    "pfc-victim": "victim_share",
    "roce-allreduce": "busbw_share",
}
"""What each of the scenarios is about, by its name."""
TRIES = 3
"""Of an emulation, where one is invalid or lies outside of the band."""

pytestmark = [pytest.mark.scenarios, pytest.mark.netns, pytest.mark.frr, pytest.mark.timeout(1200)]
pytestmark.append(pytest.mark.may_skip)  # a machine that others use may have no valid run to compare with


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in IN_CI else [pytest.mark.thorough]) for name in METRICS]
)
def test_both_backends_say_the_same_within_the_band(name: str, scenario_runs: ScenarioRuns) -> None:
    (simulated,) = scenario_runs.all_of(name, Backend.SIMULATION)
    assert simulated.outcome is Outcome.PASS, simulated.why
    ratios = simulation_over_emulation(scenario_runs, name, METRICS[name], band=BAND, tries=TRIES)
    emulated = scenario_runs.all_of(name, Backend.EMULATION)
    if not ratios:
        pytest.skip(f"no valid emulation in {TRIES} tries: {emulated[-1].why}")
    print(f"{name}: {METRICS[name]}, simulation over emulation, of {len(emulated)} runs: {ratios}")
    assert in_band(ratios, BAND), ratios
