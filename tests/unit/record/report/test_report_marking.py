"""The picture of marks against depth: both markers and the ideal in one, none where queues stayed empty."""

import re
from dataclasses import replace

import pytest
from recorded import load

from testbed.record.record import Record
from testbed.record.report import render_report
from testbed.record.report.scenario.plots.links import plot_marking
from testbed.record.samples import MarkingCurve

KMIN, KMAX, PMAX, BINS = 100_000, 400_000, 0.2, 24
WIDTH = KMAX / 16


def curve(marker: str, *, off: int = 0, packets: int = 1000) -> MarkingCurve:
    """Of a marker that marks `off` packets too many in each bin between the steps."""
    edges = [number * WIDTH for number in range(BINS)]
    on_line = [PMAX * max(0.0, edge - KMIN) / (KMAX - KMIN) for edge in edges]
    marked = [
        packets if edge >= KMAX else round(packets * share) + off for edge, share in zip(edges, on_line, strict=True)
    ]
    return MarkingCurve(
        class_name="rdma",
        marker=marker,
        queues=1,
        kmin_bytes=KMIN,
        kmax_bytes=KMAX,
        pmax=PMAX,
        edges_bytes=edges,
        packets=[packets] * BINS,
        marked=marked,
        ideal=[None if edge == KMAX else 0.0 for edge in edges],
    )


def with_marking(*markings: MarkingCurve) -> Record:
    """A record whose first points have these curves, and no other points."""
    record = load("permutation-lb")
    points = [
        replace(point, name=f"by={item.marker}", runs=[replace(run, marking=[item]) for run in point.runs])
        for point, item in zip(record.points, markings, strict=False)
    ]
    assert len(points) == len(markings)
    return replace(record, points=points)


def test_both_markers_stand_in_one_picture_with_the_ideal_and_their_distance() -> None:
    plot = plot_marking(with_marking(curve("eBPF"), curve("RED", off=30)))
    assert [label for _, label in plot.drawing.legend] == ["the curve as configured", "by=eBPF eBPF", "by=RED RED"]
    assert "3.0 percentage points apart" in plot.caption
    assert plot.drawing.svg.count('class="ideal"') == 1


def test_runs_of_one_point_are_one_colour_and_one_word_of_the_legend() -> None:
    record = with_marking(curve("eBPF"))
    point = record.points[0]
    runs = [replace(point.runs[0], index=number) for number in (1, 2, 3)]
    plot = plot_marking(replace(record, points=[replace(point, runs=runs)]))
    assert [label for _, label in plot.drawing.legend] == ["the curve as configured", "eBPF"]
    assert re.findall(r'class="line (t1 [a-z]+)"', plot.drawing.svg) == ["t1 thin", "t1 thin", "t1 thick"]
    assert "percentage points apart" not in plot.caption, "two runs of one marker are no two markers"


def test_the_page_has_it() -> None:
    assert "ECN marks against queue depth" in render_report(with_marking(curve("eBPF"), curve("RED")))


@pytest.mark.parametrize("packets", [0, 99])
def test_queues_that_hardly_filled_have_no_picture(packets: int) -> None:
    assert plot_marking(with_marking(curve("eBPF", packets=packets))) is None
    assert plot_marking(load("permutation-lb")) is None


def test_depths_that_nothing_was_measured_between_are_not_joined() -> None:
    """Bins 3 to 5 and bin 9 have packets, those between them too few: two lines would be one through nothing."""
    measured = {3, 4, 5, 9}
    whole = curve("eBPF")
    gappy = replace(whole, packets=[1000 if number in measured else 20 for number in range(BINS)])
    plot = plot_marking(with_marking(gappy))
    lines = re.findall(r'<path d="([^"]+)" class="line t1 thick"', plot.drawing.svg)
    assert sorted(line.count("L") for line in lines) == [0, 2], "the one depth beyond the gap stands alone"
    others = plot.drawing.svg.count("line t1 thin") // 2
    assert len(re.findall(r'<circle [^>]*class="dot t1"', plot.drawing.svg)) == 4 + others, "a thin line has none"
