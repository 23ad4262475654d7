"""AS numbers after RFC 7938 section 5.2.1, from the 4-byte private range of RFC 6996.

They follow from a switch's place or name alone, so that a lab has the same ones whatever it is called and whatever else
is deployed: labs share no links, and two of them may well have the same. A lab has a block of 140,000 numbers, which
begins at 4,200,000,000:

| number | who |
|---|---|
| 0 | all super-spines; 64 (p - 1) those of plane p |
| 1..1023 | all spines of pod 1..1023; 64 (p - 1) + pod those of plane p |
| 1024 + 256 (n - 1) | all spines of network n (from 1) beside the back end, of its first pod if it has pods |
| the same + i | leaf i (from 1) of it |
| the same + 256 - p | the spines of pod p (from 2) of it |
| the same + 255 | all super-spines of it |
| 2048 + `rail_block` | one rail switch |
| 133,120..139,999 | hand-written rail switches, by hash of the name |

Another block of 45,000 numbers, from 4,271,680,000 on, has those of hosts that speak BGP, by hash of the name.

One number for all spines of a pod and one for all super-spines means that a path never passes a tier
twice: without it (a private number for every switch) BGP hunts through all valleys for minutes.

With iBGP the whole lab is one AS: the explicit number where nodes name one, else number 0 of the block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Address

from testbed.base.errors import PlanError
from testbed.lab.core.model import BACKEND, Lab, Link, LinkKind, Network, Node, Protocol, Role
from testbed.lab.core.plan.addressing import MAX_RAIL_BLOCK, rail_block
from testbed.lab.core.plan.stable import probe_numbers

PRIVATE_FIRST = 4_200_000_000
PRIVATE_LAST = 4_294_967_294
BLOCK_SIZE = 140_000
PLANE_NUMBERS = 64
"""The AS numbers that spines and super-spines of a plane may have: one for each pod, and one for what joins them."""
HOSTS_FIRST = 4_271_680_000
HOSTS_SIZE = 45_000
NETWORK_OFFSET = 1024
NETWORK_BLOCK = 256
RAIL_OFFSET = 2048
WRITTEN_OFFSET = RAIL_OFFSET + MAX_RAIL_BLOCK + 1
MAX_POD = 1023


def pod_of(node: Node) -> int:
    """The pod a switch belongs to: by its place, else by its label `pod`, else 1."""
    if node.place is not None:
        return node.place.pod
    label = node.labels.get("pod", "1")
    if not label.isdecimal() or not 1 <= int(label) <= MAX_POD:
        raise PlanError(
            f"{node.name}: the label pod is {label!r}, not a pod number (1..{MAX_POD})",
            field=f"topology.nodes.{node.name}.labels.pod",
            code="pod-label",
        )
    return int(label)


def as_numbers(switches: Sequence[Node], *, protocol: Protocol) -> dict[str, int]:
    """The AS number of every switch. An explicit `asn` of a node wins."""
    start = PRIVATE_FIRST
    explicit = {node.name: node.asn for node in switches if node.asn is not None}
    if protocol is Protocol.IBGP:
        named = sorted(set(explicit.values()))
        if len(named) > 1:
            raise PlanError(
                f"with iBGP a lab has one AS, but nodes name several: {', '.join(map(str, named))}",
                field="fabric.routing.protocol",
                code="asn",
                hint="protocol: ebgp, or one asn for all",
            )
        asn = next(iter(explicit.values()), start)
        return {node.name: asn for node in switches}
    numbers = dict(explicit)
    written: list[str] = []
    for node in switches:
        if node.name in numbers:
            continue
        match node.role:
            case Role.SUPER_SPINE:
                numbers[node.name] = start + _of_plane(node)
            case Role.SPINE:
                numbers[node.name] = start + _of_plane(node) + pod_of(node)
            case _:
                if node.place is None:
                    written.append(node.name)
                else:
                    numbers[node.name] = start + RAIL_OFFSET + rail_block(node.place, node.name)
    first = start + WRITTEN_OFFSET
    size = BLOCK_SIZE - WRITTEN_OFFSET
    taken = [asn - first for asn in explicit.values() if first <= asn < first + size]
    for name, number in probe_numbers(written, size=size, taken=taken, what="AS number").items():
        numbers[name] = first + number
    return numbers


def network_as_numbers(network: Network, switches: Sequence[Node]) -> dict[str, int]:
    """The AS number of every switch of a network beside the back end; one for all with iBGP. An explicit `asn` wins.

    Raises `PlanError` where its leaves and pods want the same numbers.
    """
    start = PRIVATE_FIRST + NETWORK_OFFSET + NETWORK_BLOCK * (network.number - 1)
    explicit = {node.name: node.asn for node in switches if node.asn is not None}
    if network.routing.protocol is Protocol.IBGP:
        asn = next(iter(explicit.values()), start)
        return {node.name: asn for node in switches}
    offsets = {node.name: _network_offset(node) for node in switches}
    leaves = max((offsets[node.name] for node in switches if node.role is Role.LEAF), default=0)
    pods = [offsets[node.name] for node in switches if node.role is not Role.LEAF and offsets[node.name]]
    if leaves >= min(pods, default=NETWORK_BLOCK):
        raise PlanError(
            f"{network.name}: {leaves} leaves and its pods have more AS numbers than a network's {NETWORK_BLOCK}",
            field=f"networks.{network.name}.switches",
            code="asn",
        )
    return {name: explicit.get(name, start + offset) for name, offset in offsets.items()}


def lab_as_numbers(lab: Lab) -> dict[str, int]:
    """The AS number of every switch of a lab, in all its networks."""
    switches: dict[str, list[Node]] = {name: [] for name in (BACKEND, *(network.name for network in lab.networks))}
    for node in lab.switches:
        switches[node.network].append(node)
    numbers = as_numbers(switches[BACKEND], protocol=lab.routing.protocol)
    for network in lab.networks:
        numbers |= network_as_numbers(network, switches[network.name])
    return numbers


def check_as_numbers(lab: Lab) -> None:
    """Raise `PlanError` where a switch is given the AS number of a neighbour."""
    if all(node.asn is None for node in lab.switches):
        return
    protocols = {network.name: network.routing.protocol for network in lab.networks} | {BACKEND: lab.routing.protocol}
    nodes = {node.name: node for node in lab.switches}
    numbers = lab_as_numbers(lab)
    for link in lab.links:
        a, b = nodes.get(link.a.node), nodes.get(link.b.node)
        if link.kind is LinkKind.FABRIC and a and b and protocols[link.network] is not Protocol.IBGP:
            refuse_same_as(link, a, b, numbers)


def refuse_same_as(link: Link, a: Node, b: Node, numbers: Mapping[str, int]) -> None:
    """Raise `PlanError` where both ends of a link are in one AS (RFC 4271 section 9.1.2: such routes are looped)."""
    if numbers[a.name] != numbers[b.name]:
        return
    node = b if a.asn is None else a
    section = "topology.nodes" if node.network == BACKEND else f"networks.{node.network}.switches"
    raise PlanError(
        f"{link.a} to {link.b} joins two switches of AS {numbers[a.name]}: no eBGP session is possible",
        field=f"{section}.{node.name}.asn",
        code="same-asn",
        hint="switches of one tier and pod share an AS: give one an `asn` of its own, or another role",
    )


def _network_offset(node: Node) -> int:
    """The AS number of a switch within those of its network."""
    place = node.place
    if node.role is Role.SUPER_SPINE:
        return NETWORK_BLOCK - 1
    if place is None or (node.role is Role.SPINE and place.pod < 2):
        return 0
    return NETWORK_BLOCK - place.pod if node.role is Role.SPINE else place.index


def host_as_numbers(hosts: Iterable[str]) -> dict[str, int]:
    """The AS number of every host that speaks BGP. Raises `PlanError` where there are more than numbers."""
    numbers = probe_numbers(hosts, size=HOSTS_SIZE, what="AS number of a host")
    return {name: HOSTS_FIRST + number for name, number in numbers.items()}


def _of_plane(node: Node) -> int:
    """The offset of the numbers of a spine's or super-spine's plane in those of its tier: planes share none."""
    return 0 if node.place is None else PLANE_NUMBERS * max(0, node.place.plane - 1)


def cluster_id(node: Node) -> IPv4Address | None:
    """The route-reflection cluster (RFC 4456) of an iBGP switch: one per tier, pod and plane, None for a rail switch.

    All spines of a pod share it, so that a route reflected by one is dropped by the others, as one AS
    number per tier does with eBGP.
    """
    match node.role:
        case Role.SPINE:
            return IPv4Address((1 << 16) + _of_plane(node) + pod_of(node))
        case Role.SUPER_SPINE:
            return IPv4Address((2 << 16) + _of_plane(node))
        case _:
            return None
