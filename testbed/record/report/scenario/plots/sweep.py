"""A metric over the points of a matrix: bars with their runs, curves over a number, and what one costs the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from testbed.record.record import MetricSummary, PointResult, Record
from testbed.record.report.chart import Row, XYChart, draw_rows, linear_axis, numbered_axis
from testbed.record.report.scenario.figures import (
    foremost_metrics,
    format_prediction,
    format_spread,
    format_value,
    point_label,
    predictions_of,
)
from testbed.record.report.scenario.plots.plot import MAX_SERIES, Plot

MAX_METRICS = 4
MAX_ROWS = 24
_FEWEST_FOR_A_CURVE = 3
_DEPTHS = ("queue_p50", "queue_p99", "queue_max")
_MOST_BESIDE = 5
"""Points named beside their dots; more are named in the legend."""


def plot_sweep(record: Record) -> list[Plot]:
    """A picture for each of the foremost metrics; none for a record of one point."""
    if len(record.points) < 2:
        return []
    found = []
    for name in foremost_metrics(record, 2 * MAX_METRICS):
        points = [(point, metric) for point in record.points if (metric := _metric(point, name)) is not None]
        known = [(point, metric) for point, metric in points if metric.median is not None]
        if len(known) < 2 or not any(value for _, metric in known for value in metric.values):
            continue  # nothing to compare, or nothing but zeros
        key = _number_key(record)
        found.append(_curve(key, name, known) if key is not None else _bars(name, points))
    found = found[:MAX_METRICS]
    trade = _trade(record)
    return [*found, trade] if trade is not None else found


def _bars(name: str, points: list[tuple[PointResult, MetricSummary]]) -> Plot:
    metric = points[0][1]
    rows = []
    reach: list[float] = []
    for number, (point, found) in enumerate(points[:MAX_ROWS]):
        prediction = predictions_of(point).get(name)
        dots = [value for value in found.values if value is not None]
        band = None
        if prediction is not None:
            band = (prediction.mean - prediction.stdev, prediction.mean + prediction.stdev)
        reach += [*dots, *(band or ()), *([] if found.ideal is None else [found.ideal])]
        remark = f"{point_label(point)}: {format_value(found.median, found.unit)}"
        remark += f", runs {format_spread(found)}" if len(dots) > 1 else ""
        remark += f", predicted {format_prediction(prediction, found.unit)}" if prediction else ""
        rows.append(
            Row(
                label=point_label(point),
                value=found.median,
                written=format_value(found.median, found.unit),
                dots=dots,
                band=band,
                ideal=found.ideal,
                series=number,
                remark=remark,
            )
        )
    axis = linear_axis("", metric.unit, reach)
    return Plot(
        name=f"sweep-{_ident(name)}",
        title=metric.title,
        caption="Bars are medians, dots single runs."
        + (" The band is the oracle's mean ± standard deviation." if any(row.band for row in rows) else "")
        + (f" The first {MAX_ROWS} of {len(points)} points." if len(points) > MAX_ROWS else ""),
        drawing=draw_rows(rows, axis, described=f"{metric.title} of each point"),
    )


def _curve(key: str, name: str, points: list[tuple[PointResult, MetricSummary]]) -> Plot:
    """Over the matrix's key that is a number: a line for each combination of the others."""
    metric = points[0][1]
    lines: dict[str, list[tuple[float, PointResult, MetricSummary]]] = {}
    for point, found in points:
        rest = " ".join(f"{_last_word(other)}={value}" for other, value in point.values.items() if other != key)
        lines.setdefault(rest, []).append((float(point.values[key]), point, found))
    lines = dict(list(lines.items())[:MAX_SERIES])
    numbers = [at for line in lines.values() for at, _, _ in line]
    reach = [value for _, found in points for value in (*found.values, found.ideal) if value is not None]
    reach += [item.mean for point, _ in points for item in point.predictions if item.metric == name]
    y = linear_axis(metric.title, metric.unit, reach, from_zero=_from_zero(reach))
    chart = XYChart(x=numbered_axis(_last_word(key), numbers), y=y)
    for series, (label, line) in enumerate(lines.items()):
        ordered = sorted(line, key=lambda item: item[0])
        for at, _, found in ordered:
            known = [value for value in found.values if value is not None]
            if len(known) > 1:
                chart.line([(at, min(known)), (at, max(known))], series=series, weight="range", listed=False)
        medians = [(at, found.median) for at, _, found in ordered if found.median is not None]
        chart.line(medians, series=series, label=label or "measured", dots=True, listed=bool(label))
        predicted = [(at, item.mean) for at, point, _ in ordered if (item := predictions_of(point).get(name))]
        chart.predicted(predicted, series=series)
        ideal = [(at, found.ideal) for at, _, found in ordered if found.ideal is not None]
        chart.ideal_line(ideal, "ideal")
    return Plot(
        name=f"sweep-{_ident(name)}",
        title=f"{metric.title}, by {_last_word(key)}",
        caption="Medians of each point's runs; the bar through a point is their range.",
        drawing=chart.draw(f"{metric.title} against {_last_word(key)}"),
    )


def _trade(record: Record) -> Plot | None:
    """Throughput against the depth of queues, where both were measured: what a threshold buys and what it costs.

    The depth is that which the scenario expects something of, or P99. The Pareto front is dashed.
    """
    gain = next(
        (name for name in ("goodput_share", "aggregate_share", "busbw_share") if _everywhere(record, name)), None
    )
    foremost = foremost_metrics(record, 2 * MAX_METRICS)
    cost = next((name for name in foremost if name in _DEPTHS), "queue_p99")
    if gain is None or not _everywhere(record, cost) or len(record.points) < _FEWEST_FOR_A_CURVE:
        return None
    pairs = []
    for point in record.points[:MAX_SERIES]:
        queue, gained = _metric(point, cost), _metric(point, gain)
        if queue and gained and queue.median is not None and gained.median is not None:
            pairs.append((point, queue.median, gained.median))
    title = _title(record, gain)
    shares = [share for _, _, share in pairs]
    chart = XYChart(
        x=linear_axis(_title(record, cost), "byte", [depth for _, depth, _ in pairs]),
        y=linear_axis(title, "share", shares, least=1.0, from_zero=_from_zero(shares)),
    )
    front = pareto_front([(depth, share) for _, depth, share in pairs])
    if len(front) > 1:
        chart.ideal_line(front, "Pareto front")
    for number, (point, depth, share) in enumerate(pairs):
        remark = f"{point.name}: {format_value(share, 'share')} at {format_value(depth, 'byte')}"
        beside = len(pairs) <= _MOST_BESIDE
        chart.dot((depth, share), series=number, label=point.name, beside=beside, remark=remark)
    return Plot(
        name="trade",
        title="Throughput against queue",
        caption="Up and to the left is better: a threshold that is too low costs throughput, one that is too high"
        " fills queues. No point has both more throughput and less of a queue than one on the front.",
        drawing=chart.draw(f"{title} against {_title(record, cost)}"),
    )


def pareto_front(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The points (cost, gain) that no other one beats, costing no more and gaining no less, by rising cost."""
    front: list[tuple[float, float]] = []
    for cost, gain in sorted(set(points), key=lambda point: (point[0], -point[1])):
        if not front or gain > front[-1][1]:
            front.append((cost, gain))
    return front


def _from_zero(values: Sequence[float]) -> bool:
    """A curve whose values are near each other is drawn where they are; a bar always begins at zero."""
    return min(values, default=0.0) < 0.5 * max(values, default=0.0)


def _number_key(record: Record) -> str | None:
    """The first key of the matrix with at least three values, all of them numbers."""
    for key in record.points[0].values:
        values = {str(point.values.get(key)): point.values.get(key) for point in record.points}
        if len(values) >= _FEWEST_FOR_A_CURVE and all(_is_number(value) for value in values.values()):
            return key
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _metric(point: PointResult, name: str) -> MetricSummary | None:
    return next((metric for metric in point.metrics if metric.name == name), None)


def _everywhere(record: Record, name: str) -> bool:
    found = [_metric(point, name) for point in record.points]
    return all(metric is not None and metric.median is not None for metric in found)


def _title(record: Record, name: str) -> str:
    found: Mapping[str, str] = {metric.name: metric.title for metric in record.points[0].metrics}
    return found.get(name, name)


def _last_word(key: str) -> str:
    return key.rpartition(".")[2]


def _ident(name: str) -> str:
    return "".join(char if char.isascii() and char.isalnum() else "-" for char in name)
