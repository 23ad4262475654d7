"""A lab of several networks as one picture: the back end above the hosts, every other network below them.

A network is a *layer*: its switches and links can be left out of the picture. Hosts belong to no layer.
Networks below the hosts stand side by side, each in a box of its own, with its leaves on the upper row so that no line
to a host crosses a box. `lay_out` of `layout.py` draws the back end and the hosts; this adds the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from testbed.lab.core.model import BACKEND, Lab, Node, NodeKind
from testbed.lab.graph.grouping import Bundle, Grouping, Tier, bundle_links, group_lab
from testbed.lab.graph.layout import (
    CARD_HEIGHT,
    GAP,
    GUTTER,
    MARGIN,
    MAX_LINES,
    OUTSIDE,
    PAD,
    TITLE,
    Band,
    Layout,
    LinkLine,
    Rect,
    Ribbon,
    RowLabel,
    label_width,
    lay_out,
    pitch_of,
    place_row,
    spread,
)
from testbed.lab.graph.scale_up import SCALE_UP, counted_planes

BAND_GAP = 24.0
"""Between the boxes of two networks."""
MAX_ROW = 12
"""Hosts of a segment that stand as cards: more would make two rows, and lines to networks below cross the second."""


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
    """Place everything of a lab of several networks."""
    below = [_Below(layer) for layer in layers if layer.number and not layer.carrier]
    least = sum(one.least for one in below) + BAND_GAP * max(0, len(below) - 1)
    crowded = any(len(segment.hosts) > MAX_ROW for segment in grouping.segments)
    layout = lay_out(_with_all_hosts(lab), grouping, least_width=least, always_trays=crowded)
    left, inner = MARGIN + GUTTER, layout.width - GUTTER - MARGIN * 2
    layout.hosts_top = min(rect.y for rect in _hosts(layout))
    y = layout.height - MARGIN + min(180.0, max(84.0, inner * 0.08))
    wider, x = inner / least, left
    widest = max((one.least for one in below if one.spines), default=0.0) * wider
    mesh = min(180.0, max(76.0, (widest - PAD * 2) * 0.16))
    for one in below:
        layout.bands.append(one.place(x, y, one.least * wider, mesh))
        x += (one.least + BAND_GAP) * wider
    _drops(layout, [layer for layer in layers if layer.number], grouping.tiers)
    _row_labels(layout)
    layout.height = max(band.rect.bottom for band in layout.bands) + MARGIN
    return layout


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
    """A network below the hosts, and the measures of its box."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        self.grouping = group_lab(layer.seen)
        self.leaves, self.spines = switches_of(layer)
        crowd = max(len(self.leaves), len(self.spines))
        self.pitches = {Tier.RAIL: pitch_of(self.leaves, crowd), Tier.SPINE: pitch_of(self.spines, crowd)}
        rows = (len(self.leaves) * self.pitches[Tier.RAIL], len(self.spines) * self.pitches[Tier.SPINE])
        self.least = max(*rows, label_width(f"{layer.name}  {self.detail}")) + PAD * 2

    @property
    def detail(self) -> str:
        if self.layer.name == SCALE_UP:
            return counted_planes(self.layer.seen)
        if any(node.kind is NodeKind.BRIDGE for node in self.leaves):
            return "switch, server, a port on every node"
        routers = sum(node.kind is NodeKind.ROUTER for node in self.spines)
        outside = f", {_counted(routers, 'router', 'routers')} outside" if routers else ""
        if len(self.spines) == routers:
            return _counted(len(self.leaves), "switch", "switches") + outside
        spines = _counted(len(self.spines) - routers, "spine", "spines")
        return f"{_counted(len(self.leaves), 'leaf', 'leaves')}, {spines}{outside}"

    def place(self, x: float, y: float, width: float, mesh: float) -> Band:
        """The box with its upper left corner at `x`, `y`; `mesh` is the room between leaves and spines."""
        inner, left = width - PAD * 2, x + PAD
        upper = y + PAD
        nodes = place_row(self.leaves, Tier.RAIL, self.pitches[Tier.RAIL], upper, x=left, width=inner)
        bottom = upper + CARD_HEIGHT
        if self.spines:
            bottom += mesh
            nodes += place_row(self.spines, Tier.SPINE, self.pitches[Tier.SPINE], bottom, x=left, width=inner)
            bottom += CARD_HEIGHT
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
            rect=Rect(x=x, y=y, width=width, height=bottom + TITLE + PAD / 2 - y),
            nodes=tuple(nodes),
            lines=() if ribbon else tuple(_mesh(bundle, rects) for bundle in bundles),
            ribbon=ribbon,
        )


def _around(nodes: Sequence[Node], rects: dict[str, Rect]) -> Rect:
    first, last = rects[nodes[0].name], rects[nodes[-1].name]
    return replace(first, width=last.x + last.width - first.x)


def _mesh(bundle: Bundle, rects: dict[str, Rect]) -> LinkLine:
    """From a leaf down to a spine."""
    leaf, spine = rects[bundle.lower], rects[bundle.upper]
    if leaf.y == spine.y:
        return LinkLine(bundle=bundle, x1=spine.middle, y1=spine.bottom, x2=leaf.middle, y2=leaf.bottom, kind="level")
    return LinkLine(bundle=bundle, x1=leaf.middle, y1=leaf.bottom, x2=spine.middle, y2=spine.y, kind="mesh")


def _counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _drops(layout: Layout, below: Sequence[Layer], tiers: Mapping[str, Tier]) -> None:
    """Lines from the lower edges of hosts to the leaves below them, and the ports there."""
    rects = {box.node.name: box.rect for band in layout.bands for box in band.nodes}
    rects |= {box.node.name: box.rect for box in layout.nodes}
    rects |= {tray.name: tray.rect for tray in layout.trays}
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
        line = LinkLine(bundle=bundle, x1=x1, y1=host.bottom, x2=x2, y2=leaf.y, kind="port")
        layout.drops.append((number, line))


def _row_labels(layout: Layout) -> None:
    """Names of the rows below the hosts, which all networks share; how many there are stands in each box."""
    lower = [box.node for band in layout.bands for box in band.nodes if box.tier is not Tier.RAIL]
    spines = any(node.kind is NodeKind.SWITCH for node in lower)
    alone = all(band.title == SCALE_UP for band in layout.bands)
    for tier, title in (
        (Tier.RAIL, "Planes" if alone else "Leaf switches"),
        (Tier.SPINE, "Spines" if spines else OUTSIDE),
    ):
        rows = [
            box.rect for band in layout.bands for box in band.nodes if (box.tier is Tier.RAIL) == (tier is Tier.RAIL)
        ]
        if rows:
            layout.low_rows.append(
                RowLabel(title=title, detail="", y=min(rect.y for rect in rows) + CARD_HEIGHT / 2 + GAP / 2)
            )
