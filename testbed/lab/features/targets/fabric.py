"""Storage targets of the back end: nodes with a port on the leaves of rails, as a host has.

Targets go to one segment after the other, in the order of the file. A target has a NIC for each of its rails, on the
rail's switch in its segment (on one of each plane where NICs have several ports), and its addresses are those of the
rail's subnet from the last one down: so hosts that are added renumber no target, and targets no host. Routes are those
that hosts have, so what a host and a target say to each other shares links and queues with all else on the back end.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from testbed.base.errors import FabricError
from testbed.lab.core.fabric.networks import TargetParams
from testbed.lab.core.fabric.shape import MAX_LINKS
from testbed.lab.core.model import End, Lab, Link, LinkKind, Node, NodeKind, Place, RailSubnet


@dataclass(frozen=True, slots=True)
class _Rail:
    """A rail on a switch of a segment, and a link that a host has on it."""

    subnet: RailSubnet
    place: Place
    link: Link

    @property
    def key(self) -> tuple[str, int]:
        """Its switch and its number."""
        return self.subnet.switch, self.subnet.rail

    @property
    def room(self) -> int:
        """Return the number of addresses that it has beside its gateway, which is also the number of the last one."""
        return (1 << (32 - self.subnet.prefix_length)) - 3


_Segment = Sequence[_Rail]


def check_backend_targets(lab: Lab, targets: Sequence[TargetParams]) -> tuple[FabricError, ...]:
    """Every fault of the targets of a generated back end, with the key of `fabric:` that is at fault."""
    return tuple(_faults(lab, targets))


def _faults(lab: Lab, targets: Sequence[TargetParams]) -> Iterator[FabricError]:
    segments = _segments(lab)
    known = sorted({rail.subnet.rail for rail in segments[0]})
    for target in targets:
        for number in (number for number in target.rails if number not in known):
            yield FabricError(
                f"{target.name} is on rail {number}, which the fabric does not have",
                field=f"targets.{target.key}.rails",
                code="unknown-rail",
                hint=f"its rails are {known[0]} to {known[-1]}" if len(known) > 1 else f"rails: {known}",
            )
            return
    hosts = Counter((link.b.node, link.rail) for link in lab.links if link.kind is LinkKind.ACCESS)
    ports = Counter(rail.key for _, rail in _ports(targets, segments))
    for rail in (rail for segment in segments for rail in segment):
        if hosts[rail.key] + ports[rail.key] > rail.room:
            subnet = rail.subnet
            message = (
                f"rail {subnet.rail} of {subnet.switch} has {hosts[rail.key]} hosts and {ports[rail.key]} storage"
                f" targets, and its subnet (a /{subnet.prefix_length}) room for {rail.room}"
            )
            hint = f"rails: {{prefix_length: {subnet.prefix_length - 1}}}, or fewer targets"
            yield FabricError(message, field="targets", code="subnet", hint=hint)
            return
    if (links := len(lab.links) + ports.total()) > MAX_LINKS:
        message = f"with its targets this fabric has {links:,} links, more than the {MAX_LINKS:,} one lab may have"
        yield FabricError(message, field="targets", code="size")


def attach_backend_targets(lab: Lab, targets: Sequence[TargetParams]) -> Lab:
    """A generated back end with storage targets. Pure. Raises the first fault of `check_backend_targets`."""
    for fault in check_backend_targets(lab, targets):
        raise fault
    segments = _segments(lab)
    nodes = []
    for number, target in enumerate(targets):
        where = segments[number % len(segments)][0].place
        place = Place(pod=where.pod, segment=where.segment, index=number // len(segments) + 1)
        nodes.append(Node(name=target.name, kind=NodeKind.STORAGE, place=place, target=target.target))
    return replace(lab, nodes=(*lab.nodes, *nodes), links=(*lab.links, *_links(targets, segments)))


def _ports(targets: Sequence[TargetParams], segments: Sequence[_Segment]) -> Iterator[tuple[TargetParams, _Rail]]:
    """Every port of a target, with the rail that it is on."""
    for number, target in enumerate(targets):
        for rail in segments[number % len(segments)]:
            if not target.rails or rail.subnet.rail in target.rails:
                yield target, rail


def _links(targets: Sequence[TargetParams], segments: Sequence[_Segment]) -> Iterator[Link]:
    on_rail: Counter[tuple[str, int]] = Counter()
    on_switch: Counter[str] = Counter()
    for target, rail in _ports(targets, segments):
        subnet = rail.subnet
        number = rail.room - on_rail[rail.key]
        on_rail[rail.key] += 1
        on_switch[subnet.switch] += 1
        yield Link(
            a=End(node=target.name, interface=rail.link.a.interface),
            b=End(node=subnet.switch, interface=f"storage{on_switch[subnet.switch]}"),
            kind=LinkKind.ACCESS,
            rate=target.rate or rail.link.rate,
            mtu_bytes=rail.link.mtu_bytes,
            rail=subnet.rail,
            host_number=number,
        )


def _segments(lab: Lab) -> Sequence[_Segment]:
    """The rails of each segment of a generated back end, segment by segment."""
    places = {node.name: node.place for node in lab.switches}
    links = {(link.b.node, link.rail): link for link in lab.links if link.kind is LinkKind.ACCESS}
    found: dict[tuple[int, int], list[_Rail]] = defaultdict(list)
    for subnet in lab.rail_subnets:
        place = places[subnet.switch]
        assert place is not None
        found[place.pod, place.segment].append(_Rail(subnet, place, links[subnet.switch, subnet.rail]))
    return [sorted(rails, key=lambda rail: (rail.subnet.rail, rail.place.plane)) for rails in found.values()]
