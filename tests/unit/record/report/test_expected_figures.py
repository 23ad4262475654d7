"""What scenarios expect something of, simulated beside emulated: what agrees, what does not, and what says nothing."""

from dataclasses import replace
from typing import Any

import pytest
from recorded import load, with_runs

from testbed.record.record import Backend, ExpectationResult, Outcome, Record
from testbed.record.report.comparison.expected import ExpectedRow, expected_markdown, expected_rows


@pytest.fixture(scope="module")
def base() -> Record:
    return load("permutation-lb")


def judged(record: Record, *values: float, backend: Backend = Backend.EMULATION, **changes: Any) -> list[Record]:
    """Records whose first expectation was measured so, one for each value."""
    first = record.expectations[0]
    found = []
    for value in values:
        missed = first.maximum is not None and value > first.maximum
        outcome = Outcome.FAIL if missed else Outcome.PASS
        item: ExpectationResult = replace(first, measured=value, outcome=outcome, **changes)
        environment = replace(record.environment, backend=backend)
        found.append(replace(record, expectations=[item], environment=environment))
    return found


def rows_of(base: Record, emulated: list[float], simulated: list[float]) -> list[ExpectedRow]:
    return expected_rows([*judged(base, *emulated), *judged(base, *simulated, backend=Backend.SIMULATION)])


def test_a_figure_among_the_emulated_runs_agrees(base: Record) -> None:
    [row] = rows_of(base, [0.65, 0.68, 0.75], [0.74])
    assert (row.emulated, row.least, row.most, row.emulated_runs) == (0.68, 0.65, 0.75, 3)
    assert (row.simulated, row.simulated_runs, row.passes) == (0.74, 1, 1)
    assert row.ratio == pytest.approx(0.74 / 0.68) and row.distance == 0.0
    text = expected_markdown([row])
    assert "| `permutation-lb` | 3, 1 | 1 | 1 | 1 | 1 | 1 | 1 | 1 | 5% |" in text


def test_one_beside_them_has_the_narrowest_band_that_holds_it(base: Record) -> None:
    [row] = rows_of(base, [0.70, 0.70, 0.70], [0.764])
    assert row.distance == pytest.approx(0.064 / 0.7)
    assert "| 3, 1 | 1 | 1 | 0 | 0 | 1 | 1 | 1 | 10% |" in expected_markdown([row])


def test_one_that_is_far_is_named_with_both_figures(base: Record) -> None:
    [row] = rows_of(base, [0.60, 0.62], [0.95])
    assert row.passes == 0, "0.764 is the most"
    text = expected_markdown([row])
    assert "| exceptions below |" in text
    assert (
        "| `permutation-lb` | `aggregate_share` at `mode=flow` | 0.604 to 0.764 | 0.61 (0.6 to 0.62) | 0.95 |" in text
    )


def test_one_that_was_0_where_it_was_emulated_has_no_ratio(base: Record) -> None:
    [row] = rows_of(base, [0.0, 0.0], [0.1])
    assert row.ratio is None and row.distance == float("inf")
    [same] = rows_of(base, [0.0, 0.0], [0.0])
    assert same.ratio == 1.0 and same.distance == 0.0


def test_times_are_those_of_the_real_fabric_and_ratios_of_points_have_none(base: Record) -> None:
    k = base.points[0].lab.k
    fast = replace(base, points=[replace(point, lab=replace(point.lab, k=1.0)) for point in base.points])
    emulated = judged(base, 4.0, metric="tail_fct", maximum=None)
    simulated = judged(fast, 4.0 / k, metric="tail_fct", maximum=None, backend=Backend.SIMULATION)
    [row] = expected_rows([*emulated, *simulated])
    assert row.ratio == pytest.approx(1.0) and row.emulated == pytest.approx(4.0 / k)
    over: dict[str, Any] = {"metric": "tail_fct over that of mode=spray", "maximum": None}
    [row] = expected_rows([*judged(base, 2.0, **over), *judged(fast, 2.0, backend=Backend.SIMULATION, **over)])
    assert row.ratio == 1.0


def test_what_broke_a_trust_check_or_was_not_measured_says_nothing(base: Record) -> None:
    [simulated] = judged(base, 0.7, backend=Backend.SIMULATION)
    broken = with_runs(
        judged(base, 0.7)[0], lambda run: replace(run, checks=[replace(run.checks[0], ok=False), *run.checks[1:]])
    )
    assert not expected_rows([broken, simulated])
    unmeasured = judged(base, 0.7)[0]
    item = replace(unmeasured.expectations[0], measured=None, outcome=Outcome.INVALID)
    assert not expected_rows([replace(unmeasured, expectations=[item]), simulated])
    assert not expected_rows(judged(base, 0.7)), "nothing was simulated"
    changed = replace(simulated, scenario=replace(simulated.scenario, workload={"kind": "incast"}))
    assert not expected_rows([*judged(base, 0.7), changed]), "its file has another workload"


def test_times_of_faults_are_the_lab_s_and_what_is_little_is_alike(base: Record) -> None:
    slow = replace(base, points=[replace(point, lab=replace(point.lab, k=50_000.0)) for point in base.points])
    how: dict[str, Any] = {"metric": "recovery_time", "minimum": None, "maximum": 6.0}
    emulated = [*judged(base, 2.0, **how), *judged(slow, 3.0, **how)]
    [row] = expected_rows([*emulated, *judged(base, 2.5, backend=Backend.SIMULATION, **how)])
    assert (row.least, row.most, row.simulated, row.distance) == (2.0, 3.0, 2.5, 0.0)
    [row] = expected_rows([*judged(base, 0.001, **how), *judged(base, 0.04, backend=Backend.SIMULATION, **how)])
    assert row.ratio == pytest.approx(40) and row.distance == 0.0, "both are less than a hundredth of 6 s"
