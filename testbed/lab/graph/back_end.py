"""The back end of a lab and its hosts as they stand in a picture, folded so that text can be read.

See `layout` for what a shelf is, and for the pieces that a picture is made of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from typing import TypeVar

from testbed.lab.core.model import OUT_OF_BAND, Lab, Node, NodeKind
from testbed.lab.graph.grouping import (
    Bundle,
    Grouping,
    HostGroup,
    Pod,
    Segment,
    Tier,
    bundle_links,
    by_plane,
    network_alone,
    short_name,
)
from testbed.lab.graph.layout import (
    CARD_HEIGHT,
    CELL_GAP,
    CELL_HEIGHT,
    CELL_WIDTH,
    GAP,
    GUTTER,
    HOST_HEIGHT,
    HOSTS,
    LEAST_MESH,
    MARGIN,
    MAX_LINES,
    MAX_OPEN_HOSTS,
    MOST_MESH,
    OPEN_CELL_GAP,
    OPEN_CELL_HEIGHT,
    OPEN_CELL_WIDTH,
    OUTSIDE,
    PAD,
    SHELF_GAP,
    STAGE_HEIGHT,
    STAGE_WIDTH,
    TITLE,
    TRAY_TITLE,
    Folding,
    Frame,
    Layout,
    LinkLine,
    NodeBox,
    Pitch,
    Rect,
    Ribbon,
    RowLabel,
    Tray,
    label_width,
    legibility,
    pitch_of,
    place_row,
    spread,
)

_Item = TypeVar("_Item")
_MOST_SHELVES = 4
_MOST_WIDER = 1.8
"""By how much pods are stretched where what is above or below them is wider."""
_HOST_GAP, _TRAY_GAP = 64.0, 40.0
"""The least height of lines between switches and host cards, and trays."""
_MORE_HOST_GAP, _MOST_HOST_GAP = 44.0, 220.0
"""By how much it may be more, and what it may be where there is nothing else to fill a window with."""


def lay_out(
    lab: Lab, grouping: Grouping, *, least_width: float = 0.0, always_trays: bool = False, below: float = 0.0
) -> Layout:
    """Place everything of one network, folded so that its text is as large as it can be.

    What is between the margins is at least `least_width` wide; `always_trays` shows host groups of small labs as trays,
    too; `below` is the height of what stands below the picture.
    """
    best: tuple[float, Folding] | None = None
    for folding in _foldings(grouping):
        tried = _Builder(lab, grouping, least_width, always_trays, folding)
        tried.place()
        found = legibility(tried.layout.width, tried.layout.height + below, folding.pitch)
        if best is None or found > best[0] * 1.03:
            best = found, folding
        if found >= 0.95:
            break
    assert best is not None  # there is one at least
    builder = _Builder(lab, grouping, least_width, always_trays, best[1])
    builder.fill(below)
    return builder.finished()


def _foldings(grouping: Grouping) -> Iterator[Folding]:
    """Yield the ways to fold a picture, those with few shelves first."""
    pods = min(_MOST_SHELVES, max(1, len(grouping.pods)))
    segments = min(_MOST_SHELVES, max((len(pod.segments) for pod in grouping.pods), default=1) or 1)
    shelves = sorted(product(range(1, pods + 1), range(1, segments + 1)), key=lambda one: (one[0] * one[1], one[0]))
    for pitch in Pitch:
        for of_pods, of_segments in shelves:
            yield Folding(pitch=pitch, pod_shelves=of_pods, segment_shelves=of_segments)


class _Builder:
    """Carries the measures of one picture while it is laid out."""

    def __init__(self, lab: Lab, grouping: Grouping, least_width: float, always_trays: bool, folding: Folding) -> None:
        self.lab = lab
        self.least_width = max(360.0, least_width)
        self.always_trays = always_trays
        self.grouping = grouping
        self.folding = folding
        self.segments = grouping.segments
        rails = [short_name(node) for segment in self.segments for node in segment.switches]
        spines = [short_name(node) for pod in grouping.pods for node in pod.spines]
        self.pitches = {
            Tier.RAIL: pitch_of(rails, folding.pitch),
            Tier.SPINE: pitch_of(spines, folding.pitch),
            Tier.SUPER_SPINE: pitch_of([short_name(node) for node in grouping.super_spines], folding.pitch),
        }
        self.ports = Counter(end.node for link in lab.links for end in (link.a, link.b))
        self.trays = always_trays or len(lab.endpoints) > MAX_OPEN_HOSTS
        self.mesh = LEAST_MESH
        self.host_gap = _TRAY_GAP if self.trays else _HOST_GAP
        self._begin()

    def _begin(self) -> None:
        self.layout = Layout(folding=self.folding)
        self.rects: dict[str, Rect] = {}
        self.shelf_of: dict[str, int] = {}
        self.aliases: dict[str, str] = {}
        self.placed = 0
        self.spines_y = 0.0

    def fill(self, below: float) -> None:
        """Place everything, and give the lines the room that the window has left; `below` is that of other things."""
        self.place()
        meshes = bool(self.grouping.super_spines) + sum(any(pod.spines for pod in row) for row in self._pod_rows())
        spare = self.layout.width * STAGE_HEIGHT / STAGE_WIDTH - self.layout.height - below
        if spare <= 0:
            return
        if meshes:
            shelves = self.layout.shelves
            more = min(_MORE_HOST_GAP, spare / (meshes + shelves))
            self.host_gap += more
            self.mesh = min(MOST_MESH, self.mesh + (spare - more * shelves) / meshes)
        else:
            self.host_gap = min(_MOST_HOST_GAP, self.host_gap + spare)
        self._begin()
        self.place()

    def place(self) -> None:
        """Place nodes and boxes."""
        rows = self._pod_rows()
        widths = [[self._pod_width(pod) for pod in row] for row in rows]
        left = MARGIN + GUTTER
        inner = max(
            *(sum(row) + self._pod_gap * max(0, len(row) - 1) for row in widths),
            self.pitches[Tier.SUPER_SPINE] * len(self.grouping.super_spines),
            self.least_width,
        )
        y = MARGIN
        if self.grouping.super_spines:
            self._row(self.grouping.super_spines, Tier.SUPER_SPINE, y, x=left, width=inner)
            y += CARD_HEIGHT + self.mesh
        boxed = any(pod.number for pod in self.grouping.pods)
        bottom, shelf = y, 0
        for row, row_widths in zip(rows, widths, strict=True):
            gaps = self._pod_gap * max(0, len(row) - 1)
            wider = min(_MOST_WIDER, (inner - gaps) / max(1.0, sum(row_widths)))
            stretched = [width * wider for width in row_widths]
            bottom = self._pod_row(row, stretched, left + (inner - gaps - sum(stretched)) / 2, y, shelf)
            shelf += max((len(self._shelved(pod)) for pod in row), default=1)
            y = bottom + (PAD if boxed else 0) + SHELF_GAP
        self.layout.shelves = max(1, shelf)
        self.layout.width = left + inner + MARGIN
        self.layout.height = bottom + (PAD if boxed else 0) + MARGIN

    def finished(self) -> Layout:
        """Return the picture with its lines and the names of its rows."""
        self._links()
        self._row_labels()
        return self.layout

    @property
    def _pod_gap(self) -> float:
        return GAP * 2 if self.folding.pitch is Pitch.ROOMY else GAP

    def _pod_rows(self) -> list[tuple[Pod, ...]]:
        return _folded(self.grouping.pods, self.folding.pod_shelves) or [()]

    def _shelved(self, pod: Pod) -> list[tuple[Segment, ...]]:
        return _folded(pod.segments, self.folding.segment_shelves) or [()]

    def _pod_row(self, row: Sequence[Pod], widths: Sequence[float], x: float, top: float, shelf: int) -> float:
        """Place pods side by side; returns the y of the lower edge of what is in them."""
        y = top + (TITLE + PAD / 2 if any(pod.number for pod in self.grouping.pods) else 0)
        if not shelf:
            self.spines_y = y
        segments_y = y + (CARD_HEIGHT + self.mesh if any(pod.spines for pod in row) else 0)
        shelves = max((len(self._shelved(pod)) for pod in row), default=1)
        places = [x + sum(widths[:at]) + self._pod_gap * at for at in range(len(row))]
        bottoms = [
            self._pod(pod, left, width, y, segments_y, shelf)
            for pod, left, width in zip(row, places, widths, strict=True)
        ]
        bottom = max(bottoms, default=segments_y)
        for pod, left, width in zip(row, places, widths, strict=True):
            if pod.number:
                rect = Rect(x=left, y=top, width=width, height=bottom + PAD - top)
                frame = Frame(title=pod.title, rect=rect, segment=-1, shelf=shelf, shelves=shelves)
                self.layout.frames.insert(0, frame)
        return bottom

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

    def _padding(self, segment: Segment) -> float:
        """Segments without a frame need no room inside it, and those of a crowded picture have little."""
        return 2.0 if not segment.number else PAD if self.folding.pitch is Pitch.ROOMY else PAD / 2

    def _pod_width(self, pod: Pod) -> float:
        shelves = [
            sum(self._segment_width(segment) for segment in row) + GAP * max(0, len(row) - 1)
            for row in self._shelved(pod)
        ]
        around = self._around(pod) * 2
        return max(*shelves, 0.0, len(pod.spines) * self.pitches[Tier.SPINE]) + around

    def _around(self, pod: Pod) -> float:
        return 0.0 if not pod.number else PAD if self.folding.pitch is Pitch.ROOMY else PAD / 2

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

    def _row(self, nodes: Sequence[Node], tier: Tier, y: float, *, x: float, width: float, shelf: int = 0) -> None:
        for box in place_row(nodes, tier, self.pitches[tier], y, x=x, width=width, shelf=shelf):
            self._put(box)

    def _put(self, box: NodeBox) -> None:
        self.rects[box.node.name] = box.rect
        self.shelf_of[box.node.name] = box.shelf
        self.layout.nodes.append(box)

    def _pod(self, pod: Pod, x: float, width: float, spines_y: float, segments_y: float, shelf: int) -> float:
        around = self._around(pod)
        inner = width - around * 2
        self._row(pod.spines, Tier.SPINE, spines_y, x=x + around, width=inner, shelf=shelf)
        top = bottom = segments_y
        for number, row in enumerate(self._shelved(pod)):
            bottom = self._segment_row(row, x + around, top, inner, shelf + number)
            top = bottom + SHELF_GAP
        return bottom

    def _segment_row(self, row: Sequence[Segment], left: float, top: float, inner: float, shelf: int) -> float:
        """Place segments side by side; returns the y of their lower edge."""
        used = sum(self._segment_width(segment) for segment in row) + GAP * max(0, len(row) - 1)
        spare = max(0.0, inner - used) / len(row) if row else 0.0
        bottom = top
        placed: list[tuple[Segment, Rect]] = []
        for segment in row:
            width = self._segment_width(segment) + spare
            end = self._segment(segment, self.placed + len(placed), Rect(x=left, y=top, width=width, height=0), shelf)
            placed.append((segment, Rect(x=left, y=top, width=width, height=end - top)))
            bottom = max(bottom, end)
            left += width + GAP
        for segment, rect in placed:
            box = Rect(x=rect.x, y=rect.y, width=rect.width, height=bottom - rect.y)
            self.layout.frames.append(Frame(title=segment.title, rect=box, segment=self.placed, shelf=shelf))
            self.placed += 1
        return bottom

    def _segment(self, segment: Segment, index: int, room: Rect, shelf: int) -> float:
        """Place a segment in a room, whose height is not known yet; returns the y of its lower edge."""
        y = room.y + PAD + (TITLE - PAD / 2 if segment.number else 0)
        padding = self._padding(segment)
        x, inner = room.x + padding, room.width - padding * 2
        self._row(segment.switches, Tier.RAIL, y, x=x, width=inner, shelf=shelf)
        if any(one.switches for one in self.segments):
            y += CARD_HEIGHT + self.host_gap
        cards = [host for group in segment.groups for host in self._open_hosts(group)]
        y = self._cards(cards, segment, Rect(x=x, y=y, width=inner, height=0), shelf)
        for group in segment.groups:
            if self._is_tray(group):
                y = self._tray(group, index, Rect(x=x, y=y, width=inner, height=0), shelf) + GAP
        return y - GAP + PAD

    def _cards(self, hosts: Sequence[Node], segment: Segment, room: Rect, shelf: int) -> float:
        if not hosts:
            return room.y
        y, card = room.y, self._widest_host(segment)
        columns = max(1, min(len(hosts), int((room.width + GAP) // (card + GAP))))
        step = min(room.width / columns, card * 1.6)
        for first in range(0, len(hosts), columns):
            row = hosts[first : first + columns]
            start = room.x + (room.width - step * len(row)) / 2
            for position, host in enumerate(row):
                left = start + step * position + (step - card) / 2
                rect = Rect(x=left, y=y, width=card, height=HOST_HEIGHT)
                self._put(NodeBox(node=host, label=short_name(host), rect=rect, tier=Tier.HOST, shelf=shelf))
            y += HOST_HEIGHT + GAP
        return y

    def _tray(self, group: HostGroup, segment: int, room: Rect, shelf: int) -> float:
        columns = max(1, int((room.width - PAD * 2 + CELL_GAP) // (CELL_WIDTH + CELL_GAP)))
        rows = -(-len(group.hosts) // columns)
        columns = -(-len(group.hosts) // rows)  # as even as the number of rows allows
        open_columns = max(1, int((room.width - PAD * 2 + OPEN_CELL_GAP) // (OPEN_CELL_WIDTH + OPEN_CELL_GAP)))
        open_columns = min(open_columns, len(group.hosts))
        open_rows = -(-len(group.hosts) // open_columns)
        height = TRAY_TITLE + rows * (CELL_HEIGHT + CELL_GAP) - CELL_GAP + PAD
        tray = Tray(
            number=len(self.layout.trays),
            group=group,
            rect=Rect(x=room.x, y=room.y, width=room.width, height=height),
            columns=columns,
            open_columns=open_columns,
            open_height=TRAY_TITLE + open_rows * (OPEN_CELL_HEIGHT + OPEN_CELL_GAP) - OPEN_CELL_GAP + PAD,
            segment=segment,
            shelf=shelf,
        )
        self.layout.trays.append(tray)
        self.rects[tray.name] = tray.rect
        self.shelf_of[tray.name] = shelf
        for host in group.hosts:
            self.aliases[host.name] = tray.name
        return room.y + height

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
        shelves = self.shelf_of[bundle.upper], self.shelf_of[bundle.lower]
        under = shelves[0] != shelves[1]
        x1, x2, kind = above.middle, below.middle, "mesh"
        if lower is upper:
            return LinkLine(
                bundle=bundle, x1=x1, y1=above.y, x2=x2, y2=below.y, kind="level", shelves=shelves, under=under
            )
        if lower is Tier.HOST:
            kind = "strand" if bundle.lower.startswith("#") else "port"
            x1, x2 = ends.of(bundle)
        return LinkLine(
            bundle=bundle, x1=x1, y1=above.bottom, x2=x2, y2=below.y, kind=kind, shelves=shelves, under=under
        )

    def _ribbons(self, mesh: Sequence[Bundle]) -> None:
        """One band for all links between a segment's rail switches and a row of spines, and so on up, of each plane."""
        home: dict[str, int] = {}
        areas: list[list[str]] = []
        rows = [self.grouping.super_spines, *(pod.spines for pod in self.grouping.pods)]
        rows += [segment.switches for segment in self.segments]
        for members in (names for row in rows for names in self._areas(row)):
            home.update(dict.fromkeys(members, len(areas)))
            areas.append(members)
        counts: dict[tuple[int, int], int] = {}
        for bundle in mesh:
            key = (home[bundle.upper], home[bundle.lower])
            counts[key] = counts.get(key, 0) + len(bundle.links)
        for (upper, lower), links in counts.items():
            if upper != lower:
                shelves = self.shelf_of[areas[upper][0]], self.shelf_of[areas[lower][0]]
                above, below = self._span(areas[upper]), self._span(areas[lower])
                self.layout.ribbons.append(Ribbon(upper=above, lower=below, links=links, shelves=shelves))

    def _areas(self, row: Sequence[Node]) -> list[list[str]]:
        """The nodes of a row that have one band up and down: all, or those of one plane."""
        parts = [nodes for _, nodes in by_plane(row)] if self.grouping.planes > 1 else [tuple(row)]
        return [[node.name for node in nodes] for nodes in parts]

    def _span(self, names: Sequence[str]) -> Rect:
        rects = [self.rects[name] for name in names]
        left, right = min(rect.x for rect in rects), max(rect.x + rect.width for rect in rects)
        return Rect(x=left, y=rects[0].y, width=right - left, height=rects[0].height)

    def _row_labels(self) -> None:
        grouping = self.grouping
        out_of_band = self.lab.design == OUT_OF_BAND
        spines = sum(len(pod.spines) for pod in grouping.pods)
        rails = [node for segment in self.segments for node in segment.switches]
        if grouping.super_spines:
            tops = sum(node.kind is NodeKind.SWITCH for node in grouping.super_spines)
            outside = len(grouping.super_spines) - tops
            title = "Super-spines" if tops else OUTSIDE
            detail = f"{tops}, {outside} outside" if tops and outside else str(tops or outside)
            self._row_label(title, detail, MARGIN + CARD_HEIGHT / 2)
        if spines:
            title = "Server" if out_of_band else "Spines"
            planes = f", {grouping.planes} planes" if grouping.planes > 1 else ""
            self._row_label(title, f"{spines}{planes}", self.spines_y + CARD_HEIGHT / 2)
        if rails:
            railed = any(grouping.rails.get(node.name) for node in rails) and not network_alone(self.lab)
            title = "Switch" if out_of_band else "Rail switches" if railed else "Leaf switches"
            self._row_label(title, str(len(rails)), self.rects[rails[0].name].y + CARD_HEIGHT / 2)
        if self.lab.endpoints:
            first = min(
                (self.rects[self.aliases.get(host.name, host.name)] for host in self.lab.endpoints),
                key=lambda rect: rect.y,
            )
            more = f" + {len(self.lab.targets)} storage" if self.lab.targets else ""
            self._row_label("Nodes" if out_of_band else HOSTS, f"{len(self.lab.hosts)}{more}", first.y + 20.0)

    def _row_label(self, title: str, detail: str, y: float) -> None:
        self.layout.rows.append(RowLabel(title=title, detail=detail, y=y))


def _folded(items: Sequence[_Item], shelves: int) -> list[tuple[_Item, ...]]:
    """Items on that many shelves, as even as can be, in their order; fewer where there are fewer items."""
    if not items:
        return []
    most = -(-len(items) // shelves)
    return [tuple(items[at : at + most]) for at in range(0, len(items), most)]


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
