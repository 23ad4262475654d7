"""The parts of a picture of a lab: tiers, pods, segments, host groups, bundles of parallel links.

Generated nodes are divided by their place. Hand-written ones are divided by their links: hosts and rail
switches that are linked make a segment; one that is linked to a generated segment belongs to it. A host
group is the set of hosts of a segment that have the same switches, so that a picture may show it as one.
A network beside the back end, drawn alone, is divided by its links, too: its hosts have places of the back end's.
A router outside stands above all pods, in the row of the super-spines, since it belongs to none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

from testbed.base.names import host_name, plane_letter, rail_switch_name, spine_name
from testbed.lab.core.fabric.graph import LabGraph
from testbed.lab.core.model import BACKEND, Lab, Link, Node, NodeKind, Role


class Tier(IntEnum):
    """Rows of the picture, from the top."""

    SUPER_SPINE = 0
    SPINE = 1
    RAIL = 2
    HOST = 3


TIER_NAMES: Mapping[Tier, str] = {
    Tier.SUPER_SPINE: "super-spine",
    Tier.SPINE: "spine",
    Tier.RAIL: "rail switch",
    Tier.HOST: "host",
}

ROUTER_NAME = "external router"
"""The title of a router outside, whatever row it stands in."""

LEAF_NAME = "leaf switch"
"""The title of a switch of the tier `RAIL` in a network beside the back end, which has no rails."""

_OUT_OF_BAND = {NodeKind.BRIDGE: Tier.RAIL, NodeKind.SERVER: Tier.SPINE}
"""The rows of the switch and of the server of the out-of-band network."""
_TIER_OF_ROLE = {Role.SUPER_SPINE: Tier.SUPER_SPINE, Role.SPINE: Tier.SPINE, Role.RAIL: Tier.RAIL, Role.LEAF: Tier.RAIL}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostGroup:
    """Hosts of one segment with the same switches."""

    hosts: tuple[Node, ...]
    switches: tuple[str, ...]

    @property
    def label(self) -> str:
        """`p1-s1-h1 … p1-s1-h64`, or the one name."""
        first, last = self.hosts[0].name, self.hosts[-1].name
        return first if first == last else f"{first} … {last}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Rail switches and the hosts behind them. `number` is 0 for a hand-written one."""

    pod: int
    number: int
    switches: tuple[Node, ...]
    groups: tuple[HostGroup, ...]

    @property
    def title(self) -> str:
        return f"Segment {self.number}" if self.number else ""

    @property
    def hosts(self) -> tuple[Node, ...]:
        return tuple(host for group in self.groups for host in group.hosts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """`number` is 0 for what stands in no pod."""

    number: int
    spines: tuple[Node, ...]
    segments: tuple[Segment, ...]

    @property
    def title(self) -> str:
        return f"Pod {self.number}" if self.number else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Parallel links between two nodes (or groups), of one rail (0: none). `lower` is on the lower tier."""

    upper: str
    lower: str
    rail: int
    links: tuple[Link, ...]

    @property
    def rate_bps(self) -> int:
        return sum(link.rate.bps for link in self.links)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """A lab divided for a picture. `rails` maps each node to the rails it carries, ascending.

    `super_spines` have the routers outside after them.
    """

    super_spines: tuple[Node, ...]
    pods: tuple[Pod, ...]
    tiers: Mapping[str, Tier]
    rails: Mapping[str, tuple[int, ...]]
    bundles: tuple[Bundle, ...]
    planes: int = 1
    """The fabrics without a common switch that the back end consists of."""
    captions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Lines below the names of nodes, such as their addresses, in pictures that are text."""

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(segment for pod in self.pods for segment in pod.segments)

    @property
    def groups(self) -> tuple[HostGroup, ...]:
        return tuple(group for segment in self.segments for group in segment.groups)


_Key = tuple[int, int, int]
"""Pod, segment, and the number of a hand-written component (0 for a generated segment)."""


def group_lab(lab: Lab) -> Grouping:
    """Divide a lab. Every node is in exactly one place of the outcome, every link in exactly one bundle."""
    if network_alone(lab):
        lab = replace(lab, nodes=tuple(replace(node, place=None) for node in lab.nodes))
    linked = LabGraph(lab).adjacent()
    neighbors = {node.name: linked.get(node.name, set()) for node in lab.nodes}
    tiers = _tiers(lab, neighbors)
    keys = _segment_keys(lab, tiers, neighbors)
    spine_pods = _spine_pods(lab, tiers, neighbors, keys)
    segments = [_segment(key, lab, tiers, keys, neighbors) for key in sorted(set(keys.values()))]
    numbers = sorted({segment.pod for segment in segments} | set(spine_pods.values()), key=lambda pod: (pod == 0, pod))
    pods = tuple(
        Pod(
            number=number,
            spines=tuple(node for node in lab.nodes if spine_pods.get(node.name) == number),
            segments=tuple(segment for segment in segments if segment.pod == number),
        )
        for number in numbers
    )
    return Grouping(
        super_spines=tuple(
            sorted(
                (node for node in lab.nodes if tiers[node.name] is Tier.SUPER_SPINE),
                key=lambda node: node.kind is NodeKind.ROUTER,
            )
        ),
        pods=pods,
        tiers=tiers,
        rails=_rails(lab),
        bundles=bundle_links(lab.links, tiers, {}),
        planes=lab.planes,
    )


def by_plane(nodes: Iterable[Node]) -> list[tuple[str, tuple[Node, ...]]]:
    """Switches of one tier by the letter of their plane, in order; "" is that of those in none."""
    found: dict[str, list[Node]] = {}
    for node in nodes:
        found.setdefault("" if node.place is None else plane_letter(node.place.plane), []).append(node)
    return [(letter, tuple(found[letter])) for letter in sorted(found)]


def network_alone(lab: Lab) -> str:
    """The network beside the back end that a lab is the part of (`Lab.of_network`); "" for every other lab."""
    hosts = {node.name for node in lab.endpoints}
    found = {link.network for link in lab.links if link.a.node in hosts or link.b.node in hosts}
    return found.pop() if len(found) == 1 and BACKEND not in found else ""


def bundle_links(links: Iterable[Link], tiers: Mapping[str, Tier], aliases: Mapping[str, str]) -> tuple[Bundle, ...]:
    """Merge links of a network between two nodes on one rail; `aliases` puts a group's name for a node's."""
    merged: dict[tuple[str, str, int, str], list[Link]] = {}
    for link in links:
        upper, lower = link.b.node, link.a.node
        if tiers[upper] > tiers[lower]:
            upper, lower = lower, upper
        upper, lower = aliases.get(upper, upper), aliases.get(lower, lower)
        merged.setdefault((upper, lower, link.rail, link.network), []).append(link)
    return tuple(
        Bundle(upper=upper, lower=lower, rail=rail, links=tuple(together))
        for (upper, lower, rail, _), together in merged.items()
        if upper != lower
    )


def counted(number: int, one: str) -> str:
    """A number of things: "1 host", "2,048 hosts"."""
    if number == 1:
        return f"1 {one}"
    many = {"leaf": "leaves"}.get(one, f"{one}es" if one.endswith("ch") else f"{one}s")
    return f"{number:,} {many}"


def short_name(node: Node) -> str:
    """A generated node's name without its pod and segment, which the picture shows around it."""
    place = node.place
    if place is None:
        return node.name
    plane = plane_letter(place.plane)
    for full, short in (
        (rail_switch_name(place.pod, place.segment, place.index, plane), f"rail{place.index}{plane}"),
        (spine_name(place.pod, place.index, plane), f"spine{place.index}{plane}"),
        (host_name(place.pod, place.segment, place.index), f"h{place.index}"),
    ):
        if node.name == full:
            return short
    return node.name


def _tiers(lab: Lab, neighbors: Mapping[str, set[str]]) -> dict[str, Tier]:
    hosts = {node.name for node in lab.endpoints}
    tiers: dict[str, Tier] = {}
    for node in lab.nodes:
        if node.kind is NodeKind.ROUTER:
            tiers[node.name] = Tier.SUPER_SPINE
        elif node.kind in _OUT_OF_BAND:
            tiers[node.name] = _OUT_OF_BAND[node.kind]
        elif node.kind is not NodeKind.SWITCH:
            tiers[node.name] = Tier.HOST
        elif node.role is not None:
            tiers[node.name] = _TIER_OF_ROLE[node.role]
        else:  # a switch without a role stands by what it is linked to
            tiers[node.name] = Tier.RAIL if neighbors[node.name] & hosts else Tier.SPINE
    return tiers


def _segment_keys(lab: Lab, tiers: Mapping[str, Tier], neighbors: Mapping[str, set[str]]) -> dict[str, _Key]:
    """The segment of each host and rail switch."""
    keys: dict[str, _Key] = {}
    loose: list[Node] = []
    for node in lab.nodes:
        if tiers[node.name] < Tier.RAIL:
            continue
        if node.place is None:
            loose.append(node)
        else:
            keys[node.name] = (node.place.pod, node.place.segment, 0)
    component = 0
    for node in loose:
        if node.name in keys:
            continue
        members, adopted = _component(node.name, tiers, neighbors, keys)
        component += 1
        key = adopted or (0, 0, component)
        keys.update(dict.fromkeys(members, key))
    return keys


def _component(
    start: str, tiers: Mapping[str, Tier], neighbors: Mapping[str, set[str]], keys: Mapping[str, _Key]
) -> tuple[set[str], _Key | None]:
    """Hand-written nodes linked to `start` through host links, and the generated segment they touch."""
    members, frontier, touched = {start}, [start], set[_Key]()
    while frontier:
        here = frontier.pop()
        for other in neighbors[here]:
            if tiers[other] < Tier.RAIL or tiers[here] is tiers[other] is Tier.RAIL:
                continue
            if other in keys:
                touched.add(keys[other])
            elif other not in members:
                members.add(other)
                frontier.append(other)
    return members, min(touched, default=None)


def _spine_pods(
    lab: Lab, tiers: Mapping[str, Tier], neighbors: Mapping[str, set[str]], keys: Mapping[str, _Key]
) -> dict[str, int]:
    pods: dict[str, int] = {}
    for node in lab.nodes:
        if tiers[node.name] is not Tier.SPINE:
            continue
        below = {keys[name][0] for name in neighbors[node.name] if name in keys}
        if node.place is not None:
            pods[node.name] = node.place.pod
        else:
            pods[node.name] = below.pop() if len(below) == 1 else 0
    return pods


def _segment(
    key: _Key,
    lab: Lab,
    tiers: Mapping[str, Tier],
    keys: Mapping[str, _Key],
    neighbors: Mapping[str, set[str]],
) -> Segment:
    members = [node for node in lab.nodes if keys.get(node.name) == key]
    switches = tuple(node for node in members if tiers[node.name] is Tier.RAIL)
    if lab.planes > 1:  # side by side with what is above them
        switches = tuple(node for _, of_plane in by_plane(switches) for node in of_plane)
    order = {node.name: position for position, node in enumerate(switches)}
    grouped: dict[tuple[str, ...], list[Node]] = {}
    for node in members:
        if tiers[node.name] is Tier.HOST:
            grouped.setdefault(tuple(sorted(neighbors[node.name])), []).append(node)
    groups = [HostGroup(hosts=tuple(hosts), switches=names) for names, hosts in grouped.items()]
    groups.sort(key=lambda group: _centre([order[name] for name in group.switches if name in order]))
    return Segment(pod=key[0], number=key[1], switches=switches, groups=tuple(groups))


def _centre(positions: list[int]) -> float:
    """Hosts stand below their switches: the mean position keeps lines from crossing."""
    return sum(positions) / len(positions) if positions else 0.0


def _rails(lab: Lab) -> dict[str, tuple[int, ...]]:
    rails: dict[str, set[int]] = defaultdict(set)
    for link in lab.links:
        if link.rail:
            rails[link.a.node].add(link.rail)
            rails[link.b.node].add(link.rail)
    for subnet in lab.rail_subnets:
        rails[subnet.switch].add(subnet.rail)
    return {name: tuple(sorted(found)) for name, found in rails.items()}
