"""Distributions that a run counted while it ran: queue depths, reordering, latencies."""

from __future__ import annotations

import itertools

from testbed.record.record import RunResult
from testbed.record.report.chart import XYChart, linear_axis, log_axis
from testbed.record.report.scenario.latencies import latency_distribution
from testbed.record.report.scenario.plots.plot import Plot
from testbed.record.samples import Distribution

MAX_HISTOGRAMS = 4
_LOG_FROM = 100.0


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
    spread = edges[first] > 0 and edges[last + 1] / edges[first] > _LOG_FROM
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
