"""The tables of the gallery of papers are made from the records of runs."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from testbed.record.record import Backend, Environment, ExpectationResult, Outcome
from testbed.record.steady import Steadiness, SteadyRun

ROOT = Path(__file__).parents[3]
PAGE = """# Papers

<!-- gallery: begin -->
<!-- gallery: end -->

## 1. A paper, [figure 7](x.md): more

* **Carries over:** yes

<!-- more: begin -->
<!-- more: end -->

## 2. Another: less

* **Carries over:** no: links are too short

<!-- less: begin -->

Simulated: 3 of 3 runs pass.

<!-- less: end -->
"""


@pytest.fixture
def gallery(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(ROOT / "docs/_ext")
    import gallery as found

    yield found
    sys.modules.pop("gallery")


def runs(backend: Backend, *measured: float, most: float | None = None) -> Steadiness:
    """Runs of the scenario "more", whose figure is to be 1.2 at least, and at most so much."""
    found = []
    for seed, value in enumerate(measured, 1):
        outcome = Outcome.PASS if value >= 1.2 else Outcome.FAIL
        expectation = ExpectationResult(
            metric="busbw", minimum=1.2, maximum=most, source="figure 7", measured=value, outcome=outcome, point="qps=4"
        )
        found.append(SteadyRun(directory=str(seed), seed=seed, verdict=outcome, reasons=[], expectations=[expectation]))
    environment = Environment.__new__(Environment)
    return Steadiness(
        scenario="more", backend=backend, environment=environment, started="", planned=3, same_seed=False, runs=found
    )


def test_runs_become_a_table_of_their_scenario_and_a_row_of_all(gallery: ModuleType) -> None:
    page = gallery.with_results(PAGE, [runs(Backend.SIMULATION, 1.3, 1.5), runs(Backend.EMULATION, 1.1, 1.4)])
    assert "Simulated: 2 of 2 runs pass.\nEmulated: 1 of 2 runs pass.\n" in page
    assert "| `busbw` at `qps=4` | at least 1.2 | 1.4 (1.3 to 1.5) | 1.25 (1.1 to 1.4) |" in page
    assert "| 1 | A paper, figure 7: more | `more` | 2 of 2 runs pass | 1 of 2 runs pass | yes |" in page
    assert "| 2 | Another: less | `less` | 3 of 3 runs pass | not run | no |" in page


def test_what_was_not_run_again_keeps_its_table(gallery: ModuleType) -> None:
    once = gallery.with_results(PAGE, [runs(Backend.SIMULATION, 1.3)])
    assert gallery.with_results(once, []) == once


def test_a_backend_that_was_not_run_again_keeps_its_column(gallery: ModuleType) -> None:
    both = gallery.with_results(PAGE, [runs(Backend.SIMULATION, 1.3, 1.5), runs(Backend.EMULATION, 1.1, 1.4)])
    again = gallery.with_results(both, [runs(Backend.EMULATION, 1.25)])
    assert "Simulated: 2 of 2 runs pass.\nEmulated: 1 of 1 runs pass.\n" in again
    assert "| `busbw` at `qps=4` | at least 1.2 | 1.4 (1.3 to 1.5) | 1.25 |" in again
    assert "| `more` | 2 of 2 runs pass | 1 of 1 runs pass | yes |" in again
    assert gallery.with_results(again, [runs(Backend.SIMULATION, 1.3, 1.5)]) == again


def test_results_of_other_expectations_are_not_kept(gallery: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    once = gallery.with_results(PAGE, [runs(Backend.SIMULATION, 1.3)]).replace("at least 1.2", "at least 1.1")
    again = gallery.with_results(once, [runs(Backend.EMULATION, 1.25)])
    assert "Emulated: 1 of 1 runs pass.\n\n| expectation | band | emulated |" in again and "Simulated: 1" not in again
    assert "more: it expects something else than when it was simulated" in capsys.readouterr().err


def test_runs_that_were_cut_short_take_no_figures_of_another_backend_along(
    gallery: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    once = gallery.with_results(PAGE, [runs(Backend.SIMULATION, 1.3)])
    cut = runs(Backend.EMULATION)
    cut.runs.append(SteadyRun(directory="1", seed=1, verdict=Outcome.INVALID, reasons=["cut"], expectations=[]))
    again = gallery.with_results(once, [cut])
    assert "Simulated: 1 of 1 runs pass.\nEmulated: 0 of 1 runs pass, 1 invalid.\n" in again
    assert "| `busbw` at `qps=4` | at least 1.2 | 1.3 |  |" in again
    assert not capsys.readouterr().err


def test_bands_around_oracles_differ_by_backend_and_their_columns_stay(
    gallery: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gallery, "SCENARIOS", tmp_path)
    shipped = tmp_path / "more.yml"
    shipped.write_text("expect: [{metric: busbw, within: oracle, tolerance: 8pp, source: figure 7}]")
    once = gallery.with_results(PAGE, [runs(Backend.SIMULATION, 1.3, most=1.4)])
    both = gallery.with_results(once, [runs(Backend.EMULATION, 1.4, most=1.5)])
    row = "| `busbw` at `qps=4` | within 8pp of the oracle | 1.3, expected 1.2 to 1.4 | 1.4, expected 1.2 to 1.5 |"
    assert "Simulated: 1 of 1 runs pass.\nEmulated: 1 of 1 runs pass.\n" in both and row in both
    assert not capsys.readouterr().err
    shipped.write_text(shipped.read_text().replace("8pp", "5pp"))
    assert "Simulated: 1" not in gallery.with_results(both, [runs(Backend.EMULATION, 1.4, most=1.5)])
    assert "more: it expects something else than when it was simulated" in capsys.readouterr().err
