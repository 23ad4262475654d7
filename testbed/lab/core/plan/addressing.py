"""IPv4 addresses of a lab, all derived from `Place`, so that adding a node renumbers nobody.

| what | prefix | number within it |
|---|---|---|
| rails | 10.0.0.0/8 | the block of the rail switch (`rail_block`), cut into its rails |
| super-spine loopbacks | 172.16.0.0/16 | index; of plane p (plane - 1) * 8192 + index |
| spine loopbacks | 172.17.0.0/16 | (pod - 1) * 1024 + index |
| rail switch loopbacks | 172.18.0.0/15 | `rail_block` |
| loopbacks of hand-written switches | 172.20.0.0/14 | hash of the name |
| loopbacks of spines of planes | 172.24.0.0/14 | ((pod - 1) * 8 + plane - 1) * 1024 + index |
| hand-written routed links | 100.64.0.0/10 (RFC 6598) | /31s (RFC 3021), hash of the two ends |

A network beside the back end has a prefix of its own: its first /24 holds the loopbacks of leaves (from .1 up) and of
spines (from .254 down; of super-spines from .190 down), the n-th after that is the subnet of leaf n. Pairs of leaves
that are one VTEP have the addresses from .190 down (networks with such pairs have no super-spines).

Single-rail switches come out as in figure 13-12 of "AI for Network Engineers": the first rail is
10.0.1.0/24 with gateway 10.0.1.1. Where a switch holds eight rails (figure 13-10) its first rail is
10.0.1.0/28 and the next 10.0.1.16/28: the figure writes 10.0.2.0/28 for the second, which does not lie
in the 10.0.1.0/24 that the same figure announces as the aggregate of both.

Addresses are plain integers here; `ipaddress` objects are made once, by the caller (they cost several
microseconds each).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from testbed.base.errors import PlanError
from testbed.lab.core.fabric.networks import HAND_WRITTEN, MAX_SPINES, SUBNET_LENGTH
from testbed.lab.core.fabric.numbers import SEGMENTS_PER_POD, SWITCHES_PER_PLANE, SWITCHES_PER_SEGMENT
from testbed.lab.core.model import Link, Network, Node, NodeKind, Place, RailSubnet, Role
from testbed.lab.core.plan.stable import probe_numbers

RAILS = 10 << 24
SUPER_SPINE_LOOPBACKS = (172 << 24) + (16 << 16)
SPINE_LOOPBACKS = (172 << 24) + (17 << 16)
RAIL_LOOPBACKS = (172 << 24) + (18 << 16)
WRITTEN_LOOPBACKS = (172 << 24) + (20 << 16)
PLANE_SPINE_LOOPBACKS = (172 << 24) + (24 << 16)
ROUTED_LINKS = (100 << 24) + (64 << 16)

MAX_RAIL_BLOCK = 131_071
"""The most that fit 172.18.0.0/15; four-port NICs and 64 segments leave room for 63 pods."""
SPINES_PER_POD = 1023
SPINE_PODS = 64
PLANES = 8
PLANE_PODS = 32
"""The pods whose spines of planes can be numbered."""
SUPER_SPINES_PER_PLANE = 8191


@dataclass(frozen=True, slots=True)
class Net:
    """An IPv4 network as integers. `owner` is what it belongs to, for messages."""

    base: int
    length: int
    owner: str

    @property
    def first(self) -> int:
        """The lowest usable address (RFC 3021: a /31 has no network address)."""
        return self.base if self.length >= 31 else self.base + 1

    @property
    def last(self) -> int:
        """The highest usable address."""
        top = self.base + (1 << (32 - self.length)) - 1
        return top if self.length >= 31 else top - 1

    def network(self) -> IPv4Network:
        return IPv4Network((self.base, self.length))


def rail_block(place: Place, name: str) -> int:
    """The number (from 1) of a rail switch among all that fit: its rails, loopback and AS follow it.

    Raises `PlanError` where the switch stands outside of what the numbering holds.
    """
    if place.block:
        return _within(place.block, name)
    if place.plane:
        fits = place.plane <= SWITCHES_PER_SEGMENT // SWITCHES_PER_PLANE and place.index <= SWITCHES_PER_PLANE
        switch = (place.plane - 1) * SWITCHES_PER_PLANE + place.index - 1
        most = f"{SWITCHES_PER_PLANE} rail switches in each of 4 planes of a segment"
    else:
        fits = place.index <= SWITCHES_PER_SEGMENT
        switch = place.index - 1
        most = f"{SWITCHES_PER_SEGMENT} rail switches in a segment"
    if not fits:
        raise PlanError(f"{name}: at most {most} can be numbered", field="fabric.rails", code="address-space")
    if place.segment > SEGMENTS_PER_POD:
        raise PlanError(
            f"{name}: at most {SEGMENTS_PER_POD} segments in a pod can be numbered",
            field="fabric.segments",
            code="address-space",
        )
    return _within(((place.pod - 1) * SEGMENTS_PER_POD + place.segment - 1) * SWITCHES_PER_SEGMENT + switch + 1, name)


def _within(block: int, name: str) -> int:
    if block > MAX_RAIL_BLOCK:
        raise PlanError(f"{name}: too many pods to number", field="fabric.pods", code="address-space")
    return block


def rail_aggregate(place: Place, name: str, length: int) -> Net:
    """The aggregate that holds every rail of one rail switch."""
    base = RAILS + rail_block(place, name) * (1 << (32 - length))
    if not 8 < length <= 30 or base + (1 << (32 - length)) > RAILS + (1 << 24):
        raise PlanError(
            f"{name}: an aggregate of /{length} for this rail switch does not fit in 10.0.0.0/8",
            field="fabric.pods",
            code="address-space",
            hint="fewer pods or segments, or smaller subnets per rail switch",
        )
    return Net(base, length, name)


def rail_network(place: Place, subnet: RailSubnet) -> Net:
    """The subnet of one rail on one switch: number `slot` of its size within the aggregate."""
    aggregate = rail_aggregate(place, subnet.switch, subnet.aggregate_length)
    base = aggregate.base + subnet.slot * (1 << (32 - subnet.prefix_length))
    if subnet.prefix_length > 30 or base + (1 << (32 - subnet.prefix_length)) > aggregate.base + (
        1 << (32 - aggregate.length)
    ):
        raise PlanError(
            f"{subnet.switch}: rail {subnet.rail} does not fit: subnet {subnet.slot + 1} of /{subnet.prefix_length}"
            f" in a /{subnet.aggregate_length}",
            field="fabric.rails.prefix_length",
            code="address-space",
            hint="a longer prefix_length, or fewer rails per switch",
        )
    return Net(base, subnet.prefix_length, f"rail {subnet.rail} of {subnet.switch}")


def leaf_network(network: Network, place: Place, subnet: RailSubnet) -> Net:
    """The subnet of a leaf: number `place.index` of its size in the prefix of its network."""
    base = int(network.prefix.network_address) + place.index * (1 << (32 - subnet.prefix_length))
    return Net(base, subnet.prefix_length, f"subnet of {subnet.switch}")


def whole_leaf_network(network: Network, leaf: Node) -> Net:
    """The one subnet of a leaf whose hosts are in no rail. Raises `PlanError` for a leaf without a place."""
    if leaf.place is None:
        raise PlanError(f"{leaf.name} has hosts with several ports, but no place in its network", code="place")
    subnet = RailSubnet(switch=leaf.name, rail=1, slot=0, prefix_length=SUBNET_LENGTH, aggregate_length=SUBNET_LENGTH)
    return leaf_network(network, leaf.place, subnet)


def network_loopbacks(network: Network, switches: Sequence[Node]) -> dict[str, int]:
    """The loopbacks of a network's switches. Raises `PlanError` where its first /24 does not hold them."""
    base = int(network.prefix.network_address)
    leaves = {node.name: node.place.index for node in switches if node.place and node.role is Role.LEAF}
    spines = {
        node.name: 255 - node.place.index - (MAX_SPINES if node.role is Role.SUPER_SPINE else 0)
        for node in switches
        if node.place and node.role is not Role.LEAF
    }
    if leaves and spines and max(leaves.values()) >= min(spines.values()):
        raise PlanError(
            f"{network.name}: {len(leaves)} leaves and {len(spines)} spines have more loopbacks than a /24 holds",
            field=f"networks.{network.name}.{'switches' if network.design == HAND_WRITTEN else 'leaves'}",
            code="address-space",
        )
    return {name: base + number for name, number in (leaves | spines).items()}


def pair_vteps(network: Network, pairs: Sequence[tuple[Node, Node]]) -> dict[str, int]:
    """The address that both leaves of a pair have as a VTEP, by leaf; `pairs` are all of a network.

    Raises `PlanError` where the network's first /24 does not hold them.
    """
    top = int(network.prefix.network_address) + 255 - MAX_SPINES
    found = {
        leaf.name: top - first.place.index // 2 - 1
        for first, second in pairs
        if first.place is not None
        for leaf in (first, second)
    }
    if found and min(found.values()) <= int(network.prefix.network_address) + len(found):
        raise PlanError(
            f"{network.name}: {len(found)} leaves in pairs have more loopbacks than a /24 holds",
            field=f"networks.{network.name}.leaves",
            code="address-space",
        )
    return found


def host_address(net: Net, index: int, name: str) -> int:
    """The address of host number `index` (from 1) on a rail: that many above the gateway."""
    address = net.first + index
    if address > net.last:
        raise PlanError(
            f"{name}: {net.owner} is a /{net.length}, which holds {net.last - net.first} hosts",
            field="fabric.rails.prefix_length",
            code="address-space",
            hint="a shorter prefix_length, or fewer hosts per segment",
        )
    return address


def guest_addresses(net: Net, guests: Iterable[str], taken: Iterable[int]) -> Mapping[str, int]:
    """Addresses on a rail for hand-written hosts, which have no index: hashed into what hosts leave free."""
    size = net.last - net.first
    offsets = probe_numbers(guests, size=size, taken=[a - net.first - 1 for a in taken], what=f"address on {net.owner}")
    return {name: net.first + 1 + offset for name, offset in offsets.items()}


def loopback_addresses(switches: Sequence[Node]) -> dict[str, int]:
    """The loopback (and router id) of every switch. Raises `PlanError` where a place has no number."""
    addresses: dict[str, int] = {}
    for node in switches:
        if node.place is not None:
            addresses[node.name] = _placed_loopback(node, node.place)
    written = probe_numbers(
        (node.name for node in switches if node.place is None), size=1 << 18, what="loopback address"
    )
    for name, number in written.items():
        addresses[name] = WRITTEN_LOOPBACKS + number
    return addresses


def _placed_loopback(node: Node, place: Place) -> int:
    match node.role:
        case Role.SUPER_SPINE:
            if place.index > (SUPER_SPINES_PER_PLANE if place.plane else 0xFFFE) or place.plane > PLANES:
                raise PlanError(
                    f"{node.name}: too many super-spines", field="fabric.super_spines", code="address-space"
                )
            return SUPER_SPINE_LOOPBACKS + max(0, place.plane - 1) * (SUPER_SPINES_PER_PLANE + 1) + place.index
        case Role.SPINE if place.plane:
            if place.index > SPINES_PER_POD or place.pod > PLANE_PODS or place.plane > PLANES:
                raise PlanError(
                    f"{node.name}: at most {SPINES_PER_POD} spines in each of {PLANES} planes of {PLANE_PODS} pods can"
                    " be numbered",
                    field="fabric.spines",
                    code="address-space",
                )
            return PLANE_SPINE_LOOPBACKS + ((place.pod - 1) * PLANES + place.plane - 1) * 1024 + place.index
        case Role.SPINE:
            if place.index > SPINES_PER_POD or place.pod > SPINE_PODS:
                raise PlanError(
                    f"{node.name}: at most {SPINES_PER_POD} spines in each of {SPINE_PODS} pods can be numbered",
                    field="fabric.spines",
                    code="address-space",
                )
            return SPINE_LOOPBACKS + (place.pod - 1) * 1024 + place.index
        case _:
            return RAIL_LOOPBACKS + rail_block(place, node.name)


@dataclass(frozen=True, slots=True)
class RoutedNet:
    """A routed link's subnet and the addresses of its ends."""

    net: Net
    a: int
    b: int


def routed_networks(links: Sequence[Link], kinds: Mapping[str, NodeKind]) -> list[RoutedNet]:
    """A subnet for each routed link: the one written in the file, else a /31 by hash of the two ends.

    The switch takes the lower address; between two hosts the end whose name sorts first does. The
    order in which the ends are written therefore does not matter.
    """
    owners = [f"link {link.a} to {link.b}" for link in links]
    nets: dict[int, Net] = {}
    hashed: dict[str, int] = {}
    taken: set[int] = set()
    for i, link in enumerate(links):
        prefix = link.prefix
        if prefix is None:
            hashed[" ".join(sorted((str(link.a), str(link.b))))] = i
            continue
        if prefix.prefixlen > 31:
            raise PlanError(
                f"{owners[i]}: {prefix} has no room for two addresses", field="prefix", code="address-space"
            )
        nets[i] = Net(int(prefix.network_address), prefix.prefixlen, owners[i])
        taken.update(_routed_numbers(nets[i]))
    for key, number in probe_numbers(hashed, size=1 << 21, taken=taken, what="subnet of a routed link").items():
        nets[hashed[key]] = Net(ROUTED_LINKS + 2 * number, 31, owners[hashed[key]])
    result: list[RoutedNet] = []
    for i, link in enumerate(links):
        net = nets[i]
        a, b = ((kinds[end.node] is not NodeKind.SWITCH, str(end)) for end in (link.a, link.b))
        low, high = net.first, net.first + 1
        result.append(RoutedNet(net, low if a < b else high, high if a < b else low))
    return result


def _routed_numbers(net: Net) -> range:
    """The /31s of the pool that a written prefix covers."""
    start = max(net.base, ROUTED_LINKS) - ROUTED_LINKS
    end = min(net.base + (1 << (32 - net.length)), ROUTED_LINKS + (1 << 22)) - ROUTED_LINKS
    return range(start >> 1, (max(end, start) + 1) >> 1)


def check_overlap(nets: Iterable[Net]) -> None:
    """Raise `PlanError` where two networks share an address."""
    before: Net | None = None
    for net in sorted(nets, key=lambda net: (net.base, net.length)):
        if before is not None and net.base < before.base + (1 << (32 - before.length)):
            raise PlanError(
                f"{net.owner} ({IPv4Address(net.base)}/{net.length}) overlaps"
                f" {before.owner} ({IPv4Address(before.base)}/{before.length})",
                field="prefix",
                code="overlap",
                hint="leave `prefix` out to have one chosen, or write one outside of 10.0.0.0/8 and 172.16.0.0/12",
            )
        before = net
