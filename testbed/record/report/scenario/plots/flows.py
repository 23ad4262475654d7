"""Throughput by flow rank: the figure of NDP (SIGCOMM 2017, figure 14) and htsim."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from testbed.record.record import PointResult, Record, RunResult
from testbed.record.report.chart import Axis, Row, XYChart, draw_rows, linear_axis, log_axis, rank_axis
from testbed.record.report.scenario.figures import foremost_metrics, format_value
from testbed.record.report.scenario.latencies import latency_distribution
from testbed.record.report.scenario.nccl_table import NcclRow, collective_rows
from testbed.record.report.scenario.plots.plot import MAX_SERIES, Curve, Plot, curves, which_runs
from testbed.record.report.scenario.senders import senders_of
from testbed.record.samples import Distribution
from testbed.workload.metrics import slowdown_by_size

_BUSY = 0.25
"""Share of the longest channel's time in which the middle one sends, at least, where shares say something."""


def plot_ranks(record: Record) -> Plot | None:
    """Return the plot, or None where fewer than two senders were measured: there is nothing to compare."""
    drawn = [(curve, _shares(curve)) for curve in curves(record)]
    drawn = [(curve, shares) for curve, shares in drawn if len(shares) > 1]
    if not drawn:
        return None
    widest = max(len(shares) for _, shares in drawn)
    x = rank_axis("flow, slowest first", widest)
    y = linear_axis("goodput of ideal", "share", [share for _, shares in drawn for share in shares], least=1.08)
    chart = XYChart(x=x, y=y)
    for curve, shares in drawn:
        chart.line(
            [(rank, share) for rank, share in enumerate(shares, start=1)],
            series=curve.series,
            label=curve.label,
            weight=curve.weight,
            dots=len(drawn) == 1,
            remark=curve.remark,
        )
    chart.ideal(1.0, "ideal")
    return Plot(
        name="rank",
        title="Throughput by flow rank",
        caption="All flows from slowest to fastest, as a share of what a flow alone would get. A fabric that spreads"
        f" load perfectly is a flat line at the ideal.{which_runs(record)}",
        drawing=chart.draw("Goodput of each flow over its ideal, sorted from slowest to fastest"),
    )


def _shares(curve: Curve) -> list[float]:
    """Return the share of each sender, of runs in which that means something.

    In an open loop or a chain of dependencies senders idle by design.
    """
    run = curve.run
    if run.metrics.get("aggregate_share") is None:
        return []
    busy = [channel.busy_s for channel in run.channels]
    if busy and statistics.median(busy) < _BUSY * max(channel.seconds for channel in run.channels):
        return []
    return sorted(sender.share for sender in senders_of(run) if sender.ideal_bps > 0)


_LOG_FROM = 30.0
"""A ratio of the largest to the smallest from which an axis is logarithmic."""
_FEWEST = 4
"""The fewest transfers that a distribution is drawn of."""
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


def plot_busbw(record: Record) -> Plot | None:
    """Return the plot, or None where there are not two sizes of anything.

    Points that differ in size alone are one line.
    """
    lines: dict[str, list[NcclRow]] = {}
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


MAX_HISTOGRAMS = 4
_LOG_COUNTS_FROM = 100.0


def plot_histograms(run: RunResult) -> list[Plot]:
    found = []
    latency = latency_distribution(run)
    shown = [*([] if latency is None else [latency]), *run.distributions]
    for number, distribution in enumerate(shown[:MAX_HISTOGRAMS]):
        plot = _histogram(distribution, number)
        if plot is not None:
            found.append(plot)
    return found


def _histogram(distribution: Distribution, number: int) -> Plot | None:
    """As a line of steps. None for one that counted nothing, or whose edges are not those of its counts."""
    edges, counts = distribution.edges, distribution.counts
    total = sum(counts)
    rising = all(low < high for low, high in itertools.pairwise(edges))
    if len(edges) != len(counts) + 1 or total <= 0 or min(counts) < 0 or not rising:
        return None
    used = [index for index, count in enumerate(counts) if count]
    first, last = used[0], used[-1]
    spread = edges[first] > 0 and edges[last + 1] / edges[first] > _LOG_COUNTS_FROM
    reach = edges[first : last + 2]
    title = distribution.title or distribution.name
    x = (
        log_axis(title, distribution.unit, reach)
        if spread
        else linear_axis(title, distribution.unit, reach, from_zero=False, tight=True)
    )
    shares = [count / total for count in counts]
    steps = [(edges[first], 0.0)]
    for index in range(first, last + 1):
        steps += [(edges[index], shares[index]), (edges[index + 1], shares[index])]
    steps.append((edges[last + 1], 0.0))
    chart = XYChart(x=x, y=linear_axis("share of samples", "share", shares), height=260)
    chart.line(steps, weight="area", remark=f"{total:,} samples")
    return Plot(
        name=f"distribution-{number}",
        title=title,
        caption=f"{total:,} samples of the typical run.",
        drawing=chart.draw(f"Histogram: {title}"),
    )


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
