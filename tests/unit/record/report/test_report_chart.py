"""Drawings: values where they belong, ticks people read, nothing of a stranger in the markup."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.record.report.chart import (
    Axis,
    Row,
    Shade,
    XYChart,
    draw_heat_map,
    draw_rows,
    linear_axis,
    log_axis,
    numbered_axis,
    thin,
)

SVG = "{http://www.w3.org/2000/svg}"
FINITE = st.floats(allow_nan=False, allow_infinity=False)
UNITS = st.sampled_from(["share", "ratio", "s", "bit/s", "byte", "byte/s", "count", "packet", "furlongs", ""])


def labels(axis: Axis) -> list[str]:
    return [label for _, label in axis.ticks]


@pytest.mark.parametrize(
    ("longest", "expected"),
    [
        (10.4, ["0.0", "2.5", "5.0", "7.5", "10.0"]),
        (1.04, ["0.00", "0.25", "0.50", "0.75", "1.00"]),
        (104.0, ["0", "25", "50", "75", "100"]),
        (8.1, ["0", "2", "4", "6", "8"]),
    ],
)
def test_ticks_are_labelled_with_what_they_are(longest: float, expected: list[str]) -> None:
    assert labels(linear_axis("time", "count", [longest], tight=True)) == expected


def test_a_linear_axis_ends_at_ticks_and_holds_its_values() -> None:
    axis = linear_axis("goodput", "share", [0.31, 0.97], least=1.08)
    assert labels(axis) == ["0", "25", "50", "75", "100", "125"]
    assert axis.title == "goodput, %"
    assert axis.place(0.0) == 0.0 and axis.place(1.25) == 1.0 and axis.place(0.625) == pytest.approx(0.5)


def test_a_tight_axis_ends_with_its_values() -> None:
    axis = linear_axis("flow", "count", [1, 16], from_zero=False, tight=True)
    assert (axis.low, axis.high) == (1, 16)
    assert labels(axis) == ["5", "10", "15"]


@pytest.mark.parametrize(
    ("unit", "largest", "title"),
    [
        ("s", 0.0123, "t, ms"),
        ("s", 3e-6, "t, µs"),
        ("bit/s", 8e8, "t, Mbit/s"),
        ("byte", 2.5e5, "t, kB"),
        ("ratio", 2, "t"),
    ],
)
def test_units_by_the_largest_value(unit: str, largest: float, title: str) -> None:
    assert linear_axis("t", unit, [0.0, largest]).title == title


def test_bytes_go_by_powers_of_two() -> None:
    axis = log_axis("size", "byte", [65536, 16 * 2**20])
    assert labels(axis) == ["64 KiB", "256 KiB", "1 MiB", "4 MiB", "16 MiB"]
    assert axis.place(2**20) == pytest.approx(0.5)


def test_decades() -> None:
    assert labels(log_axis("time", "s", [0.002, 0.9])) == ["1", "10", "100", "1,000"]
    assert labels(log_axis("slowdown", "ratio", [1.0, 8.0])) == ["1", "2", "5", "10"]


def test_next_to_nothing_is_nothing() -> None:
    assert labels(linear_axis("x", "ratio", [0.0], least=2e-309)) == labels(linear_axis("x", "ratio", [0.0]))


def test_chosen_numbers_are_their_own_ticks() -> None:
    axis = numbered_axis("senders", [16, 2, 4, 8, 4])
    assert labels(axis) == ["2", "4", "8", "16"]
    assert axis.place(8) == pytest.approx(2 / 3)
    assert numbered_axis("one", [3]).place(3) == 0.5


@given(values=st.lists(FINITE, max_size=6), unit=UNITS, zero=st.booleans(), tight=st.booleans(), least=FINITE)
def test_any_numbers_make_a_linear_axis(values: list[float], unit: str, zero: bool, tight: bool, least: float) -> None:
    assume_axis(linear_axis("x", unit, values, from_zero=zero, tight=tight, least=min(least, 1e299)), values)


@given(values=st.lists(FINITE, max_size=6), unit=UNITS)
def test_any_numbers_make_a_logarithmic_axis(values: list[float], unit: str) -> None:
    assume_axis(log_axis("x", unit, values), values)


@given(values=st.lists(FINITE, max_size=6))
def test_any_numbers_make_a_numbered_axis(values: list[float]) -> None:
    assume_axis(numbered_axis("x", values), values)


def assume_axis(axis: Axis, values: list[float]) -> None:
    assert axis.low < axis.high
    assert len(axis.ticks) <= 20
    assert all(0 <= axis.place(value) <= 1 for value in values)
    assert all(math.isfinite(value) for value, _ in axis.ticks)


def test_lines_end_where_their_values_are() -> None:
    chart = XYChart(x=linear_axis("x", "", [0, 10]), y=linear_axis("y", "", [0, 1]), width=560, height=300)
    chart.line([(0, 0), (10, 1)], label="one & only")
    drawing = chart.draw("a line")
    root = ElementTree.fromstring(drawing.svg)
    line = next(item for item in root.iter(f"{SVG}path") if (item.get("class") or "").startswith("line"))
    found = re.fullmatch(r"M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)", line.get("d") or "")
    assert found is not None
    x0, y0, x1, y1 = map(float, found.groups())
    assert (x1, y0, y1) == (544.0, 248.0, 34.0) and x0 < 60
    assert drawing.legend == (("t1", "one & only"),)


@given(label=st.text(max_size=30), remark=st.text(max_size=30))
def test_any_text_is_text(label: str, remark: str) -> None:
    chart = XYChart(x=linear_axis(label, "", [0, 1]), y=linear_axis(label, remark, [0, 1]))
    chart.line([(0, 0), (1, 1)], label=label, remark=remark, dots=True)
    chart.mark(0.5, label, remark)
    chart.ideal(1.0, label)
    rows = draw_rows([Row(label=label, value=1.0, written=label, remark=remark)], chart.x, described=remark)
    cells = {(label, label): Shade(share=2.0, written=label, remark=remark, flagged=True)}
    shades = draw_heat_map([label], [label], cells, described=label)
    for drawing in (chart.draw(remark), rows, shades):
        root = ElementTree.fromstring(drawing.svg)
        assert {item.tag.removeprefix(SVG) for item in root.iter()} <= {
            "svg",
            "g",
            "path",
            "circle",
            "rect",
            "text",
            "title",
        }


def test_thinning_keeps_peaks_and_ends() -> None:
    points = [(float(at), 100.0 if at == 777 else float(at % 7)) for at in range(5000)]
    thinned = thin(points, 300)
    assert len(thinned) <= 310
    assert (777.0, 100.0) in thinned
    assert (thinned[0], thinned[-1]) == (points[0], points[-1])
    assert list(thinned) == sorted(thinned)
    assert thin(points[:10], 300) == points[:10]


def test_more_series_than_colours_are_dashed() -> None:
    chart = XYChart(x=linear_axis("x", "", [0, 1]), y=linear_axis("y", "", [0, 1]))
    for series in range(8):
        chart.line([(0, 0), (1, 1)], series=series, label=f"s{series}")
    assert [cls for cls, _ in chart.draw("d").legend][5:] == ["t6", "t1 again", "t2 again"]


def test_rows_show_band_runs_and_ideal() -> None:
    row = Row(label="mode=flow", value=0.6, written="60%", dots=[0.5, 0.6, 0.7], band=(0.55, 0.75), ideal=1.0)
    drawing = draw_rows([row], linear_axis("", "share", [0, 1]), described="d")
    assert drawing.legend == (("band", "predicted"), ("ideal", "ideal"), ("runs", "single runs"))
    assert drawing.svg.count('class="run t1"') == 3
    assert ">100%<" in drawing.svg, "the unit stands at the last tick where the axis has no title"
    missing = draw_rows([Row(label="x", value=None, written="–")], linear_axis("t", "", [1]), described="d")
    assert 'class="bar' not in missing.svg


def test_many_decades_have_a_unit_each() -> None:
    axis = log_axis("completion time", "s", [3e-6, 0.9])
    assert axis.title == "completion time"
    assert labels(axis) == ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s"]
