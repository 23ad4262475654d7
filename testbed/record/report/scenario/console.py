"""A record on one screen of a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from testbed.record.record import ExpectationResult, Outcome, PointResult, Record, RunResult
from testbed.record.report.scenario.configuration import earlier_sessions, parts_of_machines
from testbed.record.report.scenario.figures import (
    MISSING,
    every_run,
    fates_of,
    foremost_metrics,
    format_band,
    format_measured,
    format_prediction,
    format_rate,
    format_ratio,
    format_spread,
    format_time,
    format_value,
    point_label,
    predictions_of,
    tenant_figures,
    title_of,
    typical_run,
    unit_of,
)
from testbed.record.report.scenario.latencies import LatencyRow, latency_rows
from testbed.record.report.scenario.nccl_table import NcclRow, collective_rows
from testbed.record.report.scenario.networks import (
    COLUMNS,
    SCALE_UP_COLUMNS,
    TENANT_COLUMNS,
    Cell,
    latency_notes,
    network_rows,
    scale_up_rows,
    tenant_rows,
)
from testbed.record.report.scenario.programs import speaker_of
from testbed.record.report.scenario.senders import senders_of

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

MAX_FLOWS = 16
"""Rows of the flow table: the slowest, because they are what one looks for."""
MAX_FATES = 4
"""Columns of what befell their packets."""
MAX_METRICS = 10
MAX_COLUMNS = 5
"""Metrics side by side where there are several points."""
MAX_POINTS = 24
MAX_COLLECTIVES = 12
MAX_LINES = 12
"""Last lines of a program that failed."""
MAX_LATENCIES = 12
"""Rows of the table of latencies: the slowest against their ideal."""
MAX_EXPECTATIONS = 12
MAX_NETWORK_POINTS = 4
"""Points whose networks are in the table of networks."""
_STYLES = {Outcome.PASS: "bold green", Outcome.FAIL: "bold red", Outcome.INVALID: "bold yellow"}
_Justify = Literal["left", "right"]


def print_record(record: Record, console: Console) -> None:
    """Print what was measured at each point, collectives in nccl-tests' columns, what was expected, the verdict.

    The figures of an invalid run are dim.
    """
    style = "dim" if record.verdict.outcome is Outcome.INVALID else None
    if len(record.points) == 1:
        _print_point(record, record.points[0], console, style)
    elif record.points:
        console.print(_point_table(record), style=style)
    typical = [(point, run) for point in record.points if (run := typical_run(point))]
    networks = [(point, run) for point, run in typical if len(run.networks) > 1]
    if networks:
        rows_of = [[row.cells for row in network_rows(run)] for _, run in networks]
        console.print(
            _loads_table("Networks, lab time", COLUMNS, [point for point, _ in networks], rows_of), style=style
        )
    tenants = [(point, loads) for point, run in typical if (loads := tenant_rows(run))]
    if tenants:
        points, tenants_of = [point for point, _ in tenants], [loads for _, loads in tenants]
        console.print(
            _loads_table("Tenants, at the links to their NICs", TENANT_COLUMNS, points, tenants_of), style=style
        )
    domains = [(point, run) for point, run in typical if run.scale_up]
    if domains:
        planes = [scale_up_rows(run) for _, run in domains]
        title = "Scale-up domains by packets, both ends of links, lab time"
        console.print(_loads_table(title, SCALE_UP_COLUMNS, [point for point, _ in domains], planes), style=style)
        for point, run in domains[:MAX_NETWORK_POINTS]:
            which = f"{point.name}, " if len(record.points) > 1 else ""
            for note in latency_notes(run):
                console.print(_plain(which + note), soft_wrap=True, style=style)
    rows = [row for point in record.points for row in collective_rows(point)]
    if rows:
        console.print(_collective_table(rows), style=style)
    latencies = [
        (point.name, row) for point in record.points if (run := typical_run(point)) for row in latency_rows(run)
    ]
    if latencies:
        console.print(_latency_table(latencies), style=style)
    for point, run in every_run(record):
        if run.program is not None and run.program.exit_code and (speaker := speaker_of(run.program)) is not None:
            where = f"{point.name}, " if point.name else ""
            console.print(_plain(f"{where}run {run.index}: {run.program.failure}"), soft_wrap=True, style="red")
            for line in speaker.last_lines[-MAX_LINES:]:
                console.print(_plain(f"  [{speaker.rank}] {line}"), soft_wrap=True, style="dim")
    console.print(_verdict(record), soft_wrap=True)


def _print_point(record: Record, point: PointResult, console: Console, style: str | None) -> None:
    run = typical_run(point)
    if run is not None and not run.collectives and run.channels and not latency_rows(run):
        console.print(_flow_table(record, point, run), style=style)
    if point.metrics:
        console.print(_metric_table(record, point), style=style)
    figures = tenant_figures(point)
    if figures.rows:
        table = _table("Tenants of the workload")
        _columns(table, "Metric", *figures.tenants)
        for title, values in figures.rows:
            _row(table, title, *values)
        console.print(table, style=style)


def _flow_table(record: Record, point: PointResult, run: RunResult) -> Table:
    which = f", run {run.index} of {len(point.runs)}" if len(point.runs) > 1 else ""
    table = _table(f"{record.scenario.name} on {point.lab.name}, k = {point.lab.k:g}{which}")
    senders = list(enumerate(senders_of(run)))
    fates = fates_of(sender.counters for _, sender in senders)[:MAX_FATES]
    _columns(table, "Flow", "Goodput (lab)", "Share of ideal", "Retransmits", *(fate.title for fate in fates))
    most = MAX_FLOWS if len(senders) <= MAX_FLOWS else MAX_FLOWS // 2
    slowest = sorted(senders, key=lambda item: item[1].share)[:most]
    for _, sender in sorted(slowest):
        befell = [f"{fate.of(sender.counters):,}" for fate in fates]
        rate, share = format_rate(sender.goodput_bps), f"{sender.share:.1%}"
        _row(table, sender.name, rate, share, f"{sender.retransmits:,}", *befell)
    hidden = len(senders) - len(slowest)
    if hidden:
        table.add_row(_plain(f"and {hidden:,} faster ones"), "", "", "", *("" for _ in fates), style="dim")
    return table


def _metric_table(record: Record, point: PointResult) -> Table:
    several = len(point.runs) > 1
    runs = f"median of {len(point.runs)} runs" if several else "measured"
    table = _table(None)
    predicted = predictions_of(point)
    spread = ["range", "CV"] if several else []
    _columns(table, "Metric", runs, "ideal", *(["predicted"] if predicted else []), "measured / ideal", *spread)
    names = foremost_metrics(record, MAX_METRICS)
    for metric in (item for item in point.metrics if item.name in names):
        cells = [
            format_value(metric.median, metric.unit),
            format_value(metric.ideal, metric.unit),
            *([format_prediction(predicted.get(metric.name), metric.unit)] if predicted else []),
            format_ratio(metric),
            *([format_spread(metric) or MISSING, format_value(metric.cv, "share")] if several else []),
        ]
        _row(table, metric.title, *cells)
    if several:
        table.caption = "CV: standard deviation over mean of the runs"
        table.caption_justify = "left"
    real = next((item.median for item in point.metrics if item.name == "aggregate_goodput"), None)
    if real is not None:
        cells = ["", *([""] if predicted else []), "", *("" for _ in spread)]
        table.add_row("Aggregate in real time (x k)", format_value(real * point.lab.k, "bit/s"), *cells, style="dim")
    return table


def _point_table(record: Record) -> Table:
    """A row for each point, a column for each metric that matters; below the figure what an oracle says."""
    names = foremost_metrics(record, MAX_COLUMNS)
    lab = record.points[0].lab
    table = _table(f"{record.scenario.name} on {lab.name}, k = {lab.k:g}, median of each point's runs")
    _columns(table, "Point", "Runs", *(title_of(record, name) for name in names))
    for point in record.points[:MAX_POINTS]:
        found = {item.name: item for item in point.metrics}
        predicted = predictions_of(point)
        cells = []
        for name in names:
            metric, expected = found.get(name), predicted.get(name)
            cell = MISSING if metric is None else format_value(metric.median, metric.unit)
            if expected is not None and metric is not None:
                cell += f" ({format_prediction(expected, metric.unit)})"
            cells.append(cell)
        _row(table, point_label(point), f"{len(point.runs)}", *cells)
    ideals = [_common_ideal(record, name) for name in names]
    if any(ideals):
        table.add_row("ideal", "", *(_plain(ideal) for ideal in ideals), style="dim")
    if len(record.points) > MAX_POINTS:
        rest = len(record.points) - MAX_POINTS
        table.add_row(f"and {rest} more points in the report", "", *("" for _ in names), style="dim")
    if any(point.predictions for point in record.points):
        table.caption = "in brackets: what the oracle predicts, mean ± standard deviation over its seeds"
        table.caption_justify = "left"
    return table


def _common_ideal(record: Record, name: str) -> str:
    """The ideal of a metric where it is the same at all points; "" otherwise."""
    found = {(item.ideal, item.unit) for point in record.points for item in point.metrics if item.name == name}
    (ideal, unit), *others = found or {(None, "")}
    return "" if others or ideal is None else format_value(ideal, unit)


def _loads_table(
    title: str, columns: Sequence[str], points: Sequence[PointResult], rows_of: Sequence[Sequence[Sequence[Cell]]]
) -> Table:
    """Make the table of the loads of networks, or of tenants, in each point's typical run."""
    several = len(points) > 1
    table = _table(title)
    _columns(table, *(["Point"] if several else []), *columns)
    for point, rows in list(zip(points, rows_of, strict=True))[:MAX_NETWORK_POINTS]:
        for row in rows:
            cells = [cell.text + (f" ({cell.remark})" if cell.remark else "") for cell in row]
            _row(table, *([point.name] if several else []), *cells)
    if len(points) > MAX_NETWORK_POINTS:
        table.add_row(f"and those of {len(points) - MAX_NETWORK_POINTS} more points in the report", style="dim")
    return table


def _collective_table(rows: list[NcclRow]) -> Table:
    """nccl-tests' columns; the bandwidths twice: in the lab, and in the fabric it models."""
    several = any(row.point != rows[0].point for row in rows)
    table = _table("Collectives; lab time, and in the real fabric (x k)")
    names = ["point"] if several else []
    _columns(
        table, *names, "collective", "size (B)", "count", "type", "redop", "root", "time (us)", "algbw (MB/s)",
        "busbw (MB/s)", "of ideal", "real busbw (GB/s)", "#wrong",
    )  # fmt: skip
    for row in rows[:MAX_COLLECTIVES]:
        cells = [
            f"{row.size_bytes}",
            f"{row.elements}",
            row.datatype,
            row.redop,
            "-1" if row.root is None else f"{row.root}",
            row.time_text,
            f"{row.algbw / 1e6:.2f}",
            f"{row.busbw / 1e6:.2f}",
            MISSING if row.share is None else f"{row.share:.1%}",
            f"{row.real_busbw / 1e9:.2f}",
            "N/A" if row.wrong is None else f"{row.wrong}",
        ]
        _row(table, *([row.point] if several else []), f"{row.kind} {row.algorithm} x{row.ranks}", *cells)
    if len(rows) > MAX_COLLECTIVES:
        table.add_row(f"and {len(rows) - MAX_COLLECTIVES} more in the report", style="dim")
    return table


def _latency_table(rows: list[tuple[str, LatencyRow]]) -> Table:
    """A row for each pair of each point's typical run."""
    several = any(point != rows[0][0] for point, _ in rows)
    table = _table("Latency of messages, lab time")
    names = ["point"] if several else []
    _columns(
        table, *names, "pair", "test", "bytes", "messages", "min", "P50", "P99", "P99.9", "max", "ideal", "P50 / ideal"
    )
    worst = sorted(range(len(rows)), key=lambda place: -(rows[place][1].ratio or 0.0))[:MAX_LATENCIES]
    for place in sorted(worst):
        point, row = rows[place]
        times = (row.minimum_s, row.p50_s, row.p99_s, row.p99_9_s, row.maximum_s, row.ideal_s)
        cells = [row.name, row.test, f"{row.size_bytes:,}", f"{row.messages:,}", *map(format_time, times)]
        _row(table, *([point] if several else []), *cells, format_value(row.ratio, "ratio"))
    if len(rows) > MAX_LATENCIES:
        table.add_row(f"and {len(rows) - MAX_LATENCIES} more in the report", style="dim")
    return table


def _verdict(record: Record) -> Text:
    from rich.text import Text

    outcome = record.verdict.outcome
    text = Text()
    text.append(outcome.value.upper(), style=_STYLES[outcome])
    text.append("  " + _shown("; ".join(_compact(record.verdict.reasons))))
    if record.incomplete:
        text.append(f"\n  partial: {_shown(record.incomplete)}", style="yellow")
    for said in earlier_sessions(record):
        text.append(f"\n  resumed: {_shown(said)}", style="dim")
    for said in parts_of_machines(record):
        text.append(f"\n  on {_shown(said)}", style="dim")
    for item in _worst_first(record.expectations)[:MAX_EXPECTATIONS]:
        unit = unit_of(record, item.metric)
        text.append(f"\n  {item.outcome.value:<7}", style=_STYLES[item.outcome])
        where = f" at {item.point}" if item.point else ""
        said = f" {item.metric}{where} {format_measured(item, unit)}, expected {format_band(item, unit)}"
        text.append(_shown(said))
        text.append(_shown(f" ({item.source})"), style="dim")
    hidden = len(record.expectations) - MAX_EXPECTATIONS
    if hidden > 0:
        text.append(f"\n  and {hidden} more expectations in the report", style="dim")
    for line in broken_checks(record):
        text.append("\n  broken ", style="yellow")
        text.append(_shown(line))
    return text


def broken_checks(record: Record) -> list[str]:
    """Trust checks that were broken, one line each with the runs it happened in."""
    runs = every_run(record)
    broken = Counter(check.title for _, run in runs for check in run.checks if not check.ok)
    told = " ".join(record.verdict.reasons)
    lines = []
    for title, count in broken.items():
        first = next(check for _, run in runs for check in run.checks if check.title == title and not check.ok)
        if first.message not in told:
            lines.append(f" {title}, in {count} of {len(runs)} runs: {first.message}")
    return lines


def _compact(reasons: list[str]) -> list[str]:
    most = 4
    return reasons if len(reasons) <= most else [*reasons[:most], f"and {len(reasons) - most} more reasons"]


def _worst_first(expectations: list[ExpectationResult]) -> list[ExpectationResult]:
    if len(expectations) <= MAX_EXPECTATIONS:
        return expectations
    return sorted(expectations, key=lambda item: item.outcome is Outcome.PASS)


def _columns(table: Table, *names: str) -> None:
    for index, name in enumerate(names):
        justify: _Justify = "left" if index == 0 else "right"
        table.add_column(_plain(name), justify=justify)


def _row(table: Table, *cells: str) -> None:
    table.add_row(*(_plain(cell) for cell in cells))


def _table(title: str | None) -> Table:
    from rich import box
    from rich.table import Table

    return Table(
        title=None if title is None else _plain(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )


def _plain(text: str) -> Text:
    """Text from a record: never markup."""
    from rich.text import Text

    return Text(_shown(text))


def _shown(text: str) -> str:
    """Without control sequences for the terminal."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)
