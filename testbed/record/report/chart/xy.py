"""Lines and points over two axes, with the ideal they are to be held against."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.record.report.chart.axis import Axis
from testbed.record.report.chart.labels import Labels, Line, Spot, is_crossed, shortened
from testbed.record.report.chart.svg import Drawing, document, element, hover, number, path, text, tone

Point = tuple[float, float]

WIDTH = 560
_TOP, _BOTTOM, _RIGHT = 34, 52, 16
_TICK_CHARACTER = 10.0
"""Width of a character of a tick's label as large as it gets: on a phone."""
MOST_DOTS = 64
"""The most dots that a line has; more run into each other."""
MOST_POINTS = 360
"""The most points of a line as wide as `WIDTH`; more cannot be told apart. A wider chart keeps more in proportion."""
_BUBBLE = 9.0
"""Radius of the bubble at the head of a moment."""
_DOT_STEP = 0.5
"""The step of the grid that dots stand on: dots nearer to each other look like one."""


class XYChart:
    """A chart to which lines are added in the order in which they are painted."""

    def __init__(
        self, *, x: Axis, y: Axis, height: float = 300, width: float = WIDTH, left: float | None = None
    ) -> None:
        """`left` is the room for the labels of the y axis, so that charts below each other can have the same."""
        self.x, self.y = x, y
        self.width, self.height = width, height
        self._left = label_room(y) if left is None else left
        self._painted: list[str] = []
        self._above: list[str] = []
        self._legend: list[tuple[str, str]] = []
        self._moments: list[tuple[float, str, str]] = []
        self._lines: list[Line] = []
        self._ideals: list[tuple[float, str]] = []
        """The height of each ideal, and its label."""
        self._labels = Labels(edge=(self._left, 20.0, self.width, self.height - _BOTTOM))

    def line(
        self,
        points: Sequence[Point],
        *,
        series: int = 0,
        label: str = "",
        weight: str = "",
        dots: bool = False,
        remark: str = "",
        listed: bool = True,
    ) -> None:
        """`series` chooses the colour, `weight` is "thin", "fine", "thick" or "".

        `label` goes to the legend if `listed`.
        """
        if not points:
            return
        cls = tone(series)
        places = [self._at(point) for point in thin(points, self._most)]
        self._lines.append(places)
        self._painted.append(
            element("path", hover(remark or label), d=path(places), cls=f"line {cls} {weight}".strip())
        )
        if (dots and len(points) <= MOST_DOTS) or len(points) == 1:
            self._painted += [element("circle", cx=x, cy=y, r=3.2, cls=f"dot {cls}") for x, y in places]
        if label and listed:
            self._list(cls, label)

    def band(self, lower: Sequence[Point], upper: Sequence[Point], *, series: int = 0) -> None:
        """The area between two lines over the same places, behind the line of the same `series`."""
        if len(lower) < 2 or len(upper) < 2:
            return
        edge = [self._at(point) for point in (*thin(lower, self._most), *reversed(thin(upper, self._most)))]
        self._painted.append(element("path", d=path(edge) + "Z", cls=f"area {tone(series)}"))

    def steps(self, points: Sequence[Point], *, series: int = 0, label: str = "", weight: str = "") -> None:
        """A line that keeps each value until the next one; its corners take more points than a plain line's."""
        if not points:
            return
        cls = tone(series)
        drawn = f"M{number(self._at(points[0])[0])} {number(self._at(points[0])[1])}"
        drawn += "".join(f"H{number(x)}V{number(y)}" for x, y in map(self._at, thin(points, 4 * self._most)[1:]))
        self._painted.append(element("path", hover(label), d=drawn, cls=f"line {cls} {weight}".strip()))
        if label:
            self._list(cls, label)

    def dots(self, points: Sequence[Point], *, series: int = 0, label: str = "", big: bool = False) -> None:
        """Many points without a line. Those that would cover each other are drawn once."""
        if not points:
            return
        cls = tone(series)
        places = {tuple(round(value / _DOT_STEP) * _DOT_STEP for value in self._at(point)) for point in points}
        drawn = "".join(f"M{number(x)} {number(y)}h0" for x, y in sorted(places))
        self._painted.append(element("path", hover(label), d=drawn, cls=f"dots {cls}{' big' if big else ''}"))
        if label:
            self._list(cls, label)

    def dot(self, point: Point, *, series: int = 0, label: str = "", beside: bool = True, remark: str = "") -> None:
        """One point; `label` stands beside it, or in the legend."""
        x, y = self._at(point)
        self._painted.append(element("circle", hover(remark or label), cx=x, cy=y, r=5.0, cls=f"dot {tone(series)}"))
        if label and not beside:
            self._list(tone(series), label)
        elif label:
            spots = [
                Spot(x=x + side * 8, y=y + down, anchor="start" if side > 0 else "end")
                for down in (-7.0, 19.0)
                for side in ((-1, 1) if x > self.width * 0.7 else (1, -1))
            ]
            if not self._write(label, spots, "note"):
                self._list(tone(series), label)

    def ideal(self, value: float, label: str) -> None:
        """A dashed line across at `value`, named on it where neither a label nor a line is, or in the legend."""
        y = self._at((self.x.low, value))[1]
        self._above.append(
            element("path", hover(label), d=path([(self._left, y), (self.width - _RIGHT, y)]), cls="ideal")
        )
        self._ideals.append((y, label))

    def ideal_line(self, points: Sequence[Point], label: str) -> None:
        """Draw what the lines would be at best, where that is a curve; named in the legend."""
        if points:
            places = [self._at(point) for point in thin(points, MOST_POINTS)]
            self._painted.append(element("path", hover(label), d=path(places), cls="ideal"))
            self._list("ideal", label)

    def predicted(self, points: Sequence[Point], *, series: int = 0, label: str = "predicted") -> None:
        """Draw what an oracle says that the line of the same `series` should be: dotted, in its colour."""
        if not points:
            return
        places = [self._at(point) for point in thin(points, self._most)]
        dot = [(x + 0.1, y) for x, y in places] if len(places) == 1 else []
        self._painted.append(element("path", hover(label), d=path([*places, *dot]), cls=f"predicted {tone(series)}"))
        self._list("predicted t6", label)

    def mark(self, at: float, name: str, remark: str) -> None:
        """A moment: a line from top to bottom, with `name` in a bubble near its head, clear of other labels."""
        self._moments.append((at, name, remark))

    def draw(self, described: str) -> Drawing:
        """Return the drawing; nothing is added to the chart any more."""
        for ideal in self._ideals:
            self._name_ideal(*ideal)
        lines = [self._moment(at, remark) for at, _, remark in self._moments]
        numbers = [self._bubble(*moment) for moment in self._moments]  # after the lines, which may be near each other
        inside = [*self._frame(), *self._painted, *self._above, *lines, *numbers]
        svg = document(inside, width=self.width, height=self.height, described=described)
        return Drawing(svg=svg, legend=tuple(self._legend))

    @property
    def _most(self) -> int:
        """Return how many points of a line can be told apart."""
        return round(MOST_POINTS * self.width / WIDTH)

    def _write(self, label: str, spots: Sequence[Spot], cls: str) -> bool:
        """Write a label at the first of these places that is free; tell whether one was."""
        spot = self._labels.place(label, spots)
        if spot is not None:
            self._above.append(text(label, spot.x, spot.y, cls, anchor=spot.anchor))
        return spot is not None

    def _name_ideal(self, y: float, label: str) -> None:
        ends = ((self.width - _RIGHT - 4, "end"), (self._left + 6, "start"))
        rows = (y + 15, y - 5) if y < _TOP + 22 else (y - 5, y + 15)
        spots = [Spot(x=x, y=row, anchor=anchor) for x, anchor in ends for row in rows]
        clear = [spot for spot in spots if not any(is_crossed(spot.box(label), line) for line in self._lines)]
        if not self._write(label, clear, "name"):
            self._list("ideal", label)

    def _moment(self, at: float, remark: str) -> str:
        x = self._at((at, self.y.low))[0]
        line = element("path", d=path([(x, _TOP), (x, self.height - _BOTTOM)]), cls="moment")
        return element("g", hover(remark), line)

    def _bubble(self, at: float, name: str, remark: str) -> str:
        x = self._at((at, self.y.low))[0]
        at_x = min(max(x, self._left + _BUBBLE), self.width - _BUBBLE)
        first, last = round(_TOP + 4), round(self.height - _BOTTOM - _BUBBLE)
        for y in range(first, last, 20):
            if self._labels.take((at_x - _BUBBLE, y - _BUBBLE, at_x + _BUBBLE, y + _BUBBLE)):
                circle = element("circle", cx=at_x, cy=float(y), r=_BUBBLE, cls="bubble")
                return element("g", hover(remark), circle, text(name, at_x, y + 4.0, "bubble-name", anchor="middle"))
        return ""

    def _list(self, cls: str, label: str) -> None:
        if (cls, label) not in self._legend:
            self._legend.append((cls, label))

    def _at(self, point: Point) -> Point:
        x, y = point
        across, up = self.width - self._left - _RIGHT, self.height - _TOP - _BOTTOM
        return self._left + self.x.place(x) * across, self.height - _BOTTOM - self.y.place(y) * up

    def _frame(self) -> list[str]:
        right, floor = self.width - _RIGHT, self.height - _BOTTOM
        parts = [text(shortened(self.y.heading, self.width - 4), 2.0, 17.0, "title")]
        for value, label in self.y.ticks:
            y = self._at((self.x.low, value))[1]
            parts.append(element("path", d=path([(self._left, y), (right, y)]), cls="grid"))
            parts.append(text(label, self._left - 7, y + 4.5, "tick", anchor="end"))
        last = float("-inf")
        for value, label in self.x.ticks:
            x = self._at((value, self.y.low))[0]
            half = _TICK_CHARACTER * len(label) / 2
            if x - half < last:
                continue  # no room beside the one before
            last = x + half
            anchor = "end" if x + half > self.width else "middle"
            parts.append(element("path", d=path([(x, floor), (x, floor + 4)]), cls="axis"))
            parts.append(text(label, min(x, self.width - 2), floor + 20, "tick", anchor=anchor))
        parts.append(element("path", d=path([(self._left, floor), (right, floor)]), cls="axis"))
        parts.append(text(shortened(self.x.heading, right), right, self.height - 8, "title", anchor="end"))
        return parts


def label_room(y: Axis) -> float:
    """The width that the labels of a y axis need to the left of a chart."""
    return max(34.0, 12 + _TICK_CHARACTER * max(len(label) for _, label in y.ticks))


def thin(points: Sequence[Point], most: int) -> Sequence[Point]:
    """Return at most about `most` points of a line, with the lowest and highest of each stretch kept, so that no peak
    goes."""
    if len(points) <= most:
        return points
    stretch = -(-2 * len(points) // most)
    kept: list[Point] = [points[0]]
    for begin in range(1, len(points) - 1, stretch):
        part = range(begin, min(begin + stretch, len(points) - 1))
        ends = {min(part, key=lambda index: points[index][1]), max(part, key=lambda index: points[index][1])}
        kept += [points[index] for index in sorted(ends)]
    kept.append(points[-1])
    return kept
