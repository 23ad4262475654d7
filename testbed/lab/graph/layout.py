"""Where everything of a picture stands: tiers as rows, pods and segments as boxes, hosts at the bottom.

Pure geometry in CSS pixels of the unzoomed picture. A host group that would not fit as cards is shown as
a *tray* of small cells, which the page can open; its links are then one strand per switch and rail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from testbed.lab.core.model import OUT_OF_BAND, Lab, Node, NodeKind
from testbed.lab.graph.grouping import (
    Bundle,
    Grouping,
    HostGroup,
    Pod,
    Segment,
    Tier,
    bundle_links,
    network_alone,
    short_name,
)

MARGIN = 20.0
GUTTER = 132.0
"""Left column with the names of the tiers."""

CARD_HEIGHT = 42.0
HOST_HEIGHT = 38.0
GAP = 10.0
PAD = 14.0
TITLE = 24.0
"""Height of a box's title line."""

CELL_WIDTH, CELL_HEIGHT, CELL_GAP = 15.0, 11.0, 4.0
OPEN_CELL_WIDTH, OPEN_CELL_HEIGHT, OPEN_CELL_GAP = 64.0, 34.0, 6.0
TRAY_TITLE = 26.0

HOSTS = "Hosts"
OUTSIDE = "Outside"
"""The row of hosts, which is that of all networks."""

MAX_OPEN_HOSTS = 24
"""Labs with more hosts show their groups as trays."""

MAX_LINES = 1500
"""Above this many lines between switches, ribbons between boxes stand for them."""

_CHARACTER = 6.9
"""Width of a character of the node labels (12 px semi-bold)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rect:
    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.x + self.width / 2

    @property
    def bottom(self) -> float:
        return self.y + self.height


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBox:
    """A node drawn as a card."""

    node: Node
    label: str
    rect: Rect
    tier: Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Tray:
    """A host group drawn as small cells; `columns` in the closed and in the open state."""

    number: int
    group: HostGroup
    rect: Rect
    columns: int
    open_columns: int
    open_height: float
    segment: int

    @property
    def name(self) -> str:
        """Stands for the group where a node's name is wanted; no node can be called so."""
        return f"#{self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The box around a pod or a segment. `segment` is the segment's index, -1 for a pod."""

    title: str
    rect: Rect
    segment: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLine:
    """A bundle as drawn, from the upper node's bottom to the lower node's top."""

    bundle: Bundle
    x1: float
    y1: float
    x2: float
    y2: float
    kind: str
    """"mesh" between switches, "strand" to a tray, "port" to a host card, "level" inside a row."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ribbon:
    """A band that stands for all links between two sets of switches."""

    upper: Rect
    lower: Rect
    links: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLabel:
    title: str
    detail: str
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The box of a network below the hosts: its switches, and the links between them."""

    number: int
    title: str
    detail: str
    rect: Rect
    nodes: tuple[NodeBox, ...]
    lines: tuple[LinkLine, ...]
    ribbon: Ribbon | None
    """Stands for the lines where there would be more than `MAX_LINES`."""


@dataclass(slots=True)
class Layout:
    """A finished picture. Filled by `lay_out`, and by `lay_out_layers` where there are several networks."""

    width: float = 0.0
    height: float = 0.0
    frames: list[Frame] = field(default_factory=list)
    nodes: list[NodeBox] = field(default_factory=list)
    trays: list[Tray] = field(default_factory=list)
    lines: list[LinkLine] = field(default_factory=list)
    ribbons: list[Ribbon] = field(default_factory=list)
    rows: list[RowLabel] = field(default_factory=list)
    nic_ports: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    """The NIC ports of each host card: x, relative to the card, and rail."""
    bands: list[Band] = field(default_factory=list)
    drops: list[tuple[int, LinkLine]] = field(default_factory=list)
    """Lines from hosts to the networks below them, each with the number of its network."""
    low_rows: list[RowLabel] = field(default_factory=list)
    hosts_top: float = 0.0


def lay_out(lab: Lab, grouping: Grouping, *, least_width: float = 0.0, always_trays: bool = False) -> Layout:
    """Place everything of one network. What is between the margins is at least `least_width` wide; `always_trays`
    shows host groups of small labs as trays, too."""
    return _Builder(lab, grouping, max(360.0, least_width), always_trays).build()


def label_width(text: str) -> float:
    return len(text) * _CHARACTER


def pitch_of(nodes: Sequence[Node], crowd: int) -> float:
    """Distance of neighbours in a row: wide enough for the labels unless the row is crowded."""
    if crowd > 96:
        return 18.0
    if crowd > 40:
        return 36.0
    if crowd > 20:
        return 62.0
    longest = max((label_width(short_name(node)) for node in nodes), default=0.0)
    return min(170.0, max(84.0, longest + 26.0))


def place_row(nodes: Sequence[Node], tier: Tier, pitch: float, y: float, *, x: float, width: float) -> list[NodeBox]:
    """Cards spread evenly over `width`, at most twice their pitch apart unless the picture is wide."""
    if not nodes:
        return []
    # A short row in a wide picture is spread all over it, so that no line runs flat.
    step = width / len(nodes) if width > 1600 else min(width / len(nodes), max(pitch * 2, 110.0))
    card = min(pitch, step) - (GAP if pitch > 30 else 3.0)
    start = x + (width - step * len(nodes)) / 2
    boxes = []
    for position, node in enumerate(nodes):
        rect = Rect(x=start + step * position + (step - card) / 2, y=y, width=card, height=CARD_HEIGHT)
        boxes.append(NodeBox(node=node, label=short_name(node), rect=rect, tier=tier))
    return boxes


class _Builder:
    """Carries the measures of one picture while it is laid out."""

    def __init__(self, lab: Lab, grouping: Grouping, least_width: float, always_trays: bool) -> None:
        self.lab = lab
        self.least_width = least_width
        self.grouping = grouping
        self.layout = Layout()
        self.segments = grouping.segments
        rails = [node for segment in self.segments for node in segment.switches]
        spines = [node for pod in grouping.pods for node in pod.spines]
        self.pitches = {
            Tier.RAIL: pitch_of(rails, len(rails)),
            Tier.SPINE: pitch_of(spines, max(len(spines), len(rails))),
            Tier.SUPER_SPINE: pitch_of(grouping.super_spines, len(grouping.super_spines)),
        }
        self.ports = Counter(end.node for link in lab.links for end in (link.a, link.b))
        self.trays = always_trays or len(lab.endpoints) > MAX_OPEN_HOSTS
        self.rects: dict[str, Rect] = {}
        self.aliases: dict[str, str] = {}
        self.placed = 0

    def build(self) -> Layout:
        pods = self.grouping.pods
        widths = [self._pod_width(pod) for pod in pods]
        left = MARGIN + GUTTER
        inner = max(
            sum(widths) + GAP * 2 * max(0, len(pods) - 1),
            self.pitches[Tier.SUPER_SPINE] * len(self.grouping.super_spines),
            self.least_width,
        )
        mesh = min(250.0, max(96.0, inner * 0.125))
        y = MARGIN
        if self.grouping.super_spines:
            self._row(self.grouping.super_spines, Tier.SUPER_SPINE, y, x=left, width=inner)
            y += CARD_HEIGHT + mesh
        top = y
        boxed = any(pod.number for pod in pods)
        y += TITLE + PAD / 2 if boxed else 0
        spines_y = y
        if any(pod.spines for pod in pods):
            y += CARD_HEIGHT + mesh
        segments_y = y
        x = left + (inner - sum(widths) - GAP * 2 * max(0, len(pods) - 1)) / 2
        bottom = y
        for pod, width in zip(pods, widths, strict=True):
            end = self._pod(pod, x, width, spines_y, segments_y)
            bottom = max(bottom, end)
            x += width + GAP * 2
        x = left + (inner - sum(widths) - GAP * 2 * max(0, len(pods) - 1)) / 2
        for pod, width in zip(pods, widths, strict=True):
            if pod.number:
                rect = Rect(x=x, y=top, width=width, height=bottom + PAD - top)
                self.layout.frames.insert(0, Frame(title=pod.title, rect=rect, segment=-1))
            x += width + GAP * 2
        self._links()
        self._row_labels(spines_y, segments_y)
        self.layout.width = left + inner + MARGIN
        self.layout.height = bottom + (PAD if boxed else 0) + MARGIN
        return self.layout

    def _segment_width(self, segment: Segment) -> float:
        card = self._widest_host(segment) + GAP
        cards = sum(len(self._open_hosts(group)) for group in segment.groups) * card
        trays = 0.0
        for group in segment.groups:
            if self._is_tray(group):
                columns = min(len(group.hosts), 8 if len(self.segments) <= 12 else 4)
                trays = max(trays, 92.0, columns * (CELL_WIDTH + CELL_GAP) + PAD * 2)
        cards = min(cards, 12 * card)
        return max(len(segment.switches) * self.pitches[Tier.RAIL], cards, trays) + self._padding(segment) * 2

    @staticmethod
    def _padding(segment: Segment) -> float:
        """Segments without a frame need no room inside it."""
        return PAD if segment.number else 2.0

    def _pod_width(self, pod: Pod) -> float:
        segments = sum(self._segment_width(segment) for segment in pod.segments)
        segments += GAP * max(0, len(pod.segments) - 1)
        around = PAD * 2 if pod.number else 0.0
        return max(segments, len(pod.spines) * self.pitches[Tier.SPINE]) + around

    def _is_tray(self, group: HostGroup) -> bool:
        return self.trays and len(group.hosts) > 1

    def _open_hosts(self, group: HostGroup) -> tuple[Node, ...]:
        return () if self._is_tray(group) else group.hosts

    def _host_width(self, host: Node) -> float:
        ports = self.ports[host.name]
        return min(170.0, max(78.0, label_width(short_name(host)) + 24.0, ports * 10.0 + 16.0))

    def _widest_host(self, segment: Segment) -> float:
        hosts = [host for group in segment.groups for host in self._open_hosts(group)]
        return max((self._host_width(host) for host in hosts), default=72.0)

    def _row(self, nodes: Sequence[Node], tier: Tier, y: float, *, x: float, width: float) -> None:
        for box in place_row(nodes, tier, self.pitches[tier], y, x=x, width=width):
            self.rects[box.node.name] = box.rect
            self.layout.nodes.append(box)

    def _card(self, node: Node, rect: Rect, tier: Tier) -> None:
        self.rects[node.name] = rect
        self.layout.nodes.append(NodeBox(node=node, label=short_name(node), rect=rect, tier=tier))

    def _pod(self, pod: Pod, x: float, width: float, spines_y: float, segments_y: float) -> float:
        around = PAD if pod.number else 0.0
        inner = width - around * 2
        self._row(pod.spines, Tier.SPINE, spines_y, x=x + around, width=inner)
        used = sum(self._segment_width(segment) for segment in pod.segments) + GAP * max(0, len(pod.segments) - 1)
        spare = max(0.0, inner - used) / len(pod.segments) if pod.segments else 0.0
        left, bottom = x + around, segments_y
        placed: list[tuple[Segment, Rect]] = []
        for segment in pod.segments:
            segment_width = self._segment_width(segment) + spare
            end = self._segment(segment, self.placed + len(placed), left, segments_y, segment_width)
            placed.append((segment, Rect(x=left, y=segments_y, width=segment_width, height=end - segments_y)))
            bottom = max(bottom, end)
            left += segment_width + GAP
        for segment, rect in placed:
            box = Rect(x=rect.x, y=rect.y, width=rect.width, height=bottom - rect.y)
            self.layout.frames.append(Frame(title=segment.title, rect=box, segment=self.placed))
            self.placed += 1
        return bottom

    def _segment(self, segment: Segment, index: int, x: float, y: float, width: float) -> float:
        """Place a segment; returns the y of its lower edge."""
        y += PAD + (TITLE - PAD / 2 if segment.number else 0)
        padding = self._padding(segment)
        inner = width - padding * 2
        self._row(segment.switches, Tier.RAIL, y, x=x + padding, width=inner)
        if any(one.switches for one in self.segments):
            y += CARD_HEIGHT
            y += 46.0 if self.trays else 92.0
        cards = [host for group in segment.groups for host in self._open_hosts(group)]
        y = self._cards(cards, segment, x + padding, y, inner)
        for group in segment.groups:
            if self._is_tray(group):
                y = self._tray(group, index, x + padding, y, inner) + GAP
        return y - GAP + PAD

    def _cards(self, hosts: Sequence[Node], segment: Segment, x: float, y: float, width: float) -> float:
        if not hosts:
            return y
        card = self._widest_host(segment)
        columns = max(1, min(len(hosts), int((width + GAP) // (card + GAP))))
        step = min(width / columns, card * 1.6)
        for first in range(0, len(hosts), columns):
            row = hosts[first : first + columns]
            start = x + (width - step * len(row)) / 2
            for position, host in enumerate(row):
                left = start + step * position + (step - card) / 2
                self._card(host, Rect(x=left, y=y, width=card, height=HOST_HEIGHT), Tier.HOST)
            y += HOST_HEIGHT + GAP
        return y

    def _tray(self, group: HostGroup, segment: int, x: float, y: float, width: float) -> float:
        columns = max(1, int((width - PAD * 2 + CELL_GAP) // (CELL_WIDTH + CELL_GAP)))
        rows = -(-len(group.hosts) // columns)
        columns = -(-len(group.hosts) // rows)  # as even as the number of rows allows
        open_columns = max(1, int((width - PAD * 2 + OPEN_CELL_GAP) // (OPEN_CELL_WIDTH + OPEN_CELL_GAP)))
        open_columns = min(open_columns, len(group.hosts))
        open_rows = -(-len(group.hosts) // open_columns)
        height = TRAY_TITLE + rows * (CELL_HEIGHT + CELL_GAP) - CELL_GAP + PAD
        tray = Tray(
            number=len(self.layout.trays),
            group=group,
            rect=Rect(x=x, y=y, width=width, height=height),
            columns=columns,
            open_columns=open_columns,
            open_height=TRAY_TITLE + open_rows * (OPEN_CELL_HEIGHT + OPEN_CELL_GAP) - OPEN_CELL_GAP + PAD,
            segment=segment,
        )
        self.layout.trays.append(tray)
        self.rects[tray.name] = tray.rect
        for host in group.hosts:
            self.aliases[host.name] = tray.name
        return y + height

    def _links(self) -> None:
        tiers = {**self.grouping.tiers, **{tray.name: Tier.HOST for tray in self.layout.trays}}
        bundles = bundle_links(self.lab.links, self.grouping.tiers, self.aliases)
        mesh = [bundle for bundle in bundles if tiers[bundle.lower] < Tier.HOST]
        crowded = len(mesh) > MAX_LINES
        if crowded:
            self._ribbons(mesh)
        ends = _Ends(self.rects)
        for bundle in bundles:
            if tiers[bundle.lower] is Tier.HOST:
                ends.add(bundle)
        for box in self.layout.nodes:
            if box.tier is Tier.HOST:
                self.layout.nic_ports[box.node.name] = ends.ports(box.node.name)
        for bundle in bundles:
            lower, upper = tiers[bundle.lower], tiers[bundle.upper]
            if crowded and lower < Tier.HOST:
                continue
            self.layout.lines.append(self._line(bundle, lower, upper, ends))

    def _line(self, bundle: Bundle, lower: Tier, upper: Tier, ends: _Ends) -> LinkLine:
        above, below = self.rects[bundle.upper], self.rects[bundle.lower]
        if lower is upper:
            return LinkLine(bundle=bundle, x1=above.middle, y1=above.y, x2=below.middle, y2=below.y, kind="level")
        if lower is not Tier.HOST:
            return LinkLine(bundle=bundle, x1=above.middle, y1=above.bottom, x2=below.middle, y2=below.y, kind="mesh")
        kind = "strand" if bundle.lower.startswith("#") else "port"
        x1, x2 = ends.of(bundle)
        return LinkLine(bundle=bundle, x1=x1, y1=above.bottom, x2=x2, y2=below.y, kind=kind)

    def _ribbons(self, mesh: Sequence[Bundle]) -> None:
        """One band for all links between a segment's rail switches and a row of spines, and so on up."""
        home: dict[str, int] = {}
        areas: list[list[str]] = []
        spines = [[node.name for node in pod.spines] for pod in self.grouping.pods]
        rails = [[node.name for node in segment.switches] for segment in self.segments]
        for members in ([node.name for node in self.grouping.super_spines], *spines, *rails):
            home.update(dict.fromkeys(members, len(areas)))
            areas.append(members)
        counts: dict[tuple[int, int], int] = {}
        for bundle in mesh:
            key = (home[bundle.upper], home[bundle.lower])
            counts[key] = counts.get(key, 0) + len(bundle.links)
        for (upper, lower), links in counts.items():
            if upper != lower:
                above, below = self._span(areas[upper]), self._span(areas[lower])
                self.layout.ribbons.append(Ribbon(upper=above, lower=below, links=links))

    def _span(self, names: Sequence[str]) -> Rect:
        rects = [self.rects[name] for name in names]
        left, right = min(rect.x for rect in rects), max(rect.x + rect.width for rect in rects)
        return Rect(x=left, y=rects[0].y, width=right - left, height=rects[0].height)

    def _row_labels(self, spines_y: float, segments_y: float) -> None:
        grouping = self.grouping
        out_of_band = self.lab.design == OUT_OF_BAND
        spines = sum(len(pod.spines) for pod in grouping.pods)
        rails = [node for segment in self.segments for node in segment.switches]
        if grouping.super_spines:
            tops = sum(node.kind is NodeKind.SWITCH for node in grouping.super_spines)
            title, number = ("Super-spines", tops) if tops else (OUTSIDE, len(grouping.super_spines))
            self._row_label(title, str(number), MARGIN + CARD_HEIGHT / 2)
        if spines:
            title = "Server" if out_of_band else "Spines"
            self._row_label(title, str(spines), spines_y + CARD_HEIGHT / 2)
        if rails:
            railed = any(grouping.rails.get(node.name) for node in rails) and not network_alone(self.lab)
            title = "Switch" if out_of_band else "Rail switches" if railed else "Leaf switches"
            self._row_label(title, str(len(rails)), self.rects[rails[0].name].y + CARD_HEIGHT / 2)
        if self.lab.endpoints:
            first = min((self.rects[self.aliases.get(host.name, host.name)] for host in self.lab.endpoints), key=_top)
            more = f" + {len(self.lab.targets)} storage" if self.lab.targets else ""
            self._row_label("Nodes" if out_of_band else HOSTS, f"{len(self.lab.hosts)}{more}", first.y + 20.0)

    def _row_label(self, title: str, detail: str, y: float) -> None:
        self.layout.rows.append(RowLabel(title=title, detail=detail, y=y))


def _top(rect: Rect) -> float:
    return rect.y


class _Ends:
    """Spreads the ends of host links over the edges of their boxes, so that they run apart.

    On a switch ends are in the order of what is below it, on a host card in the order of the rails.
    """

    def __init__(self, rects: dict[str, Rect]) -> None:
        self.rects = rects
        self.above: dict[str, list[tuple[float, int, str]]] = {}
        self.below: dict[str, list[tuple[int, float, str]]] = {}

    def add(self, bundle: Bundle) -> None:
        upper, lower = self.rects[bundle.upper], self.rects[bundle.lower]
        self.above.setdefault(bundle.upper, []).append((lower.middle, bundle.rail, bundle.lower))
        self.below.setdefault(bundle.lower, []).append((bundle.rail, upper.middle, bundle.upper))

    def of(self, bundle: Bundle) -> tuple[float, float]:
        """The x of the upper and of the lower end."""
        upper, lower = self.rects[bundle.upper], self.rects[bundle.lower]
        ends = sorted(self.above[bundle.upper])
        x1 = upper.middle + spread(ends.index((lower.middle, bundle.rail, bundle.lower)), len(ends), upper.width, 14.0)
        if bundle.lower.startswith("#"):  # a tray is as wide as its segment: strands hang straight down
            return x1, min(max(x1, lower.x + 8.0), lower.x + lower.width - 8.0)
        rails = sorted(self.below[bundle.lower])
        position = rails.index((bundle.rail, upper.middle, bundle.upper))
        return x1, lower.middle + spread(position, len(rails), lower.width, 10.0)

    def ports(self, host: str) -> list[tuple[float, int]]:
        rails, width = sorted(self.below.get(host, ())), self.rects[host].width
        return [(width / 2 + spread(n, len(rails), width, 10.0), rail) for n, (rail, _, _) in enumerate(rails)]


def spread(position: int, count: int, width: float, step: float) -> float:
    """Offset from the middle of an edge of the `position`-th of `count` ends, at most `step` apart."""
    usable = width - 14.0 if width > 30 else width * 0.6
    return (position - (count - 1) / 2) * min(usable / count, step)
