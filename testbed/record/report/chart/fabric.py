"""A fabric as a drawing: nodes in rows, and wires between them in the colour and the weight of their load.

Weight and colour say the same, so that a reader who cannot tell the colours apart sees it, too. Colours go from blue to
red over orange, which are apart for the colour-blind.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from testbed.record.report.chart.labels import CHARACTER, Labels, shortened
from testbed.record.report.chart.svg import Drawing, document, element, hover, path, text

WIDTH = 1240.0
LOADS = ((0.01, "below 1 %"), (0.2, "1 to 20 %"), (0.4, "20 to 40 %"), (0.6, "40 to 60 %"), (0.8, "60 to 80 %"))
"""The upper ends of the classes of loads, and their names; the last class has no upper end."""
BUSIEST = "80 % and more"
CARD_HEIGHT = 30.0
_LEAST_LABEL, _MOST_CARD = 26.0, 132.0
"""The narrowest card that has a label, and the widest card."""
_MOST_HOVERED = 200
"""Wires up to which each says what it carried; more are drawn together."""
_BUBBLE = 9.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricCard:
    """A node as it is drawn: `x` is its middle, `y` its upper edge, `width` the room that it has."""

    name: str
    label: str
    x: float
    y: float
    width: float
    is_switch: bool
    remark: str = ""
    number: str = ""
    """The number of what happened to it; "" for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricWire:
    """A wire from the lower edge of one card to the upper edge of another. `share` is its load, from 0 to 1."""

    upper: str
    lower: str
    share: float
    remark: str
    lossy: bool = False
    number: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricBox:
    """A box around the cards of one part, with its title."""

    title: str
    x: float
    y: float
    width: float
    height: float


def draw_fabric(
    cards: Sequence[FabricCard],
    wires: Sequence[FabricWire],
    boxes: Sequence[FabricBox],
    *,
    height: float,
    described: str,
) -> Drawing:
    """Draw wires above boxes and below cards, the busiest on top."""
    places = {card.name: card for card in cards}
    labels = Labels(edge=(0.0, 0.0, WIDTH, height), taken=[_box(card) for card in cards])
    inside = [_frame(box) for box in boxes]
    ordered = sorted(wires, key=lambda wire: wire.share)
    inside += _wires(ordered, places)
    inside += [_card(card) for card in cards]
    inside += [text(box.title, box.x + 10, box.y + 15, "note") for box in boxes if box.title]
    for wire in ordered:
        upper, lower = places[wire.upper], places[wire.lower]
        if wire.lossy:
            x, y = _along(upper, lower, 0.82)
            inside.append(element("circle", hover(wire.remark), cx=x, cy=y, r=4.5, cls="loss"))
        if wire.number:
            spots = (_along(upper, lower, share) for share in (0.5, 0.35, 0.65, 0.2, 0.8))
            inside += _bubble(wire.number, wire.remark, spots, labels)
    for card in cards:
        if card.number:
            spot = (card.x + _width(card) / 2, card.y - 6)
            inside += _bubble(card.number, card.remark, (spot, (card.x, card.y - 14)), labels)
    classes = {load_class(wire.share) for wire in wires}
    names = [*(name for _, name in LOADS), BUSIEST]
    legend = [(f"load{number}", name) for number, name in enumerate(names) if f"load{number}" in classes]
    legend += [("loss", "dropped packets")] if any(wire.lossy for wire in wires) else []
    svg = document(inside, width=WIDTH, height=height, described=described)
    return Drawing(svg=svg, legend=tuple(legend))


def load_class(share: float) -> str:
    """The class of a wire with this load."""
    return f"load{sum(share >= end for end, _ in LOADS)}"


def _wires(wires: Sequence[FabricWire], places: dict[str, FabricCard]) -> list[str]:
    ends = [_ends(places[wire.upper], places[wire.lower]) for wire in wires]
    if len(wires) <= _MOST_HOVERED:
        return [
            element("path", hover(wire.remark), d=path(line), cls=f"wire {load_class(wire.share)}")
            for wire, line in zip(wires, ends, strict=True)
        ]
    together: dict[str, list[str]] = {}
    for wire, line in zip(wires, ends, strict=True):
        together.setdefault(load_class(wire.share), []).append(path(line))
    return [element("path", d="".join(lines), cls=f"wire {cls}") for cls, lines in together.items()]


def _ends(upper: FabricCard, lower: FabricCard) -> list[tuple[float, float]]:
    if upper.y == lower.y:  # two of one row: a bow below them
        y = upper.y + CARD_HEIGHT
        return [(upper.x, y), ((upper.x + lower.x) / 2, y + 18), (lower.x, y)]
    return [(upper.x, upper.y + CARD_HEIGHT), (lower.x, lower.y)]


def _along(upper: FabricCard, lower: FabricCard, share: float) -> tuple[float, float]:
    first, *_, last = _ends(upper, lower)
    return first[0] + (last[0] - first[0]) * share, first[1] + (last[1] - first[1]) * share


def _bubble(number: str, remark: str, spots: Iterable[tuple[float, float]], labels: Labels) -> list[str]:
    """A number in a bubble at the first of these places that is free; nothing where none is."""
    for x, y in spots:
        if labels.take((x - _BUBBLE, y - _BUBBLE, x + _BUBBLE, y + _BUBBLE)):
            circle = element("circle", hover(remark), cx=x, cy=y, r=_BUBBLE, cls="bubble")
            return [circle, text(number, x, y + 4.0, "bubble-name", anchor="middle")]
    return []


def _frame(box: FabricBox) -> str:
    return element("rect", x=box.x, y=box.y, width=box.width, height=box.height, rx=10.0, cls="part")


def _width(card: FabricCard) -> float:
    return min(_MOST_CARD, card.width - (6.0 if card.width > 20 else 2.0))


def _box(card: FabricCard) -> tuple[float, float, float, float]:
    half = _width(card) / 2
    return card.x - half, card.y + 4, card.x + half, card.y + CARD_HEIGHT


def _card(card: FabricCard) -> str:
    width = _width(card)
    rect = element(
        "rect", x=card.x - width / 2, y=card.y, width=width, height=CARD_HEIGHT, rx=min(6.0, width / 4),
        cls="switch" if card.is_switch else "host",
    )  # fmt: skip
    parts = [hover(card.remark or card.name), rect]
    if width >= _LEAST_LABEL:
        label = shortened(card.label, width - 4, character=CHARACTER)
        parts.append(text(label, card.x, card.y + 19.5, "card-name", anchor="middle"))
    return element("g", *parts)
