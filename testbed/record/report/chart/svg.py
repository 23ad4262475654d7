"""SVG as text: elements with escaped attributes, and the drawing that a page takes over.

No colour, font or size of text stands in a drawing: classes do, and the page's style sheet gives them a meaning, so
that one drawing serves light, dark, print and a phone. Classes are ours; all other text is escaped.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass

TONES = 6
"""Colours that series take in turn: the classes `t1` to `t6`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """An `<svg>` element, and what the page writes below it: pairs of class and label."""

    svg: str
    legend: tuple[tuple[str, str], ...] = ()


def element(tag: str, *inside: str, **attributes: object) -> str:
    """`<tag ...>inside</tag>`; `inside` is SVG already. `cls` is class, and `_` in a name becomes `-`."""
    written = "".join(
        f' {"class" if name == "cls" else name.replace("_", "-")}="{_attribute(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    return f"<{tag}{written}>{''.join(inside)}</{tag}>" if inside else f"<{tag}{written}/>"


def text(content: str, x: float, y: float, cls: str, *, anchor: str | None = None) -> str:
    """A line of text. `anchor` is start (default), middle or end."""
    return element("text", escape(content), x=x, y=y, cls=cls, text_anchor=anchor)


def hover(content: str) -> str:
    """Return what a browser shows under the pointer, and a screen reader reads."""
    return element("title", escape(content)) if content else ""


def path(points: Iterable[tuple[float, float]]) -> str:
    """The `d` of a line through `points`."""
    return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in points)


def document(inside: Iterable[str], *, width: float, height: float, described: str, natural: bool = False) -> str:
    """The `<svg>` element. The page's column decides how wide it is; a `natural` one is no wider than it is drawn."""
    return element(
        "svg",
        *inside,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {number(width)} {number(height)}",
        role="img",
        aria_label=described,
        cls="chart",
        style=f"max-width:{number(width)}px" if natural else None,
    )


def escape(content: str) -> str:
    """Text of a stranger as text; control characters, which no XML can have, become a sign for them."""
    return html.escape(
        "".join(char if char.isprintable() or char == " " else "\N{REPLACEMENT CHARACTER}" for char in content)
    )


def number(value: float) -> str:
    """Tenths of a pixel are enough."""
    written = f"{value:.1f}".removesuffix(".0")
    return "0" if written == "-0" else written


def tone(index: int) -> str:
    """The class of the n-th series, counted from 0; beyond the colours there are, the line is dashed."""
    return f"t{index % TONES + 1}" + (" again" if index >= TONES else "")


def _attribute(value: object) -> str:
    return number(value) if isinstance(value, float) else escape(str(value))
