"""Drawings: values where they belong, ticks people read, nothing of a stranger in the markup."""

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
    rank_axis,
    style_sheet,
    thin,
)
from testbed.record.report.chart.labels import shortened

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
    assert labels(linear_axis("time", "ratio", [longest], tight=True)) == expected


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


@pytest.mark.parametrize(
    ("longest", "expected"), [(10.4, ["0", "5", "10"]), (4.2, ["0", "1", "2", "3", "4"]), (52.0, ["0", "20", "40"])]
)
def test_there_are_no_halves_of_what_is_counted(longest: float, expected: list[str]) -> None:
    assert labels(linear_axis("connections", "count", [longest], tight=True)) == expected
    assert labels(linear_axis("lost", "packet", [longest], tight=True)) == expected


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (1, ["1", "2"]),
        (4, ["1", "2", "3", "4"]),
        (8, ["1", "2", "3", "4", "5", "6", "7", "8"]),
        (16, ["1", "5", "10", "16"]),
        (2048, ["1", "500", "1,000", "1,500", "2,048"]),
    ],
)
def test_ranks_are_whole_numbers_from_the_first_to_the_last(last: int, expected: list[str]) -> None:
    axis = rank_axis("flow", last)
    assert labels(axis) == expected
    assert axis.place(1) == 0.0 and axis.place(max(2, last)) == 1.0


def test_a_logarithmic_axis_says_so() -> None:
    assert log_axis("size", "byte", [1024, 2**20]).heading == "size (log scale)"
    assert log_axis("slowdown", "ratio", [1, 8]).heading == "slowdown (log scale)"
    assert numbered_axis("senders", [2, 32]).heading == "senders (log scale)"
    assert numbered_axis("senders", [2, 3]).heading == "senders"
    assert linear_axis("time", "s", [1.0]).heading == "time, s"
    chart = XYChart(x=log_axis("size", "byte", [1024, 2**20]), y=linear_axis("y", "", [0, 1]))
    assert ">size (log scale)<" in chart.draw("d").svg


def test_next_to_nothing_is_nothing() -> None:
    assert labels(linear_axis("x", "ratio", [0.0], least=2e-309)) == labels(linear_axis("x", "ratio", [0.0]))


def test_chosen_numbers_are_their_own_ticks() -> None:
    axis = numbered_axis("senders", [16, 2, 4, 8, 4])
    assert labels(axis) == ["2", "4", "8", "16"]
    assert axis.place(8) == pytest.approx(2 / 3)
    assert numbered_axis("one", [3]).place(3) == 0.5
    assert labels(numbered_axis("bytes", [0.5, 2_000_000, 1_000_000])) == ["0.5", "1,000,000", "2,000,000"]


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


def test_what_was_predicted_is_drawn_otherwise_than_what_is_ideal() -> None:
    chart = XYChart(x=linear_axis("x", "", [0, 1]), y=linear_axis("y", "", [0, 1]))
    chart.predicted([(0, 0.5), (1, 0.6)], series=2)
    chart.ideal_line([(0, 1.0), (1, 1.0)], "ideal")
    drawing = chart.draw("d")
    assert drawing.legend == (("predicted t6", "predicted"), ("ideal", "ideal"))
    assert 'class="predicted t3"' in drawing.svg and 'class="ideal"' in drawing.svg
    rules = {name: re.findall(rf"\.chart \.{name} {{(.*?)}}", style_sheet()) for name in ("predicted", "ideal")}
    dashes = [re.search(r"stroke-dasharray: ([^;]+)", rules[name][0]) for name in ("predicted", "ideal")]
    assert None not in dashes and dashes[0][1] != dashes[1][1]  # type: ignore[index]
    row = Row(label="x", value=0.6, written="60%", band=(0.7, 0.7), ideal=1.0)
    svg = draw_rows([row], linear_axis("", "share", [0, 1]), described="d").svg
    assert svg.count('class="predicted t1"') == 1 and svg.count('class="ideal"') == 1


def texts_of(svg: str, cls: str) -> list[tuple[float, float, str]]:
    found = (one for one in ElementTree.fromstring(svg).iter(f"{SVG}text") if one.get("class") == cls)
    return [(float(one.get("x") or 0), float(one.get("y") or 0), one.text or "") for one in found]


def test_labels_that_would_overlap_go_to_another_side_or_to_the_legend() -> None:
    chart = XYChart(x=linear_axis("x", "", [0, 1]), y=linear_axis("y", "", [0, 1]))
    for number in range(6):
        chart.dot((0.4, 0.5), series=number, label=f"point{number}")
    drawing = chart.draw("d")
    places = [(x, y) for x, y, _ in texts_of(drawing.svg, "note")]
    assert len(places) == len(set(places)) == 4
    assert [label for _, label in drawing.legend] == ["point4", "point5"]


def test_names_of_ideals_that_are_near_each_other_are_apart() -> None:
    chart = XYChart(x=linear_axis("x", "", [0, 1]), y=linear_axis("y", "", [0, 1]))
    chart.ideal(0.8, "first")
    chart.ideal(0.81, "second")
    (x, y, _), (beside, below, _) = texts_of(chart.draw("d").svg, "name")
    assert abs(y - below) > 12 or abs(x - beside) > 200


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ([(0, 0.1), (1, 0.1)], "right"),
        ([(0, 0.1), (0.7, 0.1), (1, 1.0)], "left"),
        ([(0, 0.84), (1, 0.84), (1, 0.76), (0, 0.76)], "legend"),
    ],
    ids=["far", "steep", "along"],
)
def test_the_name_of_an_ideal_is_where_no_line_leads(line: list[tuple[float, float]], place: str) -> None:
    chart = XYChart(x=linear_axis("x", "", [0, 1]), y=linear_axis("y", "", [0, 1]))
    chart.ideal(0.8, "ideal")
    chart.line(line)
    drawing = chart.draw("d")
    written = ["right" if x > 280 else "left" for x, _, _ in texts_of(drawing.svg, "name")]
    assert [*written, *("legend" for _ in drawing.legend)] == [place]


def test_moments_at_one_time_have_their_bubbles_below_each_other() -> None:
    chart = XYChart(x=linear_axis("x", "", [0, 1]), y=linear_axis("y", "", [0, 1]))
    for number in range(1, 31):
        chart.mark(0.5, str(number), f"event {number}")
    svg = chart.draw("d").svg
    heights = [y for _, y, _ in texts_of(svg, "bubble-name")]
    assert len(heights) == len(set(heights)) > 5
    assert svg.count('class="moment"') == 30
    assert svg.rindex('class="moment"') < svg.index('class="bubble"'), "a line through a number"


def test_names_that_are_too_long_keep_both_ends() -> None:
    assert shortened("p1-s1-rail1:uplink1", 1000) == "p1-s1-rail1:uplink1"
    assert shortened("p1-s1-rail1:uplink1", 76) == "p1-s1…ink1"
    row = Row(label="x" * 200, value=0.5, written="98%, 1,234,567 lost")
    svg = draw_rows([row], linear_axis("", "share", [0, 1]), described="d").svg
    assert ">98%, 1,234,567 lost<" in svg and "…" in svg


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
