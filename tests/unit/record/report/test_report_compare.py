"""Comparisons: exact tests, what is judged, what is refused."""

import itertools
import math
import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import load, printed, with_runs

from testbed.base.errors import RecordError
from testbed.record.record import Backend, Outcome, Record, RunResult, Verdict
from testbed.record.report.comparison import (
    Comparison,
    Shift,
    compare_records,
    print_comparison,
    refuse_different_things,
    render_comparison,
)
from testbed.record.report.comparison.backends import Agreement, agreement, backend_rows, backends_markdown
from testbed.record.report.comparison.compare import holm, least_p, rank_sum_p, runs_needed
from testbed.record.report.comparison.page import comparison_json


@pytest.fixture(scope="module")
def base() -> Record:
    return load("permutation-lb")


def changed(record: Record, metric: str, change: Callable[[float], float], *, point: str = "") -> Record:
    """The record with a metric of every run changed."""
    points = []
    for one in record.points:
        runs = []
        for run in one.runs:
            value = run.metrics.get(metric)
            new = {} if value is None or point not in one.name else {metric: change(value)}
            runs.append(replace(run, metrics={**run.metrics, **new}))
        points.append(replace(one, runs=runs))
    return replace(record, points=points)


def at_scale(record: Record, k: float) -> Record:
    """The record as if it had been measured at another time scale."""
    more = k / record.points[0].lab.k
    factors = {"s": more, "bit/s": 1 / more, "byte/s": 1 / more}
    units = {metric.name: metric.unit for metric in record.points[0].metrics}

    def scaled(run: RunResult) -> RunResult:
        metrics = {
            name: None if value is None else value * factors.get(units.get(name, ""), 1.0)
            for name, value in run.metrics.items()
        }
        return replace(run, metrics=metrics)

    changed = with_runs(record, scaled)
    return replace(changed, points=[replace(point, lab=replace(point.lab, k=k)) for point in changed.points])


def found(comparison: Comparison, metric: str, point: str = "mode=spray") -> Shift:
    return next(item.change for item in comparison.changes if item.metric == metric and item.point == point)


def brute_force_p(a: list[float], b: list[float]) -> float:
    """All ways to divide the runs, by the definition."""
    every = [*a, *b]
    ranks = [statistics.fmean([i + 1 for i, other in enumerate(sorted(every)) if other == value]) for value in every]
    expected = len(a) * (len(every) + 1) / 2
    sums = [sum(ranks[index] for index in chosen) for chosen in itertools.combinations(range(len(every)), len(a))]
    distance = abs(sum(ranks[: len(a)]) - expected)
    return sum(abs(total - expected) >= distance - 1e-9 for total in sums) / len(sums)


SMALL = st.lists(st.integers(0, 6).map(float), min_size=1, max_size=5)


@given(a=SMALL, b=SMALL)
def test_the_test_is_exact_with_ties(a: list[float], b: list[float]) -> None:
    assert rank_sum_p(a, b) == pytest.approx(brute_force_p(a, b))
    assert rank_sum_p(a, b) == pytest.approx(rank_sum_p(b, a))


def test_published_values_of_the_rank_sum() -> None:
    """Two-sided, of fully separated samples: 2 / C(n + m, n)."""
    assert rank_sum_p([1, 2, 3], [4, 5, 6]) == pytest.approx(0.1)
    assert rank_sum_p([1, 2, 3, 4, 5], [6, 7, 8, 9, 10]) == pytest.approx(2 / 252)
    assert rank_sum_p([1.0] * 5, [1.0] * 5) == 1.0
    assert rank_sum_p([], [1.0]) == 1.0


def test_many_runs_go_over_to_the_normal_distribution() -> None:
    a = [float(value) for value in range(40)]
    same = rank_sum_p(a, [value + 0.5 for value in a])
    assert 0.5 < same <= 1.0
    assert rank_sum_p(a, [value + 30 for value in a]) < 1e-6
    assert rank_sum_p([1.0] * 40, [1.0] * 40) == 1.0


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_never_lowers_and_keeps_the_order(probabilities: list[float]) -> None:
    adjusted = holm(probabilities)
    assert all(p <= q <= 1 for p, q in zip(probabilities, adjusted, strict=True))
    for (p, a), (q, b) in itertools.combinations(zip(probabilities, adjusted, strict=True), 2):
        assert a <= b if p < q else b <= a if q < p else math.isclose(a, b)


def test_runs_that_it_takes() -> None:
    assert least_p(3, 3) == pytest.approx(0.1)
    assert runs_needed(1, 0.05) == 4
    assert runs_needed(6, 0.05) == 5


def test_a_record_is_the_same_as_itself(base: Record) -> None:
    comparison = compare_records(base, base)
    assert {change.change for change in comparison.changes} == {Shift.SAME}
    assert (comparison.verdict, comparison.exit_code) == (Shift.SAME, 0)


def test_worse_and_better_are_those_of_the_catalogue(base: Record) -> None:
    slower = compare_records(base, changed(base, "tail_fct_ratio", lambda value: value * 3))
    assert found(slower, "tail_fct_ratio") is Shift.WORSE
    assert (slower.verdict, slower.exit_code) == (Shift.WORSE, 1)
    faster = compare_records(changed(base, "tail_fct_ratio", lambda value: value * 3), base)
    assert found(faster, "tail_fct_ratio") is Shift.BETTER
    assert (faster.verdict, faster.exit_code) == (Shift.BETTER, 0)
    less = compare_records(base, changed(base, "aggregate_share", lambda value: value / 3))
    assert found(less, "aggregate_share") is Shift.WORSE


def test_only_what_is_expected_of_or_named_is_judged(base: Record) -> None:
    worse = changed(base, "queue_p99", lambda value: value * 9)
    default = compare_records(base, worse)
    assert {item.metric for item in default.changes if item.judged} == {"aggregate_share", "tail_fct_ratio"}
    assert default.exit_code == 0
    assert compare_records(base, worse, metrics=["queue_p99"]).exit_code == 1
    every = {item.metric for item in compare_records(base, worse, metrics=["all"]).changes if item.judged}
    assert "queue_p99" in every and "cpu_busy" not in every
    with pytest.raises(RecordError, match="neither record has the metric furlongs") as caught:
        compare_records(base, worse, metrics=["furlongs"])
    assert "aggregate_share" in (caught.value.hint or "")


def test_figures_of_single_networks_and_tenants_are_judged_where_they_are_asked_for(base: Record) -> None:
    """A record has many of them, and each that is judged asks for more runs."""
    name = "tail_fct_ratio[tenant=red]"

    def with_tenant(record: Record) -> Record:
        points = []
        for point in record.points:
            metric = next(item for item in point.metrics if item.name == "tail_fct_ratio")
            runs = [replace(run, metrics=run.metrics | {name: run.metrics["tail_fct_ratio"]}) for run in point.runs]
            points.append(replace(point, runs=runs, metrics=[*point.metrics, replace(metric, name=name)]))
        return replace(record, points=points)

    ours = with_tenant(base)
    worse = changed(ours, name, lambda value: value * 3)
    assert compare_records(ours, worse, metrics=[name]).exit_code == 1, "less is better, as of the whole"
    assert name in {item.metric for item in compare_records(ours, worse, metrics=["all"]).changes if item.judged}
    unexpecting = [replace(record, expectations=[]) for record in (ours, worse)]
    judged = {item.metric for item in compare_records(*unexpecting).changes if item.judged}
    assert "tail_fct_ratio" in judged and name not in judged


def test_a_difference_that_is_sure_but_tiny_is_none(base: Record) -> None:
    tiny = changed(changed(base, "tail_fct_ratio", lambda _: 1.0), "aggregate_share", lambda _: 0.9)
    other = changed(tiny, "tail_fct_ratio", lambda _: 1.005)
    assert compare_records(tiny, other).exit_code == 0
    assert compare_records(tiny, other, min_change=0.001).exit_code == 1


def test_too_few_runs_cannot_say(base: Record) -> None:
    def few(record: Record) -> Record:
        points = [replace(point, runs=point.runs[:2]) for point in record.points]
        return replace(record, points=points)

    comparison = compare_records(few(base), few(changed(base, "tail_fct_ratio", lambda value: value * 2)))
    assert found(comparison, "tail_fct_ratio") is Shift.UNSURE
    assert (comparison.verdict, comparison.exit_code) == (Shift.UNSURE, 2)
    assert comparison.notes == [
        "with 2 runs of a side and 6 metrics judged, no difference can be significant at 5%:"
        " 5 runs of each side would do"
    ]


def test_incomplete_runs_do_not_count(base: Record) -> None:
    point = base.points[0]
    runs = [replace(run, complete=run.index > 3) for run in point.runs]
    partial = replace(base, points=[replace(point, runs=runs), *base.points[1:]])
    change = next(item for item in compare_records(base, partial).changes if item.point == point.name)
    assert (len(change.base), len(change.other)) == (6, 3)


def test_what_measured_different_things_is_compared_and_says_so(base: Record) -> None:
    other = replace(base, comparability={**base.comparability, "workload": {"kind": "incast"}})
    comparison = compare_records(base, other)
    assert comparison.incomparable and dict(comparison.incomparable) == dict(comparison.differing)
    text = printed(partial(print_comparison, comparison), 120)
    assert "they measured different things, workload.kind: 'permutation' and 'incast'" in text
    with pytest.raises(RecordError, match=r"workload\.kind: '\w+' in base, 'incast' in other") as caught:
        refuse_different_things(comparison)
    assert caught.value.exit_code == 2
    refuse_different_things(compare_records(base, base))


def test_what_is_compared_needs_no_force(base: Record) -> None:
    """Two designs differ in their topology, and so in their time scale: figures are compared in real time then."""
    k = float(base.points[0].lab.k)
    design = {"topology": {"fabric.design": "other"}, "k": [2 * k]}
    other = replace(base, points=at_scale(base, 2 * k).points, comparability={**base.comparability, **design})
    comparison = compare_records(base, other, metrics=["all"])
    assert comparison.differing and not comparison.incomparable
    assert "their time scales differ: times and rates are those of the real fabric" in comparison.notes
    of_time = [change for change in comparison.changes if change.unit in ("s", "bit/s") and change.relative is not None]
    assert of_time and all(change.relative == pytest.approx(0, abs=1e-9) for change in of_time)
    assert comparison.verdict is Shift.SAME
    assert "compared: topology.fabric.design: " in printed(partial(print_comparison, comparison), 120)
    assert comparison_json(comparison)["incomparable"] == []


def test_without_a_comparability_set_lab_and_traffic_must_be_alike(base: Record) -> None:
    old = replace(base, comparability={})
    assert compare_records(old, old).exit_code == 0
    other = replace(old, scenario=replace(old.scenario, workload={"kind": "incast"}))
    assert "workload.kind" in compare_records(old, other).incomparable
    tcp = replace(old, scenario=replace(old.scenario, transport={"kind": "tcp"}))
    assert compare_records(old, tcp).differing["transport.kind"] == ("uet", "tcp")


def test_an_invalid_record_is_refused(base: Record) -> None:
    invalid = replace(base, verdict=Verdict(outcome=Outcome.INVALID, reasons=["the machine was 99% busy"]))
    with pytest.raises(RecordError, match="other is invalid: the machine was 99% busy"):
        compare_records(base, invalid)
    assert "the machine was 99% busy" in compare_records(base, invalid, force=True).notes[0]


def test_points_are_matched_by_name(base: Record) -> None:
    comparison = compare_records(base, replace(base, points=base.points[1:]))
    assert comparison.only_base == ["mode=flow"]
    with pytest.raises(RecordError, match="no point in common"):
        compare_records(replace(base, points=base.points[:1]), replace(base, points=base.points[1:]))
    alone = [replace(base, points=[point]) for point in base.points[:2]]
    assert compare_records(*alone).changes, "the only points of two records are compared whatever their names"


def test_a_metric_that_was_zero_has_no_relative_change(base: Record) -> None:
    zero = changed(base, "retransmits", lambda _: 0.0)
    some = changed(base, "retransmits", lambda _: 40.0)
    change = next(item for item in compare_records(zero, some, metrics=["retransmits"]).changes if item.judged)
    assert change.relative is None and change.change is Shift.WORSE


def test_shown_on_a_terminal_as_json_and_as_a_page(base: Record) -> None:
    comparison = compare_records(base, changed(base, "tail_fct_ratio", lambda value: value * 3), names=("a<b", "c&d"))
    text = printed(partial(print_comparison, comparison), 120)
    assert "WORSE: 3 of 6 judged metrics are significantly worse" in text
    assert "+200.0%" in text and "36 others that are not judged and do not differ" in text
    document = comparison_json(comparison)
    assert document["verdict"] == "worse" and len(document["changes"]) == len(comparison.changes)
    page = render_comparison([comparison])
    assert "a&lt;b" in page and "c&amp;d" in page and "<script" not in page
    assert page.count("<figure>") == 2


def simulated(record: Record) -> Record:
    """The same, as if it had been simulated: at k = 1, k times as fast."""
    return replace(
        at_scale(record, 1.0),
        environment=replace(record.environment, backend=Backend.SIMULATION, clock="simulated"),
        comparability={**record.comparability, "clock": "simulated", "k": [1.0]},
    )


def test_an_emulation_and_a_simulation_stand_side_by_side_in_real_units(base: Record) -> None:
    both = compare_records(base, simulated(base), names=("lab", "model"), metrics=["all"])
    assert both.differing == {}
    assert any("lab is emulated and model is simulated" in note for note in both.notes)
    of_time = [change for change in both.changes if change.unit in ("s", "bit/s")]
    assert of_time and all(change.relative == pytest.approx(0, abs=1e-9) for change in of_time if change.relative)
    assert of_time[0].base_median is not None and of_time[0].base_median > 0


def test_two_simulations_are_still_held_to_be_of_the_same(base: Record) -> None:
    one = simulated(base)
    other = replace(one, comparability={**one.comparability, "workload": {"kind": "other"}})
    assert "workload.kind" in compare_records(one, other).incomparable


def test_simulated_figures_beside_emulated_ones_in_the_real_fabrics_time(base: Record) -> None:
    rows = backend_rows(
        iter([base, simulated(changed(base, "tail_fct", lambda value: 1.08 * value))]), ("tail_fct", "queue_p50")
    )
    tail_fct = [row for row in rows if row.metric == "tail_fct"]
    assert {row.point for row in tail_fct} == {point.name for point in base.points}
    assert [row.ratio for row in tail_fct] == pytest.approx([1.08] * len(tail_fct))
    k, point = base.points[0].lab.k, base.points[0]
    lab_time = statistics.median(value for run in point.runs if (value := run.metrics["tail_fct"]) is not None)
    assert tail_fct[0].emulated == pytest.approx(lab_time / k) and tail_fct[0].emulated_runs == len(point.runs)
    assert agreement(tail_fct) == [
        Agreement(metric="tail_fct", points=len(tail_fct), within=(0, len(tail_fct), len(tail_fct), len(tail_fct)))
    ]
    text = backends_markdown(rows)
    assert f"| `{base.scenario.name}` | `{point.name}` | {len(point.runs)}, {len(point.runs)} | 1.08 |" in text
    assert not backend_rows(iter([base])), "nothing was simulated"


def test_runs_that_broke_a_trust_check_say_nothing_of_a_backend(base: Record) -> None:
    broken = with_runs(base, lambda run: replace(run, checks=[replace(run.checks[0], ok=False), *run.checks[1:]]))
    assert not backend_rows(iter([broken, simulated(base)]), ("tail_fct",))


def test_a_figure_that_was_0_where_it_was_emulated_has_no_ratio(base: Record) -> None:
    still = changed(base, "retransmits", lambda _: 0.0)
    twelve = replace(
        changed(base, "retransmits", lambda _: 12.0), environment=replace(base.environment, backend=Backend.SIMULATION)
    )
    rows = backend_rows(iter([still, twelve]), ("retransmits",))
    assert rows and {row.ratio for row in rows} == {None}
    assert agreement(rows)[0].within == (0, 0, 0, 0) and "| 0 to 12 |" in backends_markdown(rows)
    assert (
        agreement(backend_rows(iter([still, replace(still, environment=twelve.environment)]), ("retransmits",)))[
            0
        ].points
        == 0
    )


def test_runs_of_the_same_seeds_are_compared_where_there_are_any(base: Record) -> None:
    first = base.points[0].runs[0].seed
    twice = with_runs(base, lambda run: replace(run, metrics={**run.metrics, "tail_fct": 2.0 * run.seed}))
    other = with_runs(twice, lambda run: replace(run, seed=run.seed + 100 * (run.seed != first)))
    rows = backend_rows(iter([twice, simulated(other)]), ("tail_fct",))
    assert rows and {(row.emulated_runs, row.simulated_runs, row.ratio) for row in rows} == {(1, 1, 1.0)}
    apart = with_runs(twice, lambda run: replace(run, seed=run.seed + 100))
    [row, *_] = backend_rows(iter([twice, simulated(apart)]), ("tail_fct",))
    assert row.emulated_runs == row.simulated_runs == len(base.points[0].runs)
