"""Throughput by flow rank: the figure of NDP (SIGCOMM 2017, figure 14) and htsim."""

from __future__ import annotations

import statistics

from testbed.record.record import Record
from testbed.record.report.chart import XYChart, linear_axis
from testbed.record.report.scenario.plots.plot import Curve, Plot, curves, which_runs
from testbed.record.report.scenario.senders import senders_of

_BUSY = 0.25
"""Share of the longest channel's time in which the middle one sends, at least, where shares say something."""


def plot_ranks(record: Record) -> Plot | None:
    """Return the plot, or None where fewer than two senders were measured: there is nothing to compare."""
    drawn = [(curve, _shares(curve)) for curve in curves(record)]
    drawn = [(curve, shares) for curve, shares in drawn if len(shares) > 1]
    if not drawn:
        return None
    widest = max(len(shares) for _, shares in drawn)
    x = linear_axis("flow, slowest first", "count", [1, widest], from_zero=False, tight=True)
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
    """Of runs in which shares mean something: in an open loop or a chain of dependencies senders idle by design."""
    run = curve.run
    if run.metrics.get("aggregate_share") is None:
        return []
    busy = [channel.busy_s for channel in run.channels]
    if busy and statistics.median(busy) < _BUSY * max(channel.seconds for channel in run.channels):
        return []
    return sorted(sender.share for sender in senders_of(run) if sender.ideal_bps > 0)
