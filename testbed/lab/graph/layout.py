"""The places of everything in a picture: tiers as rows, pods and segments as boxes, hosts at the bottom.

Pure geometry in CSS pixels of the unzoomed picture. A host group that would not fit as cards is shown as
a *tray* of small cells, which the page can open; its links are then one strand per switch and rail.

A page opens with all of its picture in the window. So that text can be read then, what would be too wide is folded:
segments of a pod, and pods, stand on several *shelves* below each other, and lines to a lower shelf pass behind the
boxes of those above. Room that is left goes to the lines between switches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from testbed.lab.core.model import Node
from testbed.lab.graph.grouping import Bundle, HostGroup, Tier, short_name

MARGIN = 20.0
GUTTER = 112.0
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

STAGE_WIDTH, STAGE_HEIGHT = 1112.0, 780.0
"""The room for a picture in a window of 1400 by 900 pixels."""
LEAST_MESH, MOST_MESH = 64.0, 240.0
"""The height of the lines between two tiers of switches."""
SHELF_GAP = 30.0
"""Between the boxes of two shelves."""


class Pitch(IntEnum):
    """The distance of the middles of neighbours in a row."""

    ROOMY = 0
    SNUG = 1
    """As near as their whole names let them."""
    TIGHT = 2
    """Names are cut."""
    NARROW = 3
    """There is room for a number alone."""

    @property
    def readable(self) -> float:
        """Return how much of names can be read, from 0 to 1."""
        return (1.0, 1.0, 0.7, 0.4)[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class Folding:
    """The folding of a picture: the shelves that pods stand on, those of the segments within a pod, and the pitch."""

    pitch: Pitch = Pitch.ROOMY
    pod_shelves: int = 1
    segment_shelves: int = 1


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
    shelf: int = 0


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
    shelf: int = 0

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
    shelf: int = 0
    shelves: int = 1
    """The number of shelves that it spans."""


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
    shelves: tuple[int, int] = (0, 0)
    """The shelves of the upper and of the lower end."""
    under: bool = False
    """It passes behind the boxes of a shelf."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ribbon:
    """A band that stands for all links between two sets of switches."""

    upper: Rect
    lower: Rect
    links: int
    shelves: tuple[int, int] = (0, 0)
    """The shelves of the upper and of the lower end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLabel:
    title: str
    detail: str
    y: float
    shelf: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The box of a network below the hosts: its switches, and the links between them."""

    number: int
    title: str
    detail: str
    rect: Rect
    shelf: int
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
    shelves: int = 1
    """Shelves of the back end."""
    folding: Folding = field(default_factory=Folding)


def legibility(width: float, height: float, pitch: Pitch) -> float:
    """Return how large text is when a picture opens: 1 where it is as large as it is drawn, and whole."""
    return min(1.0, STAGE_WIDTH / width, STAGE_HEIGHT / height) * pitch.readable


def label_width(text: str) -> float:
    return len(text) * _CHARACTER


def pitch_of(labels: Sequence[str], pitch: Pitch) -> float:
    """Distance of neighbours in a row with these labels."""
    if pitch is Pitch.TIGHT:
        return 36.0
    if pitch is Pitch.NARROW:
        return 18.0
    longest = max(map(label_width, labels), default=0.0)
    return min(170.0, max(84.0, longest + 26.0) if pitch is Pitch.ROOMY else max(50.0, longest + 15.0))


def place_row(
    nodes: Sequence[Node], tier: Tier, pitch: float, y: float, *, x: float, width: float, shelf: int = 0
) -> list[NodeBox]:
    """Cards spread evenly over `width`, at most twice their pitch apart unless the picture is wide."""
    if not nodes:
        return []
    # A short row in a wide picture is spread all over it, so that no line runs flat.
    step = width / len(nodes) if width > 1600 else min(width / len(nodes), max(pitch * 2, 110.0))
    card = min(pitch, step) - (GAP if pitch >= 84 else 6.0 if pitch > 30 else 3.0)
    start = x + (width - step * len(nodes)) / 2
    boxes = []
    for position, node in enumerate(nodes):
        rect = Rect(x=start + step * position + (step - card) / 2, y=y, width=card, height=CARD_HEIGHT)
        boxes.append(NodeBox(node=node, label=short_name(node), rect=rect, tier=tier, shelf=shelf))
    return boxes


def spread(position: int, count: int, width: float, step: float) -> float:
    """Offset from the middle of an edge of the `position`-th of `count` ends, at most `step` apart."""
    usable = width - 14.0 if width > 30 else width * 0.6
    return (position - (count - 1) / 2) * min(usable / count, step)
