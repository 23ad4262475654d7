"""The style of drawings, and a drawing as a file: SVG as it is, PNG and PDF rendered from it by Cairo.

Cairo's SVG renderer knows neither CSS variables nor a page around the drawing: it gets the style sheet's light colours,
written out, and without what only a page needs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType

from testbed.base.errors import CapabilityError, TestbedError
from testbed.base.installation.extras import extra_missing
from testbed.record.report.chart.svg import TONES, Drawing, element, number, path, text

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


SUFFIXES = (".svg", ".png", ".pdf")
PIXELS_PER_UNIT = 1.5
"""The resolution at which a PNG is drawn."""
_VARIABLE = re.compile(r"var\((--[a-z0-9-]+)\)")
_VALUE = re.compile(r"(--[a-z0-9-]+):\s*([^;]+);")
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_OF_A_PAGE = {"display", "width", "height", "max-width", "font", "paint-order"}
_HALO = "stroke: var(--card); stroke-width: 3px; stroke-linejoin: round;"


FONT_SIZE = 13.0
"""The size of text in the style sheet, in units."""
FONTS = '"DejaVu Sans", sans-serif'
"""Fonts that Cairo finds everywhere; in a page the system's font comes first."""
_FONT_SIZE = re.compile(r"font-size: ([\d.]+)px")


def write_picture(svg: str, target: Path) -> None:
    """Write a sheet of `draw_sheet` as its name's ending says: one of `SUFFIXES`.

    Raises `TestbedError` for another ending and for a file that cannot be written, `CapabilityError` without Cairo.
    """
    suffix = target.suffix.lower()
    if suffix not in SUFFIXES:
        raise TestbedError(
            f"cannot write {target}: no picture ends in {suffix or 'nothing'}",
            hint=f"expected one of {', '.join(SUFFIXES)}",
        )
    content = svg.encode() if suffix == ".svg" else render(_plain(svg), suffix, scale=PIXELS_PER_UNIT)
    try:
        target.write_bytes(content)
    except OSError as error:
        raise TestbedError(f"cannot write {target}: {error.strerror}") from error


def render(svg: str, suffix: str, *, scale: float) -> bytes:
    """Draw SVG without variables as PDF, or as PNG with so many pixels for each unit.

    Raises `CapabilityError` without Cairo.
    """
    try:
        import cairosvg
    except ModuleNotFoundError as error:
        raise extra_missing("figures", "a picture as PNG or PDF", error) from error
    except OSError as error:  # the Python package is there, the library that it loads is not
        raise CapabilityError(
            f"PNG and PDF are drawn by Cairo, which cannot be loaded: {str(error).splitlines()[0]}",
            missing="libcairo.so.2",
            hint="apt-get install libcairo2, or name a file ending in .svg",
        ) from error
    plain = svg.encode()
    if suffix == ".pdf":
        content: bytes = cairosvg.svg2pdf(bytestring=plain)
    else:
        content = cairosvg.svg2png(bytestring=plain, scale=scale)
    return content


def _plain(svg: str) -> str:
    """The sheet with each variable's value in its place, and a rule for each tone."""
    rules = " ".join(plain_rules())
    plain = re.sub(r"<style>.*?</style>", lambda _: f"<style>{rules}</style>", svg, count=1, flags=re.DOTALL)
    plain = re.sub(r' style="width: [^"]*"', "", plain, count=1)
    return _valued(plain, {})


def plain_rules(
    colours: Mapping[str, str] = MappingProxyType({}), *, scale: float = 1.0, font: str = "", halo: bool = False
) -> list[str]:
    """The style sheet without variables, a rule for each tone: light, with other `colours` by the variables' names.

    Text is `scale` times as large, and in another `font`. A `halo` is an edge of text in the colour of what is behind.
    """
    sheet = style_sheet()
    rules: list[str] = []
    for selectors, body in _RULE.findall(sheet[sheet.index(".chart {") :]):
        if "--tone:" in body:
            continue
        parts = [part.strip() for part in (body if halo else body.replace(_HALO, "")).split(";")]
        of_a_page = _OF_A_PAGE - {"paint-order"} if halo else _OF_A_PAGE
        declarations = [part for part in parts if part and part.partition(":")[0] not in of_a_page]
        toned = [part for part in declarations if "var(--tone)" in part]
        # The tones' rules name one class more and would win over later ones: they say nothing but the tone.
        rules.append(f"{selectors.strip()} {{{'; '.join(part for part in declarations if part not in toned)}}}")
        for tone in range(1, TONES + 1) if toned else ():
            names = ", ".join(f"{selector.strip()}.t{tone}" for selector in selectors.split(","))
            rules.append(f"{names} {{{'; '.join(toned).replace('--tone', f'--c{tone}')}}}")
    family = f'"{font}", {FONTS}' if font else FONTS
    rules.insert(0, f".chart {{ font-size: {FONT_SIZE:g}px; font-family: {family}; }}")
    return [
        _FONT_SIZE.sub(lambda found: f"font-size: {float(found[1]) * scale:.2f}px", _valued(rule, colours))
        for rule in rules
    ]


def _valued(written: str, colours: Mapping[str, str]) -> str:
    """Text with the values of variables in their places: those of the light page, but for `colours`."""
    values = {**light_colours(), **colours}
    return _VARIABLE.sub(lambda found: values[found[1]], written)


def light_colours() -> dict[str, str]:
    """The variables of the style sheet, as they are on a light page."""
    sheet = style_sheet()
    return dict(_VALUE.findall(sheet[: sheet.index("@media")]))
