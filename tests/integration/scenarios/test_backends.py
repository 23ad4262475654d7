"""Shipped scenarios on both backends: what an emulated lab and the simulator say must lie in a stated band.

Both have the same plan, traffic, seeds and endpoints. What is compared is a share or a ratio, so that the time scale
is no part of it. The emulation may be up to a quarter slower or faster: it schedules on a shared machine, its ports
send in bursts, and its endpoints hand packets to a NIC ahead of time.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from testbed.results import Backend, Outcome, Record, load_record

ROOT = Path(__file__).parents[3]
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
"""Of an emulation that is invalid, on a machine that others use."""

pytestmark = [pytest.mark.scenarios, pytest.mark.netns, pytest.mark.frr, pytest.mark.timeout(900)]
pytestmark.append(pytest.mark.may_skip)  # a machine that others use may have no valid run to compare with


def run(name: str, backend: Backend, results: Path) -> Record:
    argv = [sys.executable, "-m", "testbed", "run", str(ROOT / f"scenarios/{name}.yml"), "--backend", backend.value]
    argv += ["--results", str(results), "--no-report", "-q"]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in (0, 1, 2), done.stderr
    (directory,) = results.iterdir()
    return load_record(directory)


def medians(record: Record, metric: str) -> dict[str, float]:
    found = {point.name: one.median for point in record.points for one in point.metrics if one.name == metric}
    return {point: value for point, value in found.items() if value is not None}


@pytest.mark.parametrize("name", METRICS)
def test_both_backends_say_the_same_within_the_band(name: str, tmp_path: Path) -> None:
    simulated = run(name, Backend.SIMULATION, tmp_path / "simulated")
    assert simulated.verdict.outcome is Outcome.PASS, simulated.verdict.reasons
    for attempt in range(TRIES):
        emulated = run(name, Backend.EMULATION, tmp_path / f"emulated{attempt}")
        if emulated.verdict.outcome is not Outcome.INVALID:
            break
    else:
        pytest.skip(f"no valid emulation in {TRIES} tries: {'; '.join(emulated.verdict.reasons)}")
    assert (emulated.environment.backend, simulated.environment.backend) == (Backend.EMULATION, Backend.SIMULATION)
    ours, theirs = medians(simulated, METRICS[name]), medians(emulated, METRICS[name])
    assert ours.keys() == theirs.keys() and ours
    ratios = {point: ours[point] / theirs[point] for point in ours}
    print(f"{name}: {METRICS[name]}, simulation over emulation: {ratios}")
    assert all(BAND[0] <= ratio <= BAND[1] for ratio in ratios.values()), ratios
