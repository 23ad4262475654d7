"""The layout as SVG text. Colours are CSS variables of the page, so that one drawing serves light and dark.

`q1` to `q8` are the colour classes of rails (rail 9 has rail 1's again), `r<rail>` the classes by which the
page finds a rail. `data-n` is a node's number in the lab, `data-a` and `data-b` the ends of a line.

In a picture of several networks `net<number>` is the class of all that belongs to a network alone, and the class of its
colour; what is `low` is below the hosts, and moves down when host groups are opened.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from html import escape

from testbed.base.units import Rate
from testbed.lab.core.model import BACKEND, End, Lab, NodeKind
from testbed.lab.core.model.link_condition import LinkCondition
from testbed.lab.graph.grouping import LEAF_NAME, ROUTER_NAME, TIER_NAMES, Grouping, Tier, counted, network_alone
from testbed.lab.graph.layout import (
    CELL_GAP,
    CELL_HEIGHT,
    CELL_WIDTH,
    HOSTS,
    MARGIN,
    PAD,
    TRAY_TITLE,
    Band,
    Frame,
    Layout,
    LinkLine,
    NodeBox,
    Ribbon,
    RowLabel,
    Tray,
    label_width,
)
from testbed.lab.graph.management import special_names
from testbed.lab.graph.scale_up import PLANE_NAME, SCALE_UP, folded_planes

RAIL_COLOURS = 8

STATE_CLASSES: Mapping[str, str] = {"running": "ok", "up": "ok", "ok": "ok", "degraded": "warn", "starting": "warn"}
"""CSS class of a node's state; anything else is shown as bad."""


def colour_class(rail: int) -> str:
    """The CSS class that colours a rail; "" for links that belong to none."""
    return f"q{(rail - 1) % RAIL_COLOURS + 1}" if rail else ""


def state_class(state: str) -> str:
    return STATE_CLASSES.get(state, "bad")


def draw_svg(
    lab: Lab,
    grouping: Grouping,
    layout: Layout,
    status: Mapping[str, str],
    conditions: Mapping[str, LinkCondition],
    *,
    with_links: bool = False,
) -> str:
    """Return the `<svg>` element. `with_links`: lines say by number which links they stand for."""
    drawing = _Drawing(lab, grouping, layout, status, conditions)
    if with_links:
        drawing.links = {link.a: str(number) for number, link in enumerate(lab.links)}
    return drawing.text()


def _short(rate_bps: int) -> str:
    """ "400G" for 400 Gbit/s, as the file says it."""
    return str(Rate(rate_bps)).removesuffix("bit/s").replace(" ", "")


def _weight(line: LinkLine) -> str:
    """The width of a line that stands for several links, as an attribute: a style would want a policy for it."""
    count = len(line.bundle.links)
    if count == 1:
        return ""
    weight = 1.1 + (0.5 if line.kind == "mesh" else 0.75) * math.log2(count)
    return f' stroke-width="{_number(weight)}"'


def _number(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")


class _Drawing:
    def __init__(
        self,
        lab: Lab,
        grouping: Grouping,
        layout: Layout,
        status: Mapping[str, str],
        conditions: Mapping[str, LinkCondition],
    ) -> None:
        self.conditions = conditions
        self.links: Mapping[End, str] = {}
        self.grouping = grouping
        self.layout = layout
        self.status = status
        self.numbers = {node.name: str(position) for position, node in enumerate(lab.nodes)}
        self.numbers |= {tray.name: tray.name for tray in layout.trays}
        self.ports: dict[str, Counter[str]] = {node.name: Counter() for node in lab.nodes}
        self.rates: dict[str, Counter[int]] = {node.name: Counter() for node in lab.nodes}
        self.served = served = {node.name: node.network for node in lab.targets}
        self.bands = {band.title: band.number for band in layout.bands}
        for link in lab.links:
            for here, there in ((link.a.node, link.b.node), (link.b.node, link.a.node)):
                own, other = grouping.tiers[here], grouping.tiers[there]
                if link.network == SCALE_UP and own is Tier.HOST:
                    continue  # its GPUs have links there, and no NIC
                self.ports[here]["up" if other < own else "down" if other > own else "level"] += 1
                if link.network in (BACKEND, served.get(here)) or not layout.bands:
                    self.rates[here][link.rate.bps] += 1
        self.low = {box.node.name: band.number for band in layout.bands for box in band.nodes}
        self.alone = bool(network_alone(lab))
        self.outside = {node.name for node in lab.nodes if node.kind is NodeKind.ROUTER}
        self.special = special_names(lab)
        self.low_ports: dict[str, list[tuple[int, float]]] = {}
        for number, line in layout.drops:
            self.low_ports.setdefault(line.bundle.lower, []).append((number, line.x1))

    def text(self) -> str:
        layout = self.layout
        width, height = _number(layout.width), _number(layout.height)
        layered = bool(layout.bands)
        rows = [row for row in layout.rows if not layered or row.title != HOSTS]
        extra = f' data-hosts="{_number(layout.hosts_top)}" data-rest="{_number(self._rest())}"' if layered else ""
        parts = [
            f'<svg id="picture" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
            f' height="{height}" data-w="{width}" data-h="{height}"{extra} role="group"'
            f' aria-label="Picture of the {"networks" if layered else "fabric"}">',
            *self._under(layout),
            *self._low(self._band(band) for band in layout.bands),
            *self._back_end(self._row(row) for row in rows),
            *(self._row(row) for row in layout.rows if layered and row.title == HOSTS),
            *self._low(self._row(row) for row in layout.low_rows),
            *self._back_end(self._ribbon(ribbon) for ribbon in layout.ribbons if not _apart(ribbon.shelves)),
            *self._low(
                f'<g class="net{band.number}">{self._ribbon(band.ribbon)}</g>' for band in layout.bands if band.ribbon
            ),
            '<g class="lines">',
            *self._back_end(self._line(line) for line in layout.lines if not line.under),
            *(self._drop(number, line) for number, line in layout.drops if not line.under),
            *self._low(self._low_line(band.number, line) for band in layout.bands for line in band.lines),
            "</g>",
            *self._back_end(self._title(frame) for frame in layout.frames if frame.title),
            *(f'<text class="title free net0" x="20" y="18">{BACKEND}</text>' for _ in layout.bands[:1]),
            *self._low(self._band_title(band) for band in layout.bands),
            *(self._tray(tray) for tray in layout.trays),
            '<g id="overlay"></g>',
            *self._back_end(self._node(box) for box in layout.nodes if not layered or box.tier is not Tier.HOST),
            *(self._end_node(box) for box in layout.nodes if layered and box.tier is Tier.HOST),
            *self._low(
                f'<g class="net{band.number}">{"".join(self._node(box) for box in band.nodes)}</g>'
                for band in layout.bands
            ),
            "</svg>",
        ]
        return "\n".join(parts)

    def _under(self, layout: Layout) -> Iterator[str]:
        """Yield the frames, and before each kind of them the lines that pass behind it."""
        pods = [frame for frame in layout.frames if frame.segment < 0]
        behind = [line for line in layout.lines if line.under]
        # What leads to a lower row of pods passes behind pods; what leads to a lower shelf of one, behind segments.
        tops = {box.node.name for box in layout.nodes if box.tier is Tier.SUPER_SPINE}
        far = [line for line in behind if line.bundle.upper in tops]
        near = [line for line in behind if line.bundle.upper not in tops]
        bands = [ribbon for ribbon in layout.ribbons if _apart(ribbon.shelves)]
        pods_top = min((frame.rect.y for frame in pods), default=0.0)
        above = [self._ribbon(band) for band in bands if band.upper.y < pods_top]
        inside = [self._ribbon(band) for band in bands if band.upper.y >= pods_top]
        yield from self._lines(
            [*self._back_end([*above, *map(self._line, far)])],
            [self._drop(number, line) for number, line in layout.drops if line.shelves[1] < layout.shelves - 1],
        )
        yield from self._back_end(map(self._frame, pods))
        yield from self._lines([*self._back_end([*inside, *map(self._line, near)])])
        yield from self._back_end(self._frame(frame) for frame in layout.frames if frame.segment >= 0)
        last = [(number, line) for number, line in layout.drops if line.shelves[1] == layout.shelves - 1]
        yield from self._lines([self._drop(number, line) for number, line in last if line.under])

    @staticmethod
    def _lines(*parts: list[str]) -> Iterator[str]:
        if any(parts):
            yield from ('<g class="lines">', *(line for part in parts for line in part), "</g>")

    def _rest(self) -> float:
        """Return how far down the picture goes without the networks below the hosts."""
        frames = [frame.rect.bottom for frame in self.layout.frames]
        hosts = [box.rect.bottom for box in self.layout.nodes if box.tier is Tier.HOST]
        return max([*frames, *hosts, *(tray.rect.bottom for tray in self.layout.trays)], default=0.0) + MARGIN

    def _end_node(self, box: NodeBox) -> str:
        """A host, or a storage target, which is left out with its network."""
        network = self.served.get(box.node.name, "")
        number = 0 if network == BACKEND and self.layout.bands else self.bands.get(network)
        return self._node(box) if number is None else f'<g class="net{number}">{self._node(box)}</g>'

    def _back_end(self, parts: Iterable[str]) -> Iterator[str]:
        """Yield the parts of the back end alone, in a picture of several networks as a group of its own."""
        if not self.layout.bands:
            yield from parts
        elif inside := list(parts):
            yield from ('<g class="net0">', *inside, "</g>")

    @staticmethod
    def _low(parts: Iterable[str]) -> Iterator[str]:
        """Yield the parts below the hosts."""
        if inside := list(parts):
            yield from ('<g class="low">', *inside, "</g>")

    @staticmethod
    def _row(row: RowLabel) -> str:
        shelf = f' data-shelf="{row.shelf}"'
        title = f'<text class="row"{shelf} x="20" y="{_number(row.y - 2)}">{escape(row.title)}</text>'
        return title + f'<text class="rowd"{shelf} x="20" y="{_number(row.y + 15)}">{escape(row.detail)}</text>'

    @staticmethod
    def _band(band: Band) -> str:
        rect = band.rect
        return (
            f'<rect class="band net{band.number}" x="{_number(rect.x)}" y="{_number(rect.y)}"'
            f' width="{_number(rect.width)}" height="{_number(rect.height)}" data-end="{_number(rect.bottom + MARGIN)}"'
            f' data-x="{_number(rect.x)}" data-w="{_number(rect.width)}" data-shelf="{band.shelf}"'
            f' data-net="{band.number}" rx="10"/>'
        )

    @staticmethod
    def _band_title(band: Band) -> str:
        x, y = _number(band.rect.x + PAD), band.rect.bottom - 11
        return (
            f'<text class="title seg net{band.number}" x="{x}" y="{_number(y - 16)}">{escape(band.title)}'
            f'<tspan class="td" x="{x}" dy="16">{escape(band.detail)}</tspan></text>'
        )

    def _drop(self, number: int, line: LinkLine) -> str:
        """A line to a network below the hosts. Its ends are data: it is drawn anew when a host group is opened.

        That of a network which another one carries is hidden and moved with that one's switches, too.
        """
        switches = self.low[line.bundle.upper]
        x1, y1, x2, y2 = (_number(value) for value in (line.x1, line.y1, line.x2, line.y2))
        middle = _number((line.y1 + line.y2) / 2)
        path = (
            f'<path class="k drop net{number}" {self._ends(line)} data-net="{switches}" data-x1="{x1}" data-y1="{y1}"'
            f' data-x2="{x2}" data-y2="{y2}"{_weight(line)} d="M{x1} {y1}C{x1} {middle} {x2} {middle} {x2} {y2}"/>'
        )
        return path if switches == number else f'<g class="net{switches}">{path}</g>'

    def _low_line(self, number: int, line: LinkLine) -> str:
        x1, y1, x2, y2 = (_number(value) for value in (line.x1, line.y1, line.x2, line.y2))
        fall = _number(line.y1 + 26.0)
        path = f"C{x1} {fall} {x2} {fall} {x2} {y2}" if line.kind == "level" else f"L{x2} {y2}"
        classes = f"k {line.kind} net{number}{self._condition(line)}"
        return f'<path class="{classes}" {self._ends(line)}{_weight(line)} d="M{x1} {y1}{path}"/>'

    def _condition(self, line: LinkLine) -> str:
        """The class of a line whose links are not as declared: all down, or some of them otherwise."""
        found = [self.conditions[str(link.a)] for link in line.bundle.links if str(link.a) in self.conditions]
        if found and len(found) == len(line.bundle.links) and not any(one.up for one in found):
            return " down"
        return " changed" if any(not one.as_declared for one in found) else ""

    def _ends(self, line: LinkLine) -> str:
        ends = f'data-a="{self.numbers[line.bundle.upper]}" data-b="{self.numbers[line.bundle.lower]}"'
        if line.shelves != (0, 0):
            ends += f' data-u="{line.shelves[0]}" data-v="{line.shelves[1]}"'
        if self.links:
            ends += f' data-l="{" ".join(self.links[link.a] for link in line.bundle.links)}"'
        return ends

    def _frame(self, frame: Frame) -> str:
        rect, kind = frame.rect, "pod" if frame.segment < 0 else "seg"
        if frame.segment >= 0 and not frame.title:
            return ""
        return (
            f'<rect class="frame {kind}" x="{_number(rect.x)}" y="{_number(rect.y)}" width="{_number(rect.width)}"'
            f' height="{_number(rect.height)}" data-h="{_number(rect.height)}"{self._shelf(frame.shelf)}'
            f' data-span="{frame.shelves}" rx="{14 if kind == "pod" else 10}"/>'
        )

    @staticmethod
    def _shelf(number: int) -> str:
        """Say which shelf of the back end a part stands on, where it is not the first."""
        return f' data-shelf="{number}"' if number else ""

    def _title(self, frame: Frame) -> str:
        x, y, kind = frame.rect.x + 14, frame.rect.y + 19, "pod" if frame.segment < 0 else "seg"
        shelf = self._shelf(frame.shelf)
        return f'<text class="title {kind}"{shelf} x="{_number(x)}" y="{_number(y)}">{escape(frame.title)}</text>'

    def _ribbon(self, ribbon: Ribbon) -> str:
        up, low = ribbon.upper, ribbon.lower
        middle = (up.bottom + low.y) / 2
        x1, x2, x3, x4, y1, y2, y3 = map(
            _number, (up.x, up.x + up.width, low.x, low.x + low.width, up.bottom, middle, low.y)
        )
        path = f"M{x1} {y1}H{x2}C{x2} {y2} {x4} {y2} {x4} {y3}H{x3}C{x3} {y2} {x1} {y2} {x1} {y1}Z"
        return f'<path class="ribbon" d="{path}"><title>{counted(ribbon.links, "link")}</title></path>'

    def _line(self, line: LinkLine) -> str:
        bundle = line.bundle
        rail = bundle.rail
        if not rail and line.kind == "mesh":
            rails = self.grouping.rails.get(bundle.lower, ())
            rail = rails[0] if len(rails) == 1 else 0
        x1, y1, x2, y2 = (_number(value) for value in (line.x1, line.y1, line.x2, line.y2))
        if line.kind == "mesh":
            path = f"M{x1} {y1}L{x2} {y2}"
        elif line.kind == "level":
            rise = _number(line.y1 - 26.0)
            path = f"M{x1} {y1}C{x1} {rise} {x2} {rise} {x2} {y2}"
        else:
            middle = _number((line.y1 + line.y2) / 2)
            path = f"M{x1} {y1}C{x1} {middle} {x2} {middle} {x2} {y2}"
        classes = f"k {line.kind} {colour_class(rail)}" + (f" r{rail}" if rail else "") + self._condition(line)
        under = " under" if line.under else ""
        return f'<path class="{classes}{under}" {self._ends(line)}{_weight(line)} d="{path}"/>'

    def _classes(self, name: str) -> str:
        rails = " ".join(f"r{rail}" for rail in self.grouping.rails.get(name, ()))
        outside = "out" if name in self.outside else ""
        return " ".join(f"n t{int(self.grouping.tiers[name])} {outside} {rails}".split())

    def _alone(self, name: str) -> str:
        """The class of what a host's box shows of the back end alone."""
        end = self.grouping.tiers[name] is Tier.HOST and name not in self.served
        return " net0" if self.layout.bands and end else ""

    def _described(self, name: str) -> str:
        """Return what a screen reader says of a node."""
        state = f", {self.status[name]}" if name in self.status else ""
        tier = self.grouping.tiers[name]
        what = LEAF_NAME if tier is Tier.RAIL and (self.alone or name in self.low) else TIER_NAMES[tier]
        what = ROUTER_NAME if name in self.outside else self.special.get(name, what)
        ends = "host" if what == PLANE_NAME else "port"
        return escape(f"{name}, {what}, {counted(self.ports[name].total(), ends)}{state}")

    def _node(self, box: NodeBox) -> str:
        rect, name = box.rect, box.node.name
        parts = [
            f'<g class="{self._classes(name)}" data-n="{self.numbers[name]}"{self._shelf(box.shelf)}'
            f' tabindex="-1" role="button"'
            f' aria-label="{self._described(name)}"'
            f' transform="translate({_number(rect.x)} {_number(rect.y)})">'
            f'<rect class="c" width="{_number(rect.width)}" height="{_number(rect.height)}"'
            f' rx="{_number(rect.height / 2) if name in self.outside else 7}"/>'
        ]
        middle = _number(rect.width / 2)
        if rect.width < 30:
            tag = str(box.node.place.index) if box.node.place else ""
            if label_width(tag) * 0.83 + 2 < rect.width:
                parts.append(f'<text class="l small" x="{middle}" y="26">{tag}</text>')
        else:
            label = _fitted(box.label, rect.width - 8)
            detail = self._detail(name, box.tier)
            roomy = label_width(detail) * 0.88 < rect.width - 6
            raised = 3 if name in self.low_ports else 0
            alone = self._alone(name)
            y = (21 if roomy else 26) - raised
            parts.append(f'<text class="l{alone}" x="{middle}" y="{y}">{escape(label)}</text>')
            if alone:  # without the boxes of pods and segments around it a host needs its whole name
                whole = escape(_fitted(name, rect.width - 6))
                parts.append(f'<text class="l whole" x="{middle}" y="23">{whole}</text>')
            if roomy:
                parts.append(f'<text class="s{alone}" x="{middle}" y="{34 - raised}">{detail}</text>')
        parts.append(self._marks(name, rect.width, rect.height, box.tier))
        parts += [
            f'<rect class="m net{number}" x="{_number(x - rect.x - 3.5)}" y="{_number(rect.height - 3)}" width="7"'
            f' height="6" rx="1.5"/>'
            for number, x in self.low_ports.get(name, ())
        ]
        if name in self.status:
            state = state_class(self.status[name])
            parts.append(f'<circle class="st {state}" cx="{_number(rect.width - 3)}" cy="3" r="5"/>')
        return "".join([*parts, "</g>"])

    def _detail(self, name: str, tier: Tier) -> str:
        ports = self.ports[name]
        if tier is Tier.HOST:
            rates = (f"{number} × {_short(rate)}" for rate, number in self.rates[name].items())
            return " + ".join(rates)
        if name in self.low:  # its spines are drawn below it, where an arrow upwards would mislead
            if folded := folded_planes(name) if self.special.get(name) == PLANE_NAME else "":
                return folded
            return counted(ports.total(), "host" if self.special.get(name) == PLANE_NAME else "port")
        return " ".join(
            f"{ports[key]}{arrow}" for key, arrow in (("up", "↑"), ("down", "↓"), ("level", "↔")) if ports[key]
        )

    def _marks(self, name: str, width: float, height: float, tier: Tier) -> str:
        """Rails: a stripe along a switch's upper edge, one square for each NIC port of a host."""
        if tier is Tier.HOST:
            return "".join(
                f'<rect class="m {colour_class(rail)}{self._alone(name)}" x="{_number(x - 3.5)}" y="-3" width="7"'
                f' height="6" rx="1.5"/>'
                for x, rail in self.layout.nic_ports[name]
            )
        rails = list(self.grouping.rails.get(name, ()))
        if not rails:
            return ""
        inset = 5.0 if width > 30 else 2.0
        step = (width - inset * 2) / len(rails)
        return "".join(
            f'<rect class="m {colour_class(rail)}" x="{_number(inset + step * position)}" y="{_number(height - 4.5)}"'
            f' width="{_number(max(1.0, step - (1 if len(rails) > 1 else 0)))}" height="3.5" rx="1.5"/>'
            for position, rail in enumerate(rails)
        )

    def _tray(self, tray: Tray) -> str:
        rect, hosts = tray.rect, tray.group.hosts
        ports = sum(self.ports[host.name].total() for host in hosts)
        title = counted(len(hosts), "host")
        details = (f"{tray.group.label} · {counted(ports, 'NIC port')}", counted(ports, "port"), "")
        room = rect.width - PAD * 2 - 20 - label_width(title)
        detail = next(text for text in details if label_width(text) * 0.9 < room or not text)
        parts = [
            f'<g class="tray" id="tray{tray.number}" data-y="{_number(rect.y)}" data-h="{_number(rect.height)}"'
            f' data-open="{_number(tray.open_height)}" data-columns="{tray.columns}"'
            f' data-ocolumns="{tray.open_columns}" data-w="{_number(rect.width)}" data-s="{tray.segment}"'
            f"{self._shelf(tray.shelf)}"
            f' transform="translate({_number(rect.x)} {_number(rect.y)})">'
            f'<rect class="c" width="{_number(rect.width)}" height="{_number(rect.height)}" rx="8"/>'
            f'<g class="toggle" tabindex="0" role="button" aria-expanded="false"'
            f' aria-label="{escape(tray.group.label)}, {title}, show or hide each">'
            f'<rect class="hit" width="{_number(rect.width)}" height="{_number(TRAY_TITLE)}" rx="8"/>'
            f'<path class="arrow" d="M{_number(PAD)} 9l5 4.5l-5 4.5z"/>'
            f'<text class="tl" x="{_number(PAD + 12)}" y="17.5">{title}'
            f'<tspan class="td" dx="7">{escape(detail)}</tspan></text></g>'
        ]
        used = tray.columns * (CELL_WIDTH + CELL_GAP) - CELL_GAP
        left = (rect.width - used) / 2
        for position, host in enumerate(hosts):
            row, column = divmod(position, tray.columns)
            x = left + column * (CELL_WIDTH + CELL_GAP)
            y = TRAY_TITLE + 2 + row * (CELL_HEIGHT + CELL_GAP)
            state = f" {state_class(self.status[host.name])}" if host.name in self.status else ""
            parts.append(
                f'<g class="{self._classes(host.name)} cell{state}" data-n="{self.numbers[host.name]}" tabindex="-1"'
                f' role="button" aria-label="{self._described(host.name)}"'
                f' transform="translate({_number(x)} {_number(y)})">'
                f'<rect class="c" width="{CELL_WIDTH:.0f}" height="{CELL_HEIGHT:.0f}" rx="2.5"/></g>'
            )
        return "".join([*parts, "</g>"])


def _apart(shelves: tuple[int, int]) -> bool:
    """Tell whether a line leads from one shelf to another."""
    return shelves[0] != shelves[1]


def _fitted(text: str, width: float) -> str:
    """`text`, its middle left out where it is wider than `width`: both ends of a name tell nodes apart."""
    if label_width(text) <= width:
        return text
    keep = max(2, int(width / label_width("x")) - 1)
    return f"{text[: keep - keep // 2]}…{text[len(text) - keep // 2 :]}"
