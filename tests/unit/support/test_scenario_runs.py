"""What several runs of a scenario say together: `tests/support/labs/scenario_runs.py`."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from scenario_runs import ScenarioRun, ScenarioRuns, in_band, medians, simulation_over_emulation

from testbed.record.record import Backend, Outcome

BAND = (0.75, 1.25)
TRIES = 3


def run(share: float, outcome: Outcome = Outcome.PASS, *, steady: float = 1.0) -> ScenarioRun:
    """A run of two points, of which one says the same each time."""
    return ScenarioRun(
        outcome=outcome, why="", took_s=1.0, figures={"noisy": {"share": share}, "steady": {"share": steady}}
    )


class Recorder:
    """Hands out prepared emulations, and one simulation, whose shares are all 1."""

    def __init__(self, *emulations: ScenarioRun) -> None:
        self._emulations: Iterator[ScenarioRun] = iter(emulations)
        self.emulated = 0
        self.simulated = 0
        self.directories: list[Path] = []

    def __call__(self, name: str, backend: Backend, results: Path) -> ScenarioRun:
        self.directories.append(results)
        if backend is Backend.SIMULATION:
            self.simulated += 1
            return run(1.0)
        self.emulated += 1
        return next(self._emulations)


def ratios(recorder: Recorder) -> dict[str, float]:
    runs = ScenarioRuns(Path("/nowhere"), recorder)
    return simulation_over_emulation(runs, "some", "share", band=BAND, tries=TRIES)


def test_a_run_that_was_made_is_not_made_again() -> None:
    recorder = Recorder(run(1.0), run(2.0))
    runs = ScenarioRuns(Path("/nowhere"), recorder)
    (first,) = runs.all_of("some", Backend.EMULATION)
    assert runs.all_of("some", Backend.EMULATION) == [first]
    assert recorder.emulated == 1
    assert runs.all_of("some", Backend.EMULATION, at_least=2)[0] is first
    assert (recorder.emulated, recorder.simulated) == (2, 0)
    assert len(set(recorder.directories)) == 2, "each has results of its own"


def test_one_emulation_in_the_band_is_enough() -> None:
    recorder = Recorder(run(0.9))
    assert ratios(recorder) == {"noisy": pytest.approx(1 / 0.9), "steady": 1.0}
    assert (recorder.emulated, recorder.simulated) == (1, 1)


def test_one_outside_is_judged_by_the_median_of_all_tries() -> None:
    recorder = Recorder(run(0.5), run(0.98), run(0.9))
    found = ratios(recorder)
    assert recorder.emulated == TRIES, "a second that is good does not end it"
    assert found["noisy"] == pytest.approx(1 / 0.9)
    assert in_band(found, BAND)


def test_the_best_of_them_does_not_save_the_others() -> None:
    recorder = Recorder(run(0.5), run(0.6), run(1.0))
    assert not in_band(ratios(recorder), BAND)
    recorder = Recorder(run(1.0, steady=0.5), run(0.5), run(0.5))
    assert ratios(recorder) == {"noisy": 2.0, "steady": 1.0}, "a point that was good at first is judged by all, too"


def test_what_is_invalid_has_no_say() -> None:
    recorder = Recorder(run(0.1, Outcome.INVALID), run(0.9))
    assert ratios(recorder)["noisy"] == pytest.approx(1 / 0.9)
    assert recorder.emulated == 2
    recorder = Recorder(run(0.5), run(0.1, Outcome.INVALID), run(0.7))
    assert ratios(recorder)["noisy"] == pytest.approx(1 / 0.6), "of two: between them"
    recorder = Recorder(*(run(0.9, Outcome.INVALID) for _ in range(TRIES)))
    assert (ratios(recorder), recorder.emulated) == ({}, TRIES)


def test_a_verdict_that_fails_is_measured_all_the_same() -> None:
    assert ratios(Recorder(run(0.9, Outcome.FAIL)))["noisy"] == pytest.approx(1 / 0.9)


def test_a_point_that_one_backend_lacks_is_told() -> None:
    lacking = ScenarioRun(outcome=Outcome.PASS, why="", took_s=1.0, figures={"noisy": {"share": 1.0}, "steady": {}})
    assert medians([lacking], "share") == {"noisy": 1.0}
    with pytest.raises(AssertionError, match="steady"):
        ratios(Recorder(lacking))
