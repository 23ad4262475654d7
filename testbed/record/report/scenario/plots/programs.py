"""The steps of a program over time: what a fault costs is a step that takes longer."""

from __future__ import annotations

from testbed.record.record import RunResult
from testbed.record.report.chart import XYChart, linear_axis
from testbed.record.report.scenario.plots.plot import Plot
from testbed.record.report.scenario.plots.timeline import mark_events


def plot_steps(run: RunResult) -> Plot | None:
    """Draw how long each step took, by when it was done; None where fewer than two were timed."""
    if run.program is None:
        return None
    steps = run.program.steps
    points = [(at, took) for at, took in zip(steps.at_s, steps.seconds, strict=True) if took is not None]
    if len(points) < 2:
        return None
    ideal = run.program.ideal_step_s
    chart = XYChart(
        x=linear_axis("time (lab)", "s", [0.0, *(at for at, _ in points)], tight=True),
        y=linear_axis("step (lab)", "s", [took for _, took in points], least=1.08 * (ideal or 0.0)),
        height=320,
    )
    chart.line(points, weight="thick", remark="time of a step")
    if ideal:
        chart.ideal(ideal, "ideal")
    mark_events(chart, run.events)
    warm = sum(steps.warm_up)
    left_out = f" The first {warm if warm > 1 else 'one'} {'are' if warm > 1 else 'is'} in no figure." if warm else ""
    numbers = " Numbers are the events below." if run.events else ""
    return Plot(
        name="steps",
        title="Steps of the program",
        caption=f"How long each step took, at the moment at which it was done.{left_out}{numbers}",
        drawing=chart.draw("Time of each step over time, with the ideal and the events"),
        wide=bool(run.events),
    )
