"""The fabric under load: every link of a run's networks in the colour of what it carried, with what happened to it.

All of it comes from the ports of the record: who is linked to whom, in which network, and by the tiers of the ports
which node stands in which row. The network of the first port stands above the hosts, every other one below them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from testbed.record.record import RunResult
from testbed.record.report.chart.fabric import CARD_HEIGHT, WIDTH, FabricBox, FabricCard, FabricWire, draw_fabric
from testbed.record.report.scenario.figures import format_bytes, format_value
from testbed.record.report.scenario.plots.plot import Plot
from testbed.record.samples import PortLoad, RunEvent

HOST, LEAF = 0, 1
_LEVELS = {
    "access": (HOST, LEAF),
    "delivery": (LEAF, HOST),
    "uplink": (LEAF, 2),
    "downlink": (2, LEAF),
    "spine-uplink": (2, 3),
    "spine-downlink": (3, 2),
    "super-spine-uplink": (3, 4),
    "super-spine-downlink": (4, 3),
}
"""The rows above the hosts in which a port's own node and its peer stand, by the port's tier."""
MAX_HOSTS = 48
"""More hosts are drawn as one card for all that are on the same switches."""
MAX_WIRES = 2000
"""More cannot be told apart, and make a page large."""
_MOST_NAMED = 4
"""Links of a wire that its remark names."""
_MESH, _MARGIN, _TITLE, _GAP = 112.0, 16.0, 22.0, 14.0


@dataclass(slots=True)
class _Cable:
    """All links between two nodes in one network, and what their ports sent."""

    network: str
    links: set[frozenset[str]] = field(default_factory=set)
    ports: list[PortLoad] = field(default_factory=list)


@dataclass(slots=True)
class _Fabric:
    """Nodes with their rows, and cables between them."""

    levels: dict[str, int] = field(default_factory=dict)
    networks: dict[str, str] = field(default_factory=dict)
    """The network of each switch."""
    cables: dict[tuple[str, str, str], _Cable] = field(default_factory=dict)
    """By the upper node, the lower one, and the network."""
    members: dict[str, list[str]] = field(default_factory=dict)
    """The hosts that a card stands for, where it is more than one."""

    def neighbours(self, node: str) -> list[str]:
        return [lower if upper == node else upper for upper, lower, _ in self.cables if node in (upper, lower)]


def plot_fabric(run: RunResult) -> list[Plot]:
    """Return the drawing of a run's fabric; nothing where the record has no links, or nothing was carried."""
    ports = [port for port in run.ports if port.peer]
    if not any(port.tx_bytes for port in ports):
        return []
    fabric = _fabric(ports)
    if len(fabric.cables) < 2:
        return []
    whole = sum(level == HOST for level in fabric.levels.values())
    if whole > MAX_HOSTS:
        fabric = _with_trays(fabric)
    if len(fabric.cables) > MAX_WIRES:
        return []
    above = ports[0].network
    placed = _Placed(fabric, above)
    marks = _marks(run.events, ports, fabric)
    cards = [
        FabricCard(
            name=name,
            label=placed.labels.get(name, name),
            x=placed.x[name],
            y=placed.y[name],
            width=placed.pitch[name],
            is_switch=fabric.levels[name] != HOST,
            remark=_of_node(name, fabric, marks),
            number=marks.get(name, ("", ""))[0],
        )
        for name in fabric.levels
    ]
    wires = [_wire(key, cable, placed, marks) for key, cable in fabric.cables.items()]
    drawing = draw_fabric(
        cards, wires, placed.boxes, height=placed.height, described="The fabric, its links coloured by load"
    )
    together = f" Each card below a switch stands for all of its {whole:,} hosts." if fabric.members else ""
    marked = any(wire.number for wire in wires) or any(card.number for card in cards)
    numbers = " Numbers are the events below." if marked else ""
    return [
        Plot(
            name="fabric",
            title="The fabric under load",
            caption="Every link in the colour and the weight of its busier direction, as a share of its rate over the"
            f" whole time traffic ran; of links side by side the busiest.{together}{numbers}",
            drawing=drawing,
            wide=True,
            whole=True,
        )
    ]


def _fabric(ports: Sequence[PortLoad]) -> _Fabric:
    fabric = _Fabric()
    levels: dict[str, int] = {}
    pairs: list[tuple[str, str, PortLoad]] = []
    for port in ports:
        peer = port.peer.partition(":")[0]
        pairs.append((port.node, peer, port))
        own, other = _LEVELS.get(port.tier, (None, None))
        for node, level in ((port.node, own), (peer, other)):
            if level is not None:
                levels[node] = max(levels.get(node, HOST), level)
    nodes = dict.fromkeys(node for here, there, _ in pairs for node in (here, there))
    fabric.levels = {node: level for node, level in _filled(levels, pairs).items() if node in nodes}
    for here, there, port in pairs:
        for node in (here, there):
            if fabric.levels[node] != HOST:
                fabric.networks.setdefault(node, port.network)
        upper, lower = (here, there) if fabric.levels[here] >= fabric.levels[there] else (there, here)
        if fabric.levels[here] == fabric.levels[there]:
            upper, lower = sorted((here, there))
        cable = fabric.cables.setdefault((upper, lower, port.network), _Cable(network=port.network))
        cable.links.add(frozenset((f"{port.node}:{port.interface}", port.peer)))
        cable.ports.append(port)
    return fabric


def _filled(known: Mapping[str, int], pairs: Iterable[tuple[str, str, PortLoad]]) -> dict[str, int]:
    """Give switches without a role in the fabric their rows: one above the lowest that they are linked to."""
    near: defaultdict[str, set[str]] = defaultdict(set)
    for here, there, _ in pairs:
        near[here].add(there)
        near[there].add(here)
    levels = dict(known)
    waiting = [node for node in near if node not in levels]
    while waiting:
        reached = {
            node: 1 + min(levels[other] for other in near[node] if other in levels)
            for node in waiting
            if near[node] & levels.keys()
        }
        levels |= reached or dict.fromkeys(waiting, LEAF)
        waiting = [node for node in waiting if node not in levels]
    return {node: levels[node] for node in near}


def _with_trays(fabric: _Fabric) -> _Fabric:
    """Put one card for all hosts that are on the same switches."""
    behind: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for node, level in fabric.levels.items():
        if level == HOST:
            behind[tuple(sorted(fabric.neighbours(node)))].append(node)
    alias = {host: hosts[0] for hosts in behind.values() for host in hosts}
    found = _Fabric(networks=fabric.networks)
    found.levels = {node: level for node, level in fabric.levels.items() if alias.get(node, node) == node}
    found.members = {hosts[0]: hosts for hosts in behind.values() if len(hosts) > 1}
    for (upper, lower, network), cable in fabric.cables.items():
        one = found.cables.setdefault((upper, alias.get(lower, lower), network), _Cable(network=network))
        one.links |= cable.links
        one.ports += cable.ports
    return found


class _Placed:
    """The places of the nodes of a fabric: `x` is a node's middle, `y` its upper edge, `pitch` its share of its row."""

    def __init__(self, fabric: _Fabric, above: str) -> None:
        self.fabric = fabric
        self.x: dict[str, float] = {}
        self.y: dict[str, float] = {}
        self.pitch: dict[str, float] = {}
        self.labels: dict[str, str] = {}
        self.boxes: list[FabricBox] = []
        self.order = {node: number for number, node in enumerate(fabric.levels)}
        for card, hosts in fabric.members.items():
            self.labels[card] = f"{len(hosts):,} hosts"
        switches = [node for node, level in fabric.levels.items() if level != HOST]
        upper = [node for node in switches if fabric.networks[node] == above]
        lower = [node for node in switches if fabric.networks[node] != above]
        tops = sorted({fabric.levels[node] for node in upper if fabric.levels[node] > LEAF}, reverse=True)
        leaves_y = _MARGIN + len(tops) * (CARD_HEIGHT + _MESH)
        groups = self._groups(above, upper)
        titled = len(groups) > 1 and any(title for title, *_ in groups)
        leaves_y += _TITLE if titled else 0.0
        hosts = [node for node, level in fabric.levels.items() if level == HOST]
        hosts_y = leaves_y + (CARD_HEIGHT + _MESH if hosts else 0.0)
        bottom = hosts_y + CARD_HEIGHT
        self._place_groups(groups, leaves_y, hosts_y, titled=titled, boxed=bool(hosts))
        for number, level in reversed(list(enumerate(tops))):
            row = [node for node in upper if fabric.levels[node] == level]
            self._spread(self._near(row), _MARGIN + number * (CARD_HEIGHT + _MESH), 0.0, WIDTH)
        self.height = self._place_below(lower, bottom) + _MARGIN

    def _groups(self, above: str, upper: Sequence[str]) -> list[tuple[str, list[str], list[str]]]:
        """Leaves and hosts that are linked, with what their names begin with: the title, the leaves, the hosts."""
        fabric = self.fabric
        hosts = [node for node, level in fabric.levels.items() if level == HOST]
        leaves = [node for node in upper if fabric.levels[node] == LEAF]
        home = {node: node for node in (*leaves, *hosts)}

        def root(node: str) -> str:
            while home[node] != node:
                home[node] = node = home[home[node]]
            return node

        for one, other, network in fabric.cables:
            if network == above and one in home and other in home:
                home[root(other)] = root(one)
        together: dict[str, tuple[list[str], list[str]]] = {}
        for node in leaves:
            together.setdefault(root(node), ([], []))[0].append(node)
        alone: list[str] = []
        for node in hosts:
            if root(node) in together:
                together[root(node)][1].append(node)
            else:
                alone.append(node)
        if not hosts:
            return [("", leaves, [])]
        groups = [(_beginning([*some, *few]), some, few) for some, few in together.values()]
        return [*groups, *([("", [], alone)] if alone else [])]

    def _place_groups(
        self, groups: Sequence[tuple[str, list[str], list[str]]], leaves_y: float, hosts_y: float, *, titled: bool,
        boxed: bool,
    ) -> None:  # fmt: skip
        shares = [max(len(leaves), len(hosts), 1) for _, leaves, hosts in groups]
        room = WIDTH - 2 - _GAP * (len(groups) - 1)
        x = 1.0
        for (title, leaves, hosts), share in zip(groups, shares, strict=True):
            width = room * share / sum(shares)
            self._spread(leaves, leaves_y, x + 6, width - 12)
            self._spread(hosts, hosts_y, x + 6, width - 12)
            if titled:
                self.labels |= {node: node.removeprefix(title) for node in (*leaves, *hosts) if node not in self.labels}
            if boxed and leaves and len(groups) > 1:
                top = leaves_y - (_TITLE if titled else 6.0)
                height = hosts_y + CARD_HEIGHT + 8 - top
                self.boxes.append(FabricBox(title=title.rstrip("-"), x=x, y=top, width=width, height=height))
            x += width + _GAP

    def _place_below(self, lower: Sequence[str], bottom: float) -> float:
        """Place the networks below the hosts side by side; returns the lower edge of all."""
        fabric = self.fabric
        networks = dict.fromkeys(fabric.networks[node] for node in lower)
        if not networks:
            return bottom
        deepest = max(fabric.levels[node] for node in lower)
        top = bottom + _MESH
        shares = [
            max(
                sum(fabric.networks[node] == name and fabric.levels[node] == level for node in lower)
                for level in range(LEAF, deepest + 1)
            )
            for name in networks
        ]
        end = top + (deepest - LEAF) * (CARD_HEIGHT + _MESH) + CARD_HEIGHT
        x, room = 1.0, WIDTH - 2 - _GAP * (len(shares) - 1)
        for name, share in zip(networks, shares, strict=True):
            width = room * share / sum(shares)
            for level in range(LEAF, deepest + 1):
                row = [node for node in lower if fabric.networks[node] == name and fabric.levels[node] == level]
                self._spread(self._near(row), top + (level - LEAF) * (CARD_HEIGHT + _MESH), x + 6, width - 12)
            box = FabricBox(title=name, x=x, y=top - _TITLE, width=width, height=end - top + _TITLE + 8)
            self.boxes.append(box)
            x += width + _GAP
        return end + 8

    def _near(self, row: Iterable[str]) -> list[str]:
        """Return a row in the order of what is below it, so that few lines cross."""

        def middle(node: str) -> tuple[float, int]:
            places = [self.x[other] for other in self.fabric.neighbours(node) if other in self.x]
            return (round(sum(places) / len(places), 1) if places else 0.0), self.order[node]

        return sorted(row, key=middle)

    def _spread(self, row: Sequence[str], y: float, x: float, width: float) -> None:
        step = width / max(1, len(row))
        for number, node in enumerate(row):
            self.x[node] = x + (number + 0.5) * step
            self.y[node] = y
            self.pitch[node] = step


def _beginning(names: Sequence[str]) -> str:
    """Return what all names begin with, up to a hyphen: "p1-s1-" of the switches and hosts of a segment."""
    if len(names) < 2:
        return ""
    first, last = min(names), max(names)
    same = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return first[: first.rfind("-", 0, same) + 1]


def _wire(
    key: tuple[str, str, str], cable: _Cable, placed: _Placed, marks: Mapping[str, tuple[str, str]]
) -> FabricWire:
    upper, lower, _ = key
    if placed.y[upper] > placed.y[lower]:  # a switch below the hosts
        upper, lower = lower, upper
    busiest = sorted(cable.ports, key=lambda port: -port.utilisation)
    words = [_of_port(port) for port in busiest[: 2 * _MOST_NAMED]]
    words += [f"and {len(busiest) - len(words):,} more"] if len(busiest) > len(words) else []
    places = {place for link in cable.links for place in link} & marks.keys()
    found = sorted((marks[place] for place in places), key=lambda mark: int(mark[0]))
    words += [remark for _, remark in found]
    return FabricWire(
        upper=upper,
        lower=lower,
        share=max(0.0, busiest[0].utilisation),
        remark="; ".join(words),
        lossy=any(port.tx_dropped for port in cable.ports),
        number=found[0][0] if found else "",
    )


def _of_port(port: PortLoad) -> str:
    lost = f", {port.tx_dropped:,} packets dropped" if port.tx_dropped else ""
    return (
        f"{port.node}:{port.interface} to {port.peer}: {format_value(port.utilisation, 'share')},"
        f" {format_bytes(port.tx_bytes)} sent{lost}"
    )


def _of_node(name: str, fabric: _Fabric, marks: Mapping[str, tuple[str, str]]) -> str:
    members = fabric.members.get(name)
    whom = f"{members[0]} to {members[-1]}" if members else name
    return "; ".join(word for word in (whom, marks.get(name, ("", ""))[1]) if word)


def _marks(events: Sequence[RunEvent], ports: Sequence[PortLoad], fabric: _Fabric) -> dict[str, tuple[str, str]]:
    """Return, for each port and each node that something happened to, the number of the first event and what it was."""
    known = {place for port in ports for place in (f"{port.node}:{port.interface}", port.peer)} | fabric.levels.keys()
    found: dict[str, tuple[str, str]] = {}
    for number, event in enumerate(events, start=1):
        if event.target in known and event.target not in found:
            found[event.target] = str(number), f"{number}: {event.kind} {event.target} {event.detail}".strip()
    return found
