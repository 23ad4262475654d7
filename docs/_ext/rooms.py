"""Draw the rooms of the code, docs/internals/rooms.svg: `.venv/bin/python docs/_ext/rooms.py`.

Rooms are the packages right below `testbed`, on the floors of the contract in pyproject.toml. An arrow is an import
that no other arrows lead to. `tests/unit/docs/test_architecture.py` fails where the picture is not that of the code.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape

import grimp
from reference.packages import ROOT, first_words, layers

PICTURE = ROOT / "docs" / "internals" / "rooms.svg"
WIDTH, MARGIN, GAP, FLOOR_GAP = 900, 70, 24, 34
"""Of the picture, of the lanes at both sides, and between boxes (px)."""
LINE, HEAD, PADDING, CHARACTER = 17, 22, 12, 6.9
_STYLE = """
    .page { fill: #ffffff; stroke: #c8d0da; }
    .box { fill: #e3eefc; stroke: #2b6cb0; stroke-width: 1.5; }
    .head { fill: #1c2836; font-weight: 600; font-size: 15px; }
    .text { fill: #33414f; }
    .way { fill: none; stroke: #33414f; stroke-width: 1.6; marker-end: url(#tip); }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A room on its floor (px)."""

    name: str
    lines: tuple[str, ...]
    floor: int
    x: int
    y: int
    width: int
    height: int

    @property
    def middle(self) -> int:
        return self.x + self.width // 2


def picture() -> str:
    """Return the picture as SVG."""
    boxes = _boxes()
    floors = max(box.floor for box in boxes.values())
    height = max(box.y + box.height for box in boxes.values()) + PADDING
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
            ' role="img" aria-labelledby="title" font-family="system-ui, sans-serif" font-size="12.5">',
            f'  <title id="title">{len(boxes)} rooms on {floors + 1} floors, and which imports which</title>',
            f"  <style>{_STYLE}  </style>",
            '  <defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7"'
            ' orient="auto"><path d="M0 0 10 5 0 10z" fill="#33414f"/></marker></defs>',
            f'  <rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="10"/>',
            *(line for box in boxes.values() for line in _drawn(box)),
            *_arrows(boxes),
            "</svg>\n",
        )
    )


def _boxes() -> dict[str, Box]:
    boxes: dict[str, Box] = {}
    y = PADDING
    floors = [[name for name in layer.replace(" ", "").split("|") if _is_room(name)] for layer in layers()]
    for floor, names in enumerate(filter(None, floors)):
        width = (WIDTH - 2 * MARGIN - GAP * (len(names) - 1)) // len(names)
        texts = {name: tuple(_text(name, int((width - 2 * PADDING) / CHARACTER))) for name in names}
        height = HEAD + PADDING + LINE * max(map(len, texts.values()))
        for place, name in enumerate(names):
            x = MARGIN + place * (width + GAP)
            boxes[name] = Box(name=name, lines=texts[name], floor=floor, x=x, y=y, width=width, height=height)
        y += height + FLOOR_GAP
    return boxes


def _is_room(name: str) -> bool:
    return (ROOT / "testbed" / name / "__init__.py").is_file()


def _text(room: str, characters: int) -> Iterator[str]:
    """Yield the lines below a room's name: its first sentence, and its folders."""
    path = ROOT / "testbed" / room
    about = first_words(path / "__init__.py").partition(". ")[0].rstrip(".").replace("`", "").replace("\n", " ") + "."
    yield from textwrap.wrap(about, characters)
    folders = sorted(child.name for child in path.iterdir() if (child / "__init__.py").is_file())
    yield from textwrap.wrap(", ".join(f"{name}/" for name in folders), characters)


def _drawn(box: Box) -> Iterator[str]:
    yield f'  <rect class="box" x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="6"/>'
    yield f'  <text class="head" x="{box.x + PADDING}" y="{box.y + HEAD}">{box.name}</text>'
    for number, line in enumerate(box.lines, 1):
        y = box.y + HEAD + number * LINE
        yield f'  <text class="text" x="{box.x + PADDING}" y="{y}">{escape(line)}</text>'


def _arrows(boxes: Mapping[str, Box]) -> Iterator[str]:
    """Yield an arrow for each import: straight down to the next floor, or down a lane at the side past others."""
    lanes = {False: 0, True: 0}
    for importer, imported in sorted(_reduced(_imports(boxes))):
        a, b = boxes[importer], boxes[imported]
        if b.floor == a.floor + 1:
            low, high = max(a.x, b.x), min(a.x + a.width, b.x + b.width)
            x = (low + high) // 2 if low < high else b.middle
            yield f'  <path class="way" d="M{x if low < high else a.middle} {a.y + a.height}L{x} {b.y - 2}"/>'
            continue
        right = a.middle > WIDTH // 2
        lanes[right] += 1
        out = 8 + 12 * lanes[right]
        leaves, enters = a.y + a.height // 2, b.y + b.height // 2 - 8 * lanes[right]
        if right:
            start, lane, end = a.x + a.width, WIDTH - MARGIN + out, b.x + b.width + 2
        else:
            start, lane, end = a.x, MARGIN - out, b.x - 2
        way = f"M{start} {leaves}H{lane}"
        if any(box.floor == b.floor and (box.x > b.x) is right for box in boxes.values() if box is not b):
            way += f"V{b.y - FLOOR_GAP + 10}H{b.x + b.width // 4}V{b.y - 2}"  # over the box that stands before it
        else:
            way += f"V{enters}H{end}"
        yield f'  <path class="way" d="{way}"/>'


def _imports(rooms: Iterable[str]) -> set[tuple[str, str]]:
    """Return which room imports which, at run time."""
    graph = grimp.build_graph("testbed", exclude_type_checking_imports=True, cache_dir=None)
    return {
        (importer, imported)
        for importer in rooms
        for imported in rooms
        if importer != imported
        and graph.direct_import_exists(importer=f"testbed.{importer}", imported=f"testbed.{imported}", as_packages=True)
    }


def _reduced(imports: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the imports that no others lead to: the transitive reduction of a graph without circles."""

    def reached(room: str) -> set[str]:
        below = {imported for importer, imported in imports if importer == room}
        return below.union(*(reached(other) for other in below))

    return {
        (importer, imported)
        for importer, imported in imports
        if not any(imported in reached(other) for one, other in imports if one == importer)
    }


if __name__ == "__main__":
    PICTURE.write_text(picture())
