"""The pictures of a report: those for which a record has data, in the order in which they tell the story."""

from __future__ import annotations

from testbed.record.record import Record, RunResult
from testbed.record.report.scenario.plots.fabric import plot_fabric
from testbed.record.report.scenario.plots.flows import (
    plot_busbw,
    plot_completion,
    plot_histograms,
    plot_ranks,
    plot_repeatability,
    plot_slowdown,
)
from testbed.record.report.scenario.plots.links import plot_links, plot_marking
from testbed.record.report.scenario.plots.plot import Plot
from testbed.record.report.scenario.plots.programs import plot_steps
from testbed.record.report.scenario.plots.sweep import plot_sweep
from testbed.record.report.scenario.plots.timeline import plot_timelines


def draw_overview(record: Record) -> list[Plot]:
    """Pictures that compare points, or the runs of the only one."""
    plots = [
        *plot_sweep(record),
        plot_busbw(record),
        plot_ranks(record),
        plot_completion(record),
        plot_slowdown(record),
        plot_marking(record),
        *([plot_repeatability(record, record.points[0])] if len(record.points) == 1 else []),
    ]
    return [plot for plot in plots if plot is not None]


def draw_run(run: RunResult) -> list[Plot]:
    """Pictures of one run: what happened over time, and where."""
    steps = plot_steps(run)
    own = [] if steps is None else [steps]
    return [*own, *plot_fabric(run), *plot_timelines(run), *plot_links(run), *plot_histograms(run)]
