"""Rows of one figure each: a bar or the runs' dots, their range, the band an oracle predicts, the ideal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.record.report.chart.axis import Axis
from testbed.record.report.chart.svg import Drawing, document, element, hover, path, text, tone

WIDTH = 560
_LEFT, _RIGHT, _TOP, _FOOT = 4, 108, 8, 26
_TITLE = 20
_ROW = 46


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`value` None: it was not measured. `band` is what was predicted, `dots` the single runs."""

    label: str
    value: float | None
    written: str
    """The value as people read it."""
    dots: Sequence[float] = ()
    band: tuple[float, float] | None = None
    ideal: float | None = None
    series: int = 0
    remark: str = ""


def draw_rows(rows: Sequence[Row], axis: Axis, *, described: str, bars: bool = True) -> Drawing:
    """A chart as high as it has rows. Without `bars` the value is a tick among the dots."""
    titled = axis.title != axis.word
    floor = _TOP + _ROW * len(rows)
    height = floor + _FOOT + (_TITLE if titled else 0)
    inside = []
    for number, (value, label) in enumerate(axis.ticks, start=1):
        x = _x(axis, value)
        if not titled and number == len(axis.ticks):
            label = f"{label}{axis.word}" if axis.word == "%" else f"{label} {axis.word}".rstrip()  # noqa: PLW2901
        inside.append(element("path", d=path([(x, _TOP - 4), (x, floor)]), cls="grid"))
        inside.append(text(label, x, floor + 18, "tick", anchor="start" if x < _LEFT + 12 else "middle"))
    if titled:
        inside.append(text(axis.title, float(WIDTH - 2), height - 6.0, "title", anchor="end"))
    for index, row in enumerate(rows):
        inside.append(_row(row, axis, _TOP + _ROW * index, bars=bars))
    legend = [("band", "predicted")] if any(row.band for row in rows) else []
    legend += [("ideal", "ideal")] if any(row.ideal is not None for row in rows) else []
    legend += [("runs", "single runs")] if any(len(row.dots) > 1 for row in rows) else []
    return Drawing(svg=document(inside, width=WIDTH, height=height, described=described), legend=tuple(legend))


def _row(row: Row, axis: Axis, top: float, *, bars: bool) -> str:
    cls = tone(row.series)
    parts = [hover(row.remark), text(row.label, float(_LEFT), top + 11.0, "label")]
    middle = top + 27.0
    if row.band is not None:
        low, high = sorted(_x(axis, end) for end in row.band)
        parts.append(element("rect", x=low, y=middle - 11, width=max(3.0, high - low), height=22.0, cls="band"))
    if row.value is not None:
        x = _x(axis, row.value)
        if bars:
            base = _x(axis, 0.0)
            parts.append(
                element(
                    "rect", x=min(x, base), y=middle - 7, width=max(1.5, abs(x - base)), height=14.0, rx=2.0,
                    cls=f"bar {cls}",
                )
            )  # fmt: skip
        else:
            parts.append(element("path", d=path([(x, middle - 9), (x, middle + 9)]), cls=f"line thick {cls}"))
    if len(row.dots) > 1:
        parts += [element("circle", cx=_x(axis, dot), cy=middle, r=3.4, cls=f"run {cls}") for dot in row.dots]
    if row.ideal is not None:
        x = _x(axis, row.ideal)
        parts.append(element("path", d=path([(x, middle - 12), (x, middle + 12)]), cls="ideal"))
    parts.append(text(row.written, float(WIDTH - 2), middle + 5, "value", anchor="end"))
    return element("g", *parts)


def _x(axis: Axis, value: float) -> float:
    return _LEFT + axis.place(value) * (WIDTH - _LEFT - _RIGHT)
