"""AS numbers after RFC 7938 section 5.2.1, from the 4-byte private range of RFC 6996.

Every slot of the machine has a block of 140,000 numbers, so labs never share one. Within a block:

| number | who |
|---|---|
| 0 | all super-spines |
| 1..1023 | all spines of pod 1..1023 |
| 1024 + 256 (n - 1) | all spines of network n (from 1) beside the back end |
| the same + i | leaf i (from 1) of it |
| 2048 + `rail_block` | one rail switch |
| 133,120..139,999 | hand-written rail switches, by hash of the name |

One number for all spines of a pod and one for all super-spines means that a path never passes a tier
twice: without it (a private number for every switch) BGP hunts through all valleys for minutes.

With iBGP the whole lab is one AS: the explicit number where nodes name one, else number 0 of the block.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address

from testbed.errors import PlanError
from testbed.model import Network, Node, Protocol, Role
from testbed.plan.addressing import MAX_RAIL_BLOCK, rail_block
from testbed.plan.stable import SLOTS, probe_numbers

PRIVATE_FIRST = 4_200_000_000
PRIVATE_LAST = 4_294_967_294
BLOCK_SIZE = 140_000
NETWORK_OFFSET = 1024
NETWORK_BLOCK = 256
RAIL_OFFSET = 2048
WRITTEN_OFFSET = RAIL_OFFSET + MAX_RAIL_BLOCK + 1
MAX_POD = 1023


def block_start(slot: int) -> int:
    """The first AS number of a slot."""
    if not 0 <= slot < SLOTS:
        raise ValueError(f"a slot is 0..{SLOTS - 1}: {slot}")
    return PRIVATE_FIRST + slot * BLOCK_SIZE


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


def as_numbers(switches: Sequence[Node], *, protocol: Protocol, slot: int) -> dict[str, int]:
    """The AS number of every switch. An explicit `asn` of a node wins."""
    start = block_start(slot)
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
                numbers[node.name] = start
            case Role.SPINE:
                pod = pod_of(node)
                if pod > MAX_POD:
                    raise PlanError(f"{node.name}: at most {MAX_POD} pods", field="fabric.pods", code="asn")
                numbers[node.name] = start + pod
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


def network_as_numbers(network: Network, switches: Sequence[Node], *, slot: int) -> dict[str, int]:
    """The AS number of every switch of a network beside the back end; one for all with iBGP."""
    start = block_start(slot) + NETWORK_OFFSET + NETWORK_BLOCK * (network.number - 1)
    if network.routing.protocol is Protocol.IBGP:
        return {node.name: start for node in switches}
    return {
        node.name: start + (node.place.index if node.place is not None and node.role is Role.LEAF else 0)
        for node in switches
    }


def cluster_id(node: Node) -> IPv4Address | None:
    """The route-reflection cluster (RFC 4456) of an iBGP switch: one per tier and pod, None for a rail switch.

    All spines of a pod share it, so that a route reflected by one is dropped by the others, as one AS
    number per tier does with eBGP.
    """
    match node.role:
        case Role.SPINE:
            return IPv4Address((1 << 16) + pod_of(node))
        case Role.SUPER_SPINE:
            return IPv4Address(2 << 16)
        case _:
            return None
