"""Pictures of a sweep: throughput against queue, and the front of the points that no other one beats."""

from dataclasses import replace

from recorded import load

from testbed.record.record import PointResult, Record
from testbed.record.report.scenario.plots.sweep import pareto_front, plot_sweep


def test_a_point_is_on_the_front_that_no_other_one_beats() -> None:
    both, dearer, poorer, best = (10.0, 0.5), (20.0, 0.5), (10.0, 0.4), (30.0, 0.9)
    assert pareto_front([best, poorer, dearer, both]) == [both, best]
    assert pareto_front([both, both]) == [both]
    assert pareto_front([]) == []


def with_pairs(record: Record, pairs: list[tuple[float, float]]) -> Record:
    """The record, whose points have these depths of queues and shares."""

    def changed(point: PointResult, depth: float, share: float) -> PointResult:
        values = {"queue_p99": depth, "aggregate_share": share}
        metrics = [replace(one, median=values.get(one.name, one.median)) for one in point.metrics]
        return replace(point, metrics=metrics)

    points = [changed(point, *pair) for point, pair in zip(record.points, pairs, strict=False)]
    return replace(record, points=points)


def drawing_of_trade(record: Record) -> str:
    (found,) = (plot for plot in plot_sweep(record) if plot.name == "trade")
    return str(found.drawing)


def test_throughput_is_drawn_against_the_queue_with_its_front() -> None:
    record = load("permutation-lb")
    count = len(record.points)
    rising = [(1e5 * (number + 1), 0.5 + 0.1 * number) for number in range(count)]
    assert "Pareto front" in drawing_of_trade(with_pairs(record, rising))
    falling = [(1e5 * (number + 1), 0.9 - 0.1 * number) for number in range(count)]
    assert "Pareto front" not in drawing_of_trade(with_pairs(record, falling)), "one point beats all others"
