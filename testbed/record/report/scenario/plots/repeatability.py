"""How far the runs of a point lie apart, metric by metric."""

from __future__ import annotations

from testbed.record.record import PointResult, Record
from testbed.record.report.chart import Row, draw_rows, linear_axis
from testbed.record.report.scenario.figures import foremost_metrics, format_value
from testbed.record.report.scenario.plots.plot import Plot

MAX_METRICS = 8
_FEWEST_RUNS = 3


def plot_repeatability(record: Record, point: PointResult) -> Plot | None:
    """Each run over the median of all, in percent. None with fewer than three runs, or where nothing differs."""
    rows = []
    names = foremost_metrics(record, 32)
    for metric in (item for item in point.metrics if item.name in names):
        values = [value for value in metric.values if value is not None]
        if len(values) < _FEWEST_RUNS or not metric.median:
            continue
        off = [value / metric.median - 1 for value in values]
        rows.append(
            Row(
                label=metric.title,
                value=0.0,
                written="" if metric.cv is None else f"CV {metric.cv:.1%}",
                dots=off,
                remark=", ".join(format_value(value, metric.unit) for value in values),
            )
        )
    rows = rows[:MAX_METRICS]
    if not any(dot for row in rows for dot in row.dots):
        return None
    reach = max(abs(dot) for row in rows for dot in row.dots)
    axis = linear_axis("difference from the median", "share", [-reach, reach], from_zero=False)
    return Plot(
        name="runs",
        title="Repeatability",
        caption=f"Each of the {len(point.runs)} runs against the median of all. CV is the standard deviation over the"
        " mean.",
        drawing=draw_rows(rows, axis, described="Distance of single runs from the median", bars=False),
    )
