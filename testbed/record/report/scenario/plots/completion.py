"""Completion times of transfers: their distribution against the ideal one, and the slowdown by size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from testbed.record.record import Record, RunResult
from testbed.record.report.chart import Axis, XYChart, linear_axis, log_axis
from testbed.record.report.scenario.plots.plot import Plot, curves, which_runs
from testbed.workload.metrics import slowdown_by_size

_LOG_FROM = 30.0
"""A ratio of the largest to the smallest from which an axis is logarithmic."""
_FEWEST = 4
"""Transfers for a distribution."""
Ended = tuple[int, float, float]
"""Size in bytes, time taken, time alone, both in s."""


def ended_transfers(run: RunResult) -> list[Ended]:
    table = run.transfers
    return [
        (size, end - start, ideal)
        for size, start, end, ideal in zip(table.size_bytes, table.start_s, table.end_s, table.ideal_s, strict=False)
        if start is not None and end is not None and end > start and ideal > 0
    ]


def plot_completion(record: Record) -> Plot | None:
    """The cumulative distribution of the completion times, and that of the times alone."""
    drawn = [(curve, ended_transfers(curve.run)) for curve in curves(record)]
    drawn = [(curve, ended) for curve, ended in drawn if len(ended) >= _FEWEST]
    if not drawn:
        return None
    times = [value for _, ended in drawn for _, took, alone in ended for value in (took, alone)]
    chart = XYChart(x=_axis("completion time (lab)", times), y=linear_axis("share of transfers", "share", [0, 1]))
    alone = next(ended for curve, ended in drawn if curve.typical or curve is drawn[-1][0])
    chart.ideal_line(_cumulative(ideal for _, _, ideal in alone), "each alone on an idle fabric")
    for curve, ended in drawn:
        chart.line(
            _cumulative(took for _, took, _ in ended),
            series=curve.series,
            label=curve.label,
            weight=curve.weight,
            remark=curve.remark,
        )
    return Plot(
        name="completion",
        title="Completion times",
        caption="Which share of the transfers had ended after which time. The dashed line is each transfer alone; the"
        f" distance between the right ends is the tail.{which_runs(record)}",
        drawing=chart.draw("Cumulative distribution of completion times, with the ideal one"),
    )


def plot_slowdown(record: Record) -> Plot | None:
    """The slowdown against size. None where sizes do not differ."""
    drawn = [(curve, ended_transfers(curve.run)) for curve in curves(record) if curve.typical]
    drawn = [(curve, ended) for curve, ended in drawn if len({size for size, _, _ in ended}) >= _FEWEST]
    if not drawn:
        return None
    lines = [
        (curve, slowdown_by_size(*_columns(ended), bins=min(20, max(4, len(ended) // 20)))) for curve, ended in drawn
    ]
    several = len(lines) > 1
    sizes = [float(band.largest_bytes) for _, bands in lines for band in bands]
    y = _axis(
        "slowdown", [value for _, bands in lines for band in bands for value in (1.0, band.p50, band.p99)], "ratio"
    )
    chart = XYChart(x=log_axis("size of the transfer", "byte", sizes), y=y)
    for curve, bands in lines:
        for number, name in enumerate(("p50", "p95", "p99")):
            if several and name != "p99":
                continue
            points = [(float(band.largest_bytes), max(1.0, getattr(band, name))) for band in bands]
            label = curve.label if several else name.upper()
            chart.line(points, series=curve.series if several else number, label=label, dots=not several)
    chart.ideal(1.0, "alone on an idle fabric")
    which = "P99 of each point's typical run" if several else "Percentiles of the typical run"
    return Plot(
        name="slowdown",
        title="Slowdown by size",
        caption=f"Completion time over the time alone, in bands of transfers of like size. {which}.",
        drawing=chart.draw("Slowdown of transfers against their size"),
    )


def _columns(ended: Sequence[Ended]) -> tuple[list[float], list[float], list[float]]:
    return [float(item[0]) for item in ended], [item[1] for item in ended], [item[2] for item in ended]


def _cumulative(times: Iterable[float]) -> list[tuple[float, float]]:
    ordered = sorted(times)
    steps = [(ordered[0], 0.0)]
    for number, value in enumerate(ordered, start=1):
        steps += [(value, (number - 1) / len(ordered)), (value, number / len(ordered))]
    return steps


def _axis(title: str, values: Sequence[float], unit: str = "s") -> Axis:
    low, high = min(values), max(values)
    return log_axis(title, unit, values) if low > 0 and high / low > _LOG_FROM else linear_axis(title, unit, values)
