"""Rows of one figure each: a bar or the runs' dots, their range, the band an oracle predicts, the ideal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.record.report.chart.axis import Axis
from testbed.record.report.chart.labels import CHARACTER, shortened
from testbed.record.report.chart.svg import Drawing, document, element, hover, path, text, tone

WIDTH = 560
_LEFT, _TOP, _FOOT = 4, 8, 26
_LEAST_RIGHT, _MOST_RIGHT = 108, 260
"""Room for the values as they are written, at the right."""
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
    longest = max((len(row.written) for row in rows), default=0)
    scale = _Scale(axis=axis, right=min(_MOST_RIGHT, max(_LEAST_RIGHT, round(CHARACTER * longest) + 18)))
    titled = axis.title != axis.word
    floor = _TOP + _ROW * len(rows)
    height = floor + _FOOT + (_TITLE if titled else 0)
    inside = []
    for number, (value, label) in enumerate(axis.ticks, start=1):
        x = scale.x(value)
        if not titled and number == len(axis.ticks):
            label = f"{label}{axis.word}" if axis.word == "%" else f"{label} {axis.word}".rstrip()  # noqa: PLW2901
        inside.append(element("path", d=path([(x, _TOP - 4), (x, floor)]), cls="grid"))
        inside.append(text(label, x, floor + 18, "tick", anchor="start" if x < _LEFT + 12 else "middle"))
    if titled:
        inside.append(text(shortened(axis.heading, WIDTH), float(WIDTH - 2), height - 6.0, "title", anchor="end"))
    for index, row in enumerate(rows):
        inside.append(_row(row, scale, _TOP + _ROW * index, bars=bars))
    legend = [("band", "predicted")] if any(row.band for row in rows) else []
    legend += [("ideal", "ideal")] if any(row.ideal is not None for row in rows) else []
    legend += [("runs", "single runs")] if any(len(row.dots) > 1 for row in rows) else []
    return Drawing(svg=document(inside, width=WIDTH, height=height, described=described), legend=tuple(legend))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    """Places on an axis that ends where the written values begin."""

    axis: Axis
    right: int

    def x(self, value: float) -> float:
        return _LEFT + self.axis.place(value) * (WIDTH - _LEFT - self.right)


def _row(row: Row, scale: _Scale, top: float, *, bars: bool) -> str:
    cls = tone(row.series)
    parts = [hover(row.remark or row.label), text(shortened(row.label, WIDTH - 8), float(_LEFT), top + 11.0, "label")]
    middle = top + 27.0
    if row.band is not None:
        low, high = sorted(scale.x(end) for end in row.band)
        parts.append(element("rect", x=low, y=middle - 11, width=max(3.0, high - low), height=22.0, cls="band"))
    if row.value is not None:
        x = scale.x(row.value)
        if bars:
            base = scale.x(0.0)
            parts.append(
                element(
                    "rect", x=min(x, base), y=middle - 7, width=max(1.5, abs(x - base)), height=14.0, rx=2.0,
                    cls=f"bar {cls}",
                )
            )  # fmt: skip
        else:
            parts.append(element("path", d=path([(x, middle - 9), (x, middle + 9)]), cls=f"line thick {cls}"))
    if row.band is not None:
        x = scale.x(sum(row.band) / 2)
        line = path([(x, middle - 12), (x, middle + 12)])
        parts += [element("path", d=line, cls="halo"), element("path", d=line, cls=f"predicted {cls}")]
    if len(row.dots) > 1:
        parts += [element("circle", cx=scale.x(dot), cy=middle, r=3.4, cls=f"run {cls}") for dot in row.dots]
    if row.ideal is not None:
        x = scale.x(row.ideal)
        parts.append(element("path", d=path([(x, middle - 12), (x, middle + 12)]), cls="ideal"))
    room = scale.right - 12.0
    parts.append(text(shortened(row.written, room), float(WIDTH - 2), middle + 5, "value", anchor="end"))
    return element("g", *parts)
