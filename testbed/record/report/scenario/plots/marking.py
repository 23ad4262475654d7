"""Marks against the depth of the queue: the curve that switches were given, and what each marker made of it."""

from __future__ import annotations

from testbed.record.record import Record
from testbed.record.report.chart import XYChart, linear_axis
from testbed.record.report.scenario.plots.plot import MAX_SERIES, Plot, curves, which_runs
from testbed.record.samples import MarkingCurve

FEWEST_PACKETS = 100
"""Of a bin that is drawn."""
_FEWEST_BINS = 3
"""Of a curve: with fewer, traffic never met the depths that it is about."""


def plot_marking(record: Record) -> Plot | None:
    """A line for each class of each point; the ideal where all have the same. None where queues hardly filled."""
    drawn = [
        (_label(curve.label, marking, len(curve.run.marking)), curve.series, marking, points)
        for curve in curves(record)
        for marking in curve.run.marking
        if _crosses(points := _points(marking), marking)
    ][:MAX_SERIES]
    if not drawn:
        return None
    deepest = max(depth for _, _, _, points in drawn for depth, _ in points)
    chart = XYChart(
        x=linear_axis("queue depth", "byte", [deepest], tight=True),
        y=linear_axis("packets marked", "share", [1.0]),
    )
    shapes = {(marking.kmin_bytes, marking.kmax_bytes, marking.pmax) for _, _, marking, _ in drawn}
    if len(shapes) == 1:
        chart.ideal_line(_ideal(drawn[0][2], deepest), "the curve as configured")
    alone = len({series for _, series, _, _ in drawn}) == 1
    for number, (label, series, marking, points) in enumerate(drawn):
        remark = f"{label}: {sum(marking.packets):,} packets in {marking.queues} queues"
        chart.line(points, series=number if alone else series, label=label, dots=True, remark=remark)
    return Plot(
        name="marking",
        title="ECN marks against queue depth",
        caption="Of the packets that allowed a mark, the share that had one at the other end of the link, by the depth"
        f" of the queue that decided.{_apart(drawn)}{which_runs(record)}",
        drawing=chart.draw("Share of packets marked against queue depth"),
    )


def _label(point: str, marking: MarkingCurve, classes: int) -> str:
    words = [point, marking.class_name if classes > 1 else "", marking.marker]
    return " ".join(word for word in words if word)


def _points(marking: MarkingCurve) -> list[tuple[float, float]]:
    """The middle of each bin with enough packets; the last bin, which has no upper end, is left out."""
    edges = marking.edges_bytes
    return [
        ((low + high) / 2, marked / packets)
        for low, high, packets, marked in zip(edges, edges[1:], marking.packets, marking.marked, strict=False)
        if packets >= FEWEST_PACKETS
    ]


def _crosses(points: list[tuple[float, float]], marking: MarkingCurve) -> bool:
    return len(points) >= _FEWEST_BINS and points[-1][0] > marking.kmin_bytes


def _ideal(marking: MarkingCurve, deepest: float) -> list[tuple[float, float]]:
    kmin, kmax = float(marking.kmin_bytes), float(marking.kmax_bytes)
    line = [(0.0, 0.0), (kmin, 0.0), (kmax, marking.pmax), (kmax, 1.0), (max(deepest, kmax), 1.0)]
    return [(min(depth, max(deepest, kmax)), share) for depth, share in line]


def _apart(drawn: list[tuple[str, int, MarkingCurve, list[tuple[float, float]]]]) -> str:
    """Return how far two markers of one curve are from each other, where bins of both are judged."""
    if len(drawn) != 2 or drawn[0][2].edges_bytes != drawn[1][2].edges_bytes:
        return ""
    judged = {low for low, ideal in zip(drawn[0][2].edges_bytes, drawn[0][2].ideal, strict=True) if ideal is not None}
    width = drawn[0][2].edges_bytes[1]
    first, second = dict(drawn[0][3]), dict(drawn[1][3])
    both = [depth for depth in first.keys() & second.keys() if depth - width / 2 in judged]
    if not both:
        return ""
    most = max(abs(first[depth] - second[depth]) for depth in both)
    return f" Away from the step at Kmax the two are {100 * most:.1f} percentage points apart at most."
