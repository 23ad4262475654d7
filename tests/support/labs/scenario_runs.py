"""Runs of the shipped scenarios, shared by all tests of a session, and what several runs of one say together."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.record.record import Backend, Outcome
from testbed.record.store import load_record

SCENARIOS = Path(__file__).parents[3] / "scenarios"
TIMEOUT_S = 300.0
"""The longest time that one run may take by the clock (s)."""
NOT_SIMULATED: Mapping[str, str] = {
    "fio-depth": "fio at the hosts and nbdkit at the targets",
    "kernel-red": "not by a qdisc of the kernel",
    "program-rank-order": "has no hosts that a program could run on",
    "program-uplinks-fail": "has no hosts that a program could run on",
    "rdma-latency": "rdma is perftest or rsocket",
    "rdma-rail-alignment": "rdma is perftest or rsocket",
    "storage-protocols": "runs no real programs",
}
"""The shipped scenarios that `--backend simulation` refuses, as they are about real programs, and its words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioRun:
    """The outcome of one run of a scenario, `why`, and how long it took by the clock.

    `figures` has the median of each metric, by the name of the point and of the metric; what a point did not measure
    is not there.
    """

    outcome: Outcome
    why: str
    took_s: float
    figures: Mapping[str, Mapping[str, float]]


def run_scenario(name: str, backend: Backend, results: Path) -> ScenarioRun:
    """Run a shipped scenario as a user would. One that ends without a record is an `AssertionError`."""
    argv = [sys.executable, "-m", "testbed", "run", str(SCENARIOS / f"{name}.yml"), "--backend", backend.value]
    argv += ["--results", str(results), "-f", "json", "-q"]
    begin = time.monotonic()
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    took_s = time.monotonic() - begin
    assert done.returncode in (0, 1, 2), done.stderr
    (directory,) = results.iterdir()
    record = load_record(directory)
    assert record.environment.backend == backend
    return ScenarioRun(
        outcome=record.verdict.outcome,
        why="; ".join(record.verdict.reasons),
        took_s=took_s,
        figures={
            point.name: {one.name: one.median for one in point.metrics if one.median is not None}
            for point in record.points
        },
    )


class ScenarioRuns:
    """The runs of this session by scenario and backend, in the order in which they were made.

    A test takes those that others have made before it asks for one more, so that no scenario is run twice for two
    tests that need one run each.
    """

    def __init__(self, directory: Path, runner: Callable[[str, Backend, Path], ScenarioRun] = run_scenario) -> None:
        self._directory = directory
        self._runner = runner
        self._made: dict[tuple[str, Backend], list[ScenarioRun]] = defaultdict(list)

    def all_of(self, name: str, backend: Backend, *, at_least: int = 1) -> list[ScenarioRun]:
        """Return all runs of a scenario on a backend, after making as many as are missing of `at_least`."""
        made = self._made[name, backend]
        while len(made) < at_least:
            directory = self._directory / f"{name.replace('/', '-')}-{backend.value}-{len(made) + 1}"
            made.append(self._runner(name, backend, directory))
        return list(made)


def medians(runs: Sequence[ScenarioRun], metric: str) -> dict[str, float]:
    """Return the median of a metric over all runs, at each point that one of them measured it at."""
    found: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        for point, figures in run.figures.items():
            if metric in figures:
                found[point].append(figures[metric])
    return {point: statistics.median(values) for point, values in found.items()}


def simulation_over_emulation(
    runs: ScenarioRuns, name: str, metric: str, *, band: tuple[float, float], tries: int
) -> dict[str, float]:
    """Return a metric of the simulation over that of the emulation, at each point; nothing without a valid emulation.

    Where the first valid emulation lies outside of the band at any point, all tries are made, and at each point the
    median of all valid ones is taken. None is left out because of what it says.
    """
    simulated = medians(runs.all_of(name, Backend.SIMULATION), metric)
    for made in range(1, tries + 1):
        ratios = _ratios(simulated, valid_of(runs.all_of(name, Backend.EMULATION, at_least=made)), metric)
        if ratios:
            break
    if ratios and not in_band(ratios, band):
        ratios = _ratios(simulated, valid_of(runs.all_of(name, Backend.EMULATION, at_least=tries)), metric)
    return ratios


def valid_of(runs: Sequence[ScenarioRun]) -> list[ScenarioRun]:
    """Return the runs that the trust checks let stand, whatever their verdict is."""
    return [run for run in runs if run.outcome is not Outcome.INVALID]


def in_band(ratios: Mapping[str, float], band: tuple[float, float]) -> bool:
    return all(band[0] <= ratio <= band[1] for ratio in ratios.values())


def _ratios(simulated: Mapping[str, float], emulations: Sequence[ScenarioRun], metric: str) -> dict[str, float]:
    if not emulations:
        return {}
    emulated = medians(emulations, metric)
    assert simulated and simulated.keys() == emulated.keys(), (simulated, emulated)
    return {point: simulated[point] / emulated[point] for point in simulated}
