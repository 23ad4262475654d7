"""A table of shades: rows against columns, each cell as full as its value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.record.report.chart.labels import shortened
from testbed.record.report.chart.svg import Drawing, document, element, hover, text

MOST = 64
"""Rows, and columns: more cannot be told apart."""
_CHARACTER = 8.2
_CELL_HEIGHT, _WRITTEN_CELL = 30.0, 44.0
_MOST_LEFT, _MOST_ABOVE = 240.0, 220.0
"""Room for the names of rows, and for those of columns; longer ones are shortened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shade:
    """`share` (0 to 1) is its shade; `flagged` gets a frame."""

    share: float
    written: str
    remark: str = ""
    flagged: bool = False


def draw_heat_map(
    rows: Sequence[str], columns: Sequence[str], cells: Mapping[tuple[str, str], Shade], *, described: str
) -> Drawing:
    """Values are written into the cells where there is room; elsewhere the pointer shows them."""
    rows, columns = rows[:MOST], columns[:MOST]
    left = 10 + _CHARACTER * max((len(row) for row in rows), default=0)
    left = min(left, _MOST_LEFT)
    cell = max(14.0, min(120.0, (760 - left) / max(1, len(columns))))
    longest = min(_CHARACTER * max((len(column) for column in columns), default=0), _MOST_ABOVE)
    slanted = longest > cell - 4
    top = 14 + 0.9 * longest if slanted else 26.0
    beyond = max(2.0, 0.5 * longest - cell / 2 + 8) if slanted else 2.0
    width, height = left + cell * len(columns) + beyond, top + _CELL_HEIGHT * len(rows) + 4
    inside = []
    for number, column in enumerate(columns):
        x = left + (number + 0.5) * cell
        if slanted:
            name = text(shortened(column, longest + 4, character=_CHARACTER), 0.0, 0.0, "tick")
            label = element("g", name, transform=f"translate({x:.1f} {top - 6:.1f}) rotate(-60)")
        else:
            label = text(column, x, top - 8, "tick", anchor="middle")
        inside.append(label)
    for line, row in enumerate(rows):
        y = top + line * _CELL_HEIGHT
        name = shortened(row, left - 6, character=_CHARACTER)
        inside.append(text(name, left - 8, y + _CELL_HEIGHT / 2 + 4, "tick", anchor="end"))
        for number, column in enumerate(columns):
            found = cells.get((row, column))
            if found is not None:
                inside.append(_cell(found, left + number * cell, y, cell))
    return Drawing(svg=document(inside, width=width, height=height, described=described, natural=True))


def _cell(found: Shade, x: float, y: float, width: float) -> str:
    shade = min(1.0, max(0.0, found.share))
    parts = [
        hover(found.remark),
        element(
            "rect", x=x + 1, y=y + 1, width=width - 2, height=_CELL_HEIGHT - 2, rx=3.0,
            cls="cell flagged" if found.flagged else "cell", fill_opacity=f"{0.07 + 0.88 * shade:.2f}",
        ),
    ]  # fmt: skip
    if width >= _WRITTEN_CELL:
        cls = "full" if shade >= 0.55 else "faint"
        parts.append(text(found.written, x + width / 2, y + _CELL_HEIGHT / 2 + 4.5, cls, anchor="middle"))
    return element("g", *parts)
