"""Bus bandwidth against size: the curve everybody knows from nccl-tests, with the line it can reach."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.record.record import PointResult, Record
from testbed.record.report.chart import XYChart, linear_axis, log_axis
from testbed.record.report.scenario.nccl_table import CollectiveRow, collective_rows
from testbed.record.report.scenario.plots.plot import MAX_SERIES, Plot


def plot_busbw(record: Record) -> Plot | None:
    """Return the plot, or None where there are not two sizes of anything.

    Points that differ in size alone are one line.
    """
    lines: dict[str, list[CollectiveRow]] = {}
    rows = [(point, row) for point in record.points for row in collective_rows(point)]
    kinds = {(row.kind, row.algorithm, row.ranks) for _, row in rows}
    for point, row in rows:
        words = [f"{row.kind} {row.algorithm} x{row.ranks}"] if len(kinds) > 1 or len(record.points) == 1 else []
        words += [word for word in (_where(point), row.label) if word]
        lines.setdefault(", ".join(words) or row.kind, []).append(row)
    lines = {name: rows for name, rows in lines.items() if len({row.size_bytes for row in rows}) > 1}
    if not lines:
        return None
    lines = dict(list(lines.items())[:MAX_SERIES])
    drawn = [row for rows in lines.values() for row in rows]
    ideals = {row.ideal_busbw for row in drawn if row.ideal_busbw is not None}
    chart = XYChart(
        x=log_axis("size", "byte", [float(row.size_bytes) for row in drawn]),
        y=linear_axis("busbw (lab)", "byte/s", [row.busbw for row in drawn], least=max(ideals, default=0.0) * 1.08),
    )
    for number, (name, group) in enumerate(lines.items()):
        ordered = sorted(group, key=lambda row: row.size_bytes)
        chart.line([(float(row.size_bytes), row.busbw) for row in ordered], series=number, label=name, dots=True)
    for ideal in sorted(ideals)[-2:]:
        chart.ideal(ideal, "line rate")
    return Plot(
        name="busbw",
        title="Bus bandwidth by size",
        caption="Bytes per second that each rank's NIC carries, times the collective's factor, so that the line rate is"
        " the bound whatever the number of ranks (nccl-tests, doc/PERFORMANCE.md). Medians over operations and runs.",
        drawing=chart.draw("Bus bandwidth of collectives against their size, with the line rate"),
    )


def _where(point: PointResult) -> str:
    """The point's values without those that say how large the collective is."""
    return " ".join(f"{_last_word(key)}={value}" for key, value in _other_values(point.values).items())


def _other_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if _last_word(key) not in ("bytes", "size", "sizes")}


def _last_word(key: str) -> str:
    return key.rpartition(".")[2]
