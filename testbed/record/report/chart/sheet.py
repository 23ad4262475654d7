"""Charts below each other in one SVG file that stands alone, with its own style sheet, title and legends."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from testbed.record.report.chart.svg import Drawing, element, number, path, text

_TITLE_HEIGHT, _LEGEND_ROW, _GAP, _EDGE = 44.0, 22.0, 14.0, 16.0
_CHARACTER, _KEY = 6.5, 26.0


def style_sheet() -> str:
    """The style sheet that gives the classes of drawings their colours, in light and in dark, and their type."""
    return (files(__package__) / "chart.css").read_text(encoding="utf-8")


def draw_sheet(title: str, charts: Sequence[tuple[Drawing, float]], *, width: float) -> str:
    """The text of an SVG file: the title, then each chart with its legend above it. With each goes its height."""
    inside = [
        element("style", style_sheet()),
        element("rect", width="100%", height="100%", style="fill: var(--card)"),
        text(title, _EDGE, 28.0, "heading"),
    ]
    y = _TITLE_HEIGHT
    for drawing, height in charts:
        inside += _legend(drawing, _EDGE + width, y)
        y += _LEGEND_ROW
        inside.append(element("svg", drawing.svg, x=_EDGE, y=y, width=width, height=height))
        y += height + _GAP
    return element(
        "svg",
        *inside,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {number(width + 2 * _EDGE)} {number(y)}",
        width=width + 2 * _EDGE,
        height=y,
        role="img",
        aria_label=title,
        cls="chart",
        style=f"width: {number(width + 2 * _EDGE)}px; max-width: 100%",
    )


def _legend(drawing: Drawing, right: float, y: float) -> list[str]:
    """The keys of a drawing in one row that ends at `right`."""
    parts = []
    x = right - sum(_KEY + _CHARACTER * len(label) + _GAP for _, label in drawing.legend)
    for cls, label in drawing.legend:
        line = "ideal" if cls == "ideal" else f"line thick {cls}"
        parts.append(element("path", d=path([(x, y + 11), (x + _KEY - 8, y + 11)]), cls=line))
        parts.append(text(label, x + _KEY - 3, y + 15, "note"))
        x += _KEY + _CHARACTER * len(label) + _GAP
    return parts
