"""How steady figures are: estimates against tables in print, rows from runs, and the page that they make."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.base.errors import RecordError
from testbed.base.rows import row_json
from testbed.record.record import Backend, Environment, ExpectationResult, Outcome
from testbed.record.report.steadiness.page import steadiness_markdown, with_table
from testbed.record.report.steadiness.rows import (
    chance_below_zero,
    chance_of_any,
    clopper_pearson_upper,
    steady_rows,
    student_upper_tail,
)
from testbed.record.steady import STEADY_FILE, Steadiness, SteadyRun, find_steadiness, load_steadiness, write_steadiness
from testbed.record.store import RECORD_FILE, write_record
from tests.support.reports import recorded

RECORD = recorded.load(recorded.NAMES[0])
ENVIRONMENT = Environment(
    testbed="1.0", python="3.11", kernel="6.12", distribution=None, cpu_model="Xeon", cores=2, memory_bytes=None,
    iperf3=None, frr=None, git_commit=None, approximations=[],
)  # fmt: skip


@pytest.mark.parametrize(
    ("t", "degrees", "tail"),
    [
        (6.313752, 1, 0.05), (2.919986, 2, 0.05), (3.182446, 3, 0.025), (2.776445, 4, 0.025), (3.249836, 9, 0.005),
        (2.262157, 9, 0.025), (2.228139, 10, 0.025), (3.169273, 10, 0.005), (-2.228139, 10, 0.975), (0.0, 7, 0.5),
    ],
)  # fmt: skip
def test_students_t_as_in_print(t: float, degrees: int, tail: float) -> None:
    assert student_upper_tail(t, degrees) == pytest.approx(tail, rel=1e-5)


@pytest.mark.parametrize(
    ("events", "trials", "bound"),
    [(0, 10, 1 - 0.05 ** (1 / 10)), (1, 10, 0.39416), (0, 598, 0.004997), (10, 10, 1.0), (5, 10, 0.77756)],
)
def test_the_bound_of_clopper_and_pearson(events: int, trials: int, bound: float) -> None:
    assert clopper_pearson_upper(events, trials) == pytest.approx(bound, abs=2e-5)


def test_a_margin_of_so_many_deviations_has_this_chance() -> None:
    """Ten margins with a mean of 3.2498 sqrt(1.1) deviations: Student's t of 9 degrees leaves half a percent."""
    around = [-1.0, 1.0] * 5
    spread = (10 / 9) ** 0.5
    margins = [one + 3.249836 * spread * 1.1**0.5 for one in around]
    assert chance_below_zero(margins) == pytest.approx(0.005, rel=1e-4)
    assert chance_below_zero([-one for one in margins]) == pytest.approx(0.995, rel=1e-4)
    assert chance_below_zero([0.0, 0.0]) == 0 and chance_below_zero([-1.0, -1.0]) == 1
    assert chance_below_zero([1.0]) is None


def expectation(
    measured: float | None,
    *,
    metric: str = "jct_ratio",
    low: float | None = None,
    high: float | None = 1.5,
    point: str = "",
) -> ExpectationResult:
    outcome = Outcome.PASS if measured is not None else Outcome.INVALID
    if measured is not None and high is not None and measured > high:
        outcome = Outcome.FAIL
    return ExpectationResult(
        metric=metric, minimum=low, maximum=high, source="", measured=measured, outcome=outcome, point=point
    )


def steadiness(
    *runs: list[ExpectationResult], scenario: str = "s", untrusted: dict[int, str] | None = None
) -> Steadiness:
    broken = untrusted or {}
    return Steadiness(
        scenario=scenario, backend=Backend.EMULATION, environment=ENVIRONMENT, started="2026-11-21T00:00:00.000Z",
        planned=len(runs), same_seed=True,
        runs=[
            SteadyRun(
                directory=f"r{number}", seed=1, reasons=[], expectations=items,
                verdict=Outcome.INVALID if number in broken else Outcome.PASS,
                untrusted=[broken[number]] if number in broken else [],
            )
            for number, items in enumerate(runs)
        ],
    )  # fmt: skip


def test_how_figures_lie_in_their_band() -> None:
    [row] = steady_rows([steadiness(*([expectation(value, low=1.0)] for value in (1.1, 1.2, 1.3)))])
    assert (row.count, row.mean, row.stdev) == (3, pytest.approx(1.2), pytest.approx(0.1))
    assert (row.least, row.most, row.minimum, row.maximum) == (1.1, 1.3, 1.0, 1.5)
    assert row.distance == pytest.approx(3.0), "1 is the ideal of the ratio, and cannot be missed by being better"
    assert row.chance == pytest.approx(student_upper_tail(3 / (4 / 3) ** 0.5, 2))
    assert row.fails == 0 and row.fails_at_most == pytest.approx(1 - 0.05 ** (1 / 3))


def test_what_never_varies_is_never_or_always_beyond() -> None:
    for value, distance in ((1.2, math.inf), (1.8, -math.inf)):
        [row] = steady_rows([steadiness(*([expectation(value)] for _ in range(3)))])
        assert row.distance == distance
        assert row_json(row)["distance_sd"] is None, "there is no infinity in JSON"


def test_both_limits_count_and_an_oracles_band_moves_with_the_seed() -> None:
    values = (5.0, 5.2, 5.4)
    [row] = steady_rows([steadiness(*([expectation(v, metric="jct", low=v - 1, high=v + 2)] for v in values))])
    assert row.chance == 0 and row.minimum == pytest.approx(4.2), "margins are the same each time"
    [row] = steady_rows([steadiness(*([expectation(v, metric="jct", low=4.9, high=5.5)] for v in values))])
    assert row.distance == pytest.approx(1.5)
    assert row.chance == pytest.approx(2 * student_upper_tail(1.5 / (4 / 3) ** 0.5, 2))


def test_what_cannot_be_trusted_is_counted_and_has_no_figure() -> None:
    def of(a: float, b: float) -> list[ExpectationResult]:
        ratio = expectation(b / a, metric="jct over that of n=1", point="n=2", high=3.0)
        return [expectation(a, point="n=1", high=2.0), expectation(b, point="n=2", high=2.5), ratio]

    found = steadiness(of(1.0, 2.0), of(1.1, 9.9), of(1.2, 2.6), untrusted={1: "n=2"})
    one, two, ratio = steady_rows([found, steadiness(of(1.3, 2.4))])
    assert (one.count, two.count, ratio.count) == (4, 3, 3), "a ratio needs both points"
    assert (two.fails, two.most, one.invalid, one.runs) == (1, 2.6, 1, 4)
    assert chance_of_any([replace(one, chance=None), two])["s", "emulation"] == 1, "one run says nothing of the next"
    assert chance_of_any([one, two, ratio])["s", "emulation"] == pytest.approx(
        sum(row.chance or 0 for row in (one, two, ratio))
    )


def test_a_page_gets_the_table_between_its_marks(tmp_path: Path) -> None:
    found = [steadiness(*([expectation(value)] for value in (1.1, 1.2, 1.3)))]
    page = "# Title\n\nBefore.\n\n<!-- steady: begin -->\nold\n<!-- steady: end -->\n\nAfter.\n"
    text = with_table(page, steadiness_markdown(found, steady_rows(found)))
    assert text.startswith("# Title\n\nBefore.\n\n") and text.endswith("\n\nAfter.\n") and "old" not in text
    assert "Measured on 2026-11-21 on 2 x Xeon, kernel 6.12, testbed 1.0." in text
    assert "| `s` | emulation | 3 | 0 | 0 |" in text
    assert "| `s` | `jct_ratio` | at most 1.5 | 3 | 1.2 | 0.1 | 1.1 to 1.3 | 3 |" in text
    assert with_table(text, steadiness_markdown(found, steady_rows(found))) == text, "twice is once"
    with pytest.raises(RecordError, match="no place for the table"):
        with_table("# Title\n", "")


def test_what_was_measured_is_found_below_a_directory(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        write_steadiness(steadiness([expectation(1.0)], scenario=name), tmp_path / name)
    assert [one.scenario for one in find_steadiness([tmp_path])] == ["a", "b"]
    assert load_steadiness(tmp_path / "b") == load_steadiness(tmp_path / "b" / STEADY_FILE)
    (tmp_path / "a" / STEADY_FILE).write_text("{}")
    with pytest.raises(RecordError, match="not to this version"):
        find_steadiness([tmp_path])
    with pytest.raises(RecordError, match="cannot read") as caught:
        load_steadiness(tmp_path / "c")
    assert "--steady 10" in (caught.value.hint or "")


def test_records_of_single_runs_are_runs_of_their_scenario(tmp_path: Path) -> None:
    steady = tmp_path / "steady"
    for directory in (*(tmp_path / f"pass{number}" / "some" for number in range(3)), steady / "run1"):
        directory.mkdir(parents=True)
        write_record(RECORD, directory / RECORD_FILE)
    write_steadiness(steadiness([expectation(1.0)], scenario="of-its-own"), steady)
    own, gathered = find_steadiness([tmp_path])
    assert (own.scenario, len(own.runs)) == ("of-its-own", 1)
    assert (gathered.scenario, gathered.planned) == (RECORD.scenario.name, 3)
    assert [Path(run.directory).parent.name for run in gathered.runs] == ["pass0", "pass1", "pass2"]
    assert gathered.same_seed
