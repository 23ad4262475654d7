"""A drawing of a report as a figure of a paper: with its legend, in a size and type of its own, in colours or in grey.

A paper has no dark mode and no page around the figure: colours are the style sheet's light ones, written out. Text can
be as large in relation to the drawing as it is on a phone, for which drawings leave room.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from testbed.base.errors import RecordError
from testbed.record.report.chart.sheet import FONT_SIZE, light_colours, plain_rules
from testbed.record.report.chart.svg import TONES, Drawing, element, number, path, text
from testbed.record.report.chart.xy import WIDTH

MM_PER_PT = 25.4 / 72
MM_PER_UNIT = 25.4 / 96
"""A drawing's unit where no width is asked for: the pixel of CSS."""
LARGEST_TEXT = 18.0
"""The largest text in units, as on a phone; larger labels would run into each other."""
_COLOUR = re.compile("#[0-9a-fA-F]{6}")
_VIEW_BOX = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
_CHARACTER = 0.6
"""The width of a character, in sizes of its font."""
_KEY, _GAP = 34.0, 16.0
_GREYS: Mapping[str, str] = MappingProxyType(
    {
        "--c1": "#000000", "--c2": "#6e6e6e", "--c3": "#9a9a9a", "--c4": "#3c3c3c", "--c5": "#858585",
        "--c6": "#b5b5b5", "--ink": "#000000", "--soft": "#303030", "--faint": "#707070", "--grid": "#e4e4e4",
        "--accent": "#000000",
        "--l0": "#d4d4d4", "--l1": "#b4b4b4", "--l2": "#8e8e8e", "--l3": "#686868", "--l4": "#3c3c3c",
        "--l5": "#000000",
        "--ok": "#000000", "--bad": "#000000", "--warn": "#4a4a4a", "--band": "#dcdcdc",
    }
)  # fmt: skip
"""By the variables of the style sheet; others are as light as they are in colour."""
_DASHES = ("", "7 3", "2 2.5", "9 3 2 3", "4 2", "1 3")
"""The dashes of lines by tone where there are only greys to tell them apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureStyle:
    """The looks of a figure. `width_mm` None: as wide as it is drawn. `font_pt` None: in proportion to the width."""

    width_mm: float | None = None
    font: str = ""
    """A family; "" is that of reports."""
    font_pt: float | None = None
    greyscale: bool = False
    titled: bool = False
    """Write the title above it; a paper has it in its caption."""
    dpi: int = 300
    """The resolution at which a PNG is drawn."""


PLAIN_FIGURE = FigureStyle()


def draw_figure(title: str, drawing: Drawing, style: FigureStyle = PLAIN_FIGURE, *, halo: bool = True) -> str:
    """The text of an SVG file that needs nothing else. `halo`: text has a white edge, which Cairo cannot draw.

    A drawing that is wider than most has text as large as there is room for. Raises `RecordError` where text would be
    too large for the width in any.
    """
    found = _VIEW_BOX.search(drawing.svg)
    assert found is not None
    width, height = float(found[1]), float(found[2])
    unit_mm = MM_PER_UNIT if style.width_mm is None else style.width_mm / width
    size = _text_units(style, unit_mm, width)
    rules = plain_rules(_greys() if style.greyscale else {}, scale=size / FONT_SIZE, font=style.font, halo=halo)
    rules += _dashed() if style.greyscale else []
    inside = [element("style", " ".join(rules)), element("rect", width="100%", height="100%", fill="#ffffff")]
    y = 0.0
    if style.titled:
        inside.append(text(title, 2.0, size * 1.3, "label"))
        y = size * 2
    inside.append(element("svg", drawing.svg, x=0.0, y=y, width=width, height=height))
    y += height
    keys, legend_height = _legend(drawing.legend, width, y, size)
    y += legend_height
    return element(
        "svg",
        *inside,
        *keys,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {number(width)} {number(y)}",
        width=f"{width * unit_mm:.2f}mm",
        height=f"{y * unit_mm:.2f}mm",
        role="img",
        aria_label=title,
        cls="chart",
    )


def _text_units(style: FigureStyle, unit_mm: float, width: float) -> float:
    """The size of text, in units of the drawing. Raises `RecordError` where that is more than there is room for."""
    if style.font_pt is None:
        return FONT_SIZE
    units = style.font_pt * MM_PER_PT / unit_mm
    if units > LARGEST_TEXT and width > WIDTH and units * WIDTH / width <= LARGEST_TEXT:
        return LARGEST_TEXT
    if units > LARGEST_TEXT * (1 + 1e-6):
        most = math.floor(LARGEST_TEXT * unit_mm / MM_PER_PT * 10) / 10
        wide = (style.width_mm or 0.0) * units / LARGEST_TEXT
        raise RecordError(
            f"text of {style.font_pt:g} pt is too large for this width: at most {most:g} pt",
            hint=f"a smaller --font-size, or --width {wide:.0f}mm" if style.width_mm else "a smaller --font-size",
        )
    return units


def _greys() -> dict[str, str]:
    """The colours of the style sheet as greys."""
    found = {name: value for name, value in light_colours().items() if _COLOUR.fullmatch(value)}
    return {name: _grey(value) for name, value in found.items()} | dict(_GREYS)


def _grey(colour: str) -> str:
    """The grey that is as light as a colour, by the luma of ITU-R BT.601."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + f"{round(0.299 * red + 0.587 * green + 0.114 * blue):02x}" * 3


def _dashed() -> list[str]:
    return [
        f".chart .line.t{tone} {{stroke-dasharray: {_DASHES[tone - 1]};}}" for tone in range(2, TONES + 1)
    ]  # fmt: skip


def _legend(legend: Sequence[tuple[str, str]], width: float, top: float, size: float) -> tuple[list[str], float]:
    """The keys below a drawing, in as many rows as they need, and how high these are together."""
    parts: list[str] = []
    row_height = size * 1.7
    x, y = 2.0, top + row_height * 0.7
    for cls, label in legend:
        needed = _KEY + _GAP + _CHARACTER * size * len(label)
        if x > 2.0 and x + needed > width:
            x, y = 2.0, y + row_height
        parts += [_key(cls, x, y - size * 0.35), text(label, x + _KEY, y, "note")]
        x += needed
    return parts, (y - top + row_height * 0.5 if legend else 0.0)


def _key(cls: str, x: float, y: float) -> str:
    """The sign of a label: a line, the band of a prediction, or the dot of a run."""
    if cls == "band":
        return element("rect", x=x, y=y - 5, width=_KEY - 6, height=10.0, cls="band")
    if cls == "runs":
        return element("circle", cx=x + (_KEY - 6) / 2, cy=y, r=3.4, cls="run t6")
    line = "ideal" if cls == "ideal" else f"line {cls}"
    return element("path", d=path([(x, y), (x + _KEY - 6, y)]), cls=line)
