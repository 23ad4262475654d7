"""A lab of several networks as one picture: the back end above the hosts, every other network below them.

A network is a *layer*: its switches and links can be left out of the picture. Hosts belong to no layer.
Networks below the hosts stand side by side, each in a box of its own, with its leaves on the upper row so that no line
to a host crosses a box. Where that would be too wide they stand on two shelves, and lines to the lower one pass behind
the boxes of the upper one. `lay_out` of `back_end` draws the back end and the hosts; this adds the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from testbed.lab.core.model import BACKEND, Lab, Node, NodeKind
from testbed.lab.graph.back_end import lay_out
from testbed.lab.graph.grouping import Bundle, Grouping, Tier, bundle_links, counted, group_lab, short_name
from testbed.lab.graph.layout import (
    CARD_HEIGHT,
    GAP,
    GUTTER,
    MARGIN,
    MAX_LINES,
    OUTSIDE,
    PAD,
    SHELF_GAP,
    TITLE,
    Band,
    Layout,
    LinkLine,
    NodeBox,
    Pitch,
    Rect,
    Ribbon,
    RowLabel,
    label_width,
    legibility,
    pitch_of,
    place_row,
    spread,
)
from testbed.lab.graph.scale_up import SCALE_UP, counted_planes, plane_labels

BAND_GAP = 24.0
"""Between the boxes of two networks."""
MAX_ROW = 12
"""Hosts of a segment that stand as cards: more would make two rows, and lines to networks below cross the second."""
SERVER = "Server"
"""The row of the server of the management network."""
_DROP = 76.0
"""The height of the lines from hosts to the networks below them."""
_MESH, _END_MESH = 76.0, 40.0
"""The height of lines from leaves to spines, and how far servers and routers outside stand below spines."""
_BOX_TITLE = TITLE + 16.0
"""Height of the two lines that tell what a box is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A network of a picture. `number` is 0 for the back end; `seen` is the lab as it is in this network alone.

    One that another network carries has no switches: its links lead to that one's leaves.
    """

    number: int
    name: str
    seen: Lab
    carrier: str = ""
    """The network that carries it; "": none does."""


def layers_of(lab: Lab) -> tuple[Layer, ...]:
    """The networks of a lab that have links, the back end first; none if there is but one network."""
    names = lab.network_names
    if len(names) < 2:
        return ()
    numbers = {name: number for number, name in enumerate((BACKEND, *(network.name for network in lab.networks)))}
    carriers = {network.name: network.carrier for network in lab.networks}
    return tuple(
        Layer(number=numbers[name], name=name, seen=lab.without_carrier(name), carrier=carriers.get(name, ""))
        for name in names
    )


def group_layers(lab: Lab, layers: Sequence[Layer]) -> Grouping:
    """Divide a lab by its back end. Switches of other networks have a tier, and are in no pod."""
    with_switches = (layer for layer in layers if not layer.carrier)
    tiers = {name: tier for layer in with_switches for name, tier in group_lab(layer.seen).tiers.items()}
    base = group_lab(_with_all_hosts(lab))
    return replace(base, tiers={**tiers, **base.tiers})


def _with_all_hosts(lab: Lab) -> Lab:
    """The back end of a lab, and hosts that it does not reach."""
    seen = lab.of_network(BACKEND)
    kept = {node.name for node in (*seen.nodes, *lab.endpoints)}
    return replace(seen, nodes=tuple(node for node in lab.nodes if node.name in kept))


def lay_out_layers(lab: Lab, grouping: Grouping, layers: Sequence[Layer]) -> Layout:
    """Place everything of a lab of several networks, so that its text is as large as it can be."""
    whole = _with_all_hosts(lab)
    crowded = any(len(segment.hosts) > MAX_ROW for segment in grouping.segments)
    below = [_Below(layer) for layer in layers if layer.number and not layer.carrier]
    best: tuple[float, Layout, list[_Shelf]] | None = None
    for pitch in Pitch:
        for boxes in _shelved(below):
            shelves = [_Shelf(row, pitch) for row in boxes]
            height = _DROP + sum(shelf.height for shelf in shelves) + SHELF_GAP * (len(shelves) - 1)
            least = max(shelf.least for shelf in shelves)
            layout = lay_out(whole, grouping, least_width=least, always_trays=crowded, below=height)
            found = legibility(layout.width, layout.height + height, max(pitch, layout.folding.pitch))
            if best is None or found > best[0] * 1.03:
                best = found, layout, shelves
        if best is not None and best[0] >= 0.9:
            break
    assert best is not None  # there is a network below
    _, layout, shelves = best
    layout.hosts_top = min(rect.y for rect in _hosts(layout))
    y = layout.height - MARGIN + _DROP
    for number, shelf in enumerate(shelves):
        layout.bands += shelf.place(layout.width, y, number)
        layout.low_rows += shelf.row_labels(y, number)
        y += shelf.height + SHELF_GAP
    layout.bands.sort(key=lambda band: band.number)
    _drops(layout, [layer for layer in layers if layer.number], grouping.tiers)
    layout.height = max(band.rect.bottom for band in layout.bands) + MARGIN
    return layout


def _shelved(below: Sequence[_Below]) -> Iterator[list[list[_Below]]]:
    """Yield the ways to put networks on shelves: all on one, or those of one row of boxes above the others."""
    yield [list(below)]
    flat = [one for one in below if not one.ends and not one.spines]
    deep = [one for one in below if one not in flat]
    if flat and deep:
        yield [flat, deep]
    elif len(below) > 1:
        middle = -(-len(below) // 2)
        yield [list(below[:middle]), list(below[middle:])]


def _hosts(layout: Layout) -> list[Rect]:
    return [box.rect for box in layout.nodes if box.tier is Tier.HOST] + [tray.rect for tray in layout.trays]


def switches_of(layer: Layer) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """The leaves of a network, and its spines with the routers outside."""
    tiers = group_lab(layer.seen).tiers
    others = [node for node in layer.seen.nodes if tiers[node.name] is not Tier.HOST]
    return (
        tuple(node for node in others if tiers[node.name] is Tier.RAIL),
        tuple(node for node in others if tiers[node.name] is not Tier.RAIL),
    )


class _Below:
    """A network below the hosts: its leaves, its spines, and at its ends its server and the routers outside."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.grouping = group_lab(layer.seen)
        self.leaves, others = switches_of(layer)
        self.spines = tuple(node for node in others if node.kind is NodeKind.SWITCH)
        self.ends = tuple(node for node in others if node.kind is not NodeKind.SWITCH)
        self.labels = plane_labels(self.leaves) if layer.name == SCALE_UP else {}

    @property
    def detail(self) -> str:
        if self.layer.name == SCALE_UP:
            return counted_planes(self.layer.seen)
        if any(node.kind is NodeKind.BRIDGE for node in self.leaves):
            return "a port on every node"
        outside = f", {counted(len(self.ends), 'router')} outside" if self.ends else ""
        if not self.spines:
            return counted(len(self.leaves), "switch") + outside
        return f"{counted(len(self.leaves), 'leaf')}, {counted(len(self.spines), 'spine')}{outside}"

    def pitch(self, nodes: Sequence[Node], pitch: Pitch) -> float:
        return pitch_of([self.labels.get(node.name, short_name(node)) for node in nodes], pitch)

    def least(self, pitch: Pitch) -> float:
        rows = (len(row) * self.pitch(row, pitch) for row in (self.leaves, self.spines, self.ends))
        return max(*rows, label_width(self.layer.name), label_width(self.detail) * 0.9) + PAD * 2

    def place(self, rect: Rect, rows: Sequence[float], pitch: Pitch, shelf: int) -> Band:
        """The box; `rows` are the upper edges of its leaves, its spines, and its ends."""
        nodes: list[NodeBox] = []
        for row, y, tier in zip(
            (self.leaves, self.spines, self.ends), rows, (Tier.RAIL, Tier.SPINE, Tier.SPINE), strict=True
        ):
            nodes += place_row(
                row, tier, self.pitch(row, pitch), y, x=rect.x + PAD, width=rect.width - PAD * 2, shelf=shelf
            )
        nodes = [replace(box, label=self.labels.get(box.node.name, box.label)) for box in nodes]
        rects = {box.node.name: box.rect for box in nodes}
        links = [link for link in self.layer.seen.links if self.grouping.tiers[link.a.node] is not Tier.HOST]
        bundles = bundle_links(links, self.grouping.tiers, {})
        ribbon = None
        if len(bundles) > MAX_LINES:
            ribbon = Ribbon(upper=_around(self.leaves, rects), lower=_around(self.spines, rects), links=len(links))
        return Band(
            number=self.layer.number,
            title=self.layer.name,
            detail=self.detail,
            rect=rect,
            shelf=shelf,
            nodes=tuple(nodes),
            lines=() if ribbon else tuple(_mesh(bundle, rects) for bundle in bundles),
            ribbon=ribbon,
        )


class _Shelf:
    """Networks side by side, whose rows are at the same heights."""

    def __init__(self, boxes: Sequence[_Below], pitch: Pitch) -> None:
        self.boxes, self.pitch = boxes, pitch
        self.spines = any(one.spines for one in boxes)
        self.ends = any(one.ends for one in boxes)
        self.least = sum(one.least(pitch) for one in boxes) + BAND_GAP * (len(boxes) - 1)

    @property
    def height(self) -> float:
        return self._rows(0.0)[-1] + (CARD_HEIGHT if self.ends else 0.0) + _BOX_TITLE + PAD / 2

    def _rows(self, y: float) -> tuple[float, float, float]:
        """The upper edges of leaves, spines and ends; those that are not there begin where the box's title does."""
        leaves = y + PAD
        spines = leaves + CARD_HEIGHT + (_MESH if self.spines else 0.0)
        ends = spines + (CARD_HEIGHT if self.spines else 0.0)
        return leaves, spines, ends + ((_END_MESH if self.spines else _MESH) if self.ends else 0.0)

    def place(self, picture_width: float, y: float, number: int) -> Iterator[Band]:
        """Yield the boxes, which share the width of the picture."""
        x, inner = MARGIN + GUTTER, picture_width - GUTTER - MARGIN * 2
        wider = inner / self.least
        for one in self.boxes:
            rect = Rect(x=x, y=y, width=one.least(self.pitch) * wider, height=self.height)
            yield one.place(rect, self._rows(y), self.pitch, number)
            x += (one.least(self.pitch) + BAND_GAP) * wider

    def row_labels(self, y: float, number: int) -> Iterator[RowLabel]:
        """Yield the names of the rows, which all boxes share; how many there are stands in each box."""
        leaves, spines, ends = self._rows(y)
        planes = all(one.layer.name == SCALE_UP for one in self.boxes)
        named = [("Planes" if planes else "Leaf switches", leaves, True), ("Spines", spines, self.spines)]
        kinds = {node.kind for one in self.boxes for node in one.ends}
        words = [word for kind, word in ((NodeKind.SERVER, SERVER), (NodeKind.ROUTER, OUTSIDE)) if kind in kinds]
        named.append((", ".join([*words[:1], *(word.lower() for word in words[1:])]), ends, bool(words)))
        for title, top, there in named:
            if there:
                yield RowLabel(title=title, detail="", y=top + CARD_HEIGHT / 2 + GAP / 2, shelf=number)


def _around(nodes: Sequence[Node], rects: dict[str, Rect]) -> Rect:
    first, last = rects[nodes[0].name], rects[nodes[-1].name]
    return replace(first, width=last.x + last.width - first.x)


def _mesh(bundle: Bundle, rects: dict[str, Rect]) -> LinkLine:
    """From a leaf down to a spine."""
    leaf, spine = rects[bundle.lower], rects[bundle.upper]
    if leaf.y == spine.y:
        return LinkLine(bundle=bundle, x1=spine.middle, y1=spine.bottom, x2=leaf.middle, y2=leaf.bottom, kind="level")
    return LinkLine(bundle=bundle, x1=leaf.middle, y1=leaf.bottom, x2=spine.middle, y2=spine.y, kind="mesh")


def _drops(layout: Layout, below: Sequence[Layer], tiers: Mapping[str, Tier]) -> None:
    """Lines from the lower edges of hosts to the leaves below them, and the ports there."""
    boxes: Iterable[NodeBox] = [*(box for band in layout.bands for box in band.nodes), *layout.nodes]
    rects = {box.node.name: box.rect for box in boxes} | {tray.name: tray.rect for tray in layout.trays}
    shelves = {box.node.name: box.shelf for box in boxes} | {tray.name: tray.shelf for tray in layout.trays}
    aliases = {host.name: tray.name for tray in layout.trays for host in tray.group.hosts}
    found: list[tuple[int, Bundle]] = []
    for layer in below:
        links = [replace(link, rail=0) for link in layer.seen.links if tiers[link.a.node] is Tier.HOST]
        found += [(layer.number, bundle) for bundle in bundle_links(links, tiers, aliases)]
    above: dict[str, list[tuple[str, int]]] = {}
    under: dict[str, list[tuple[str, int]]] = {}
    for number, bundle in found:
        above.setdefault(bundle.upper, []).append((bundle.lower, number))
        under.setdefault(bundle.lower, []).append((bundle.upper, number))
    for ends in (*above.values(), *under.values()):
        ends.sort(key=lambda end: rects[end[0]].middle)
    for number, bundle in found:
        host, leaf = rects[bundle.lower], rects[bundle.upper]
        hosts, leaves = above[bundle.upper], under[bundle.lower]
        x1 = host.middle + spread(leaves.index((bundle.upper, number)), len(leaves), host.width, 16.0)
        x2 = leaf.middle + spread(hosts.index((bundle.lower, number)), len(hosts), leaf.width, 14.0)
        line = LinkLine(
            bundle=bundle,
            x1=x1,
            y1=host.bottom,
            x2=x2,
            y2=leaf.y,
            kind="port",
            shelves=(shelves[bundle.upper], shelves[bundle.lower]),
            under=shelves[bundle.upper] > 0 or shelves[bundle.lower] < layout.shelves - 1,
        )
        layout.drops.append((number, line))
