"""A record on one screen of a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.report.scenario.figures import (
    MISSING,
    format_band,
    format_rate,
    format_ratio,
    format_spread,
    format_value,
    typical_run,
    unit_of,
)
from testbed.results import Outcome, PointResult, Record, RunResult

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

MAX_FLOWS = 16
"""Rows of the flow table: the slowest, because they are what one looks for."""
_STYLES = {Outcome.PASS: "bold green", Outcome.FAIL: "bold red", Outcome.INVALID: "bold yellow"}


def print_record(record: Record, console: Console) -> None:
    """Flows of the typical run, metrics of all runs, the verdict."""
    for point in record.points:
        run = typical_run(point)
        if run is not None and len(record.points) == 1 and run.flows:
            console.print(_flow_table(record, point, run))
        if point.metrics:
            console.print(_metric_table(point))
    console.print(_verdict(record), soft_wrap=True)


def _flow_table(record: Record, point: PointResult, run: RunResult) -> Table:
    which = f", run {run.index} of {len(point.runs)}" if len(point.runs) > 1 else ""
    table = _table(f"{record.scenario.name} on {point.lab.name}, k = {point.lab.k:g}{which}")
    for name, justify in (
        ("Flow", "left"),
        ("Gbit/s (lab)", "right"),
        ("Share of ideal", "right"),
        ("Retransmits", "right"),
    ):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    slowest = sorted(run.flows, key=lambda flow: flow.share)[:MAX_FLOWS]
    for flow in sorted(slowest, key=lambda flow: flow.id):
        source, destination = flow.source, flow.destination
        table.add_row(
            _plain(f"{source.node}:{source.interface} → {destination.node}:{destination.interface}"),
            f"{flow.goodput_bps / 1e9:.4f}",
            f"{flow.share:.1%}",
            f"{flow.retransmits:,}",
        )
    hidden = len(run.flows) - len(slowest)
    if hidden:
        table.add_row(_plain(f"and {hidden:,} faster ones"), "", "", "", style="dim")
    return table


def _metric_table(point: PointResult) -> Table:
    runs = f"median of {len(point.runs)} runs" if len(point.runs) > 1 else "measured"
    table = _table(point.name or None)
    table.add_column("Metric")
    for name in (runs, "ideal", "measured / ideal", "range"):
        table.add_column(name, justify="right")
    for metric in point.metrics:
        if metric.headline:
            table.add_row(
                _plain(metric.title),
                format_value(metric.median, metric.unit),
                format_value(metric.ideal, metric.unit),
                format_ratio(metric),
                format_spread(metric) or MISSING,
            )
    real = next((item.median for item in point.metrics if item.name == "aggregate_goodput"), None)
    if real is not None:
        table.add_row("Aggregate in real time (times k)", format_rate(real * point.lab.k), "", "", "", style="dim")
    return table


def _verdict(record: Record) -> Text:
    from rich.text import Text

    outcome = record.verdict.outcome
    text = Text()
    text.append(outcome.value.upper(), style=_STYLES[outcome])
    text.append("  " + "; ".join(record.verdict.reasons))
    for item in record.expectations:
        unit = unit_of(record, item.metric)
        text.append(f"\n  {item.outcome.value:<7}", style=_STYLES[item.outcome])
        text.append(f" {item.metric} {format_value(item.measured, unit)}, expected {format_band(item, unit)}")
        text.append(f" ({item.source})", style="dim")
    return text


def _table(title: str | None) -> Table:
    from rich import box
    from rich.table import Table

    return Table(
        title=None if title is None else _plain(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False
    )


def _plain(text: str) -> Text:
    """Text from a record: never markup."""
    from rich.text import Text

    return Text(text)
