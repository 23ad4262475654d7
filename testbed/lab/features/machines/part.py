"""The part of a lab that one machine has: its nodes, and a plan whose cut links end in stubs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from ipaddress import IPv4Address
from typing import Any

import msgspec

from testbed.base.errors import PlanError
from testbed.base.typed_json import from_text, to_json
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import CreateNode, CreateVeth, DelayPort, Operation, SetSysctl, VethEnd

WIRES = "cut.wires"
"""The node, in operations, of the namespace that stubs are in; no node's name has a dot."""
MOST_LINKS = 1 << 14
"""A VXLAN network identifier has 24 bits (RFC 7348, section 4): those of the slot of a lab, and 14 of a link."""
_FIRST_STUB, _FIRST_TUNNEL = 16, 1 << 15
"""The indexes of interfaces in that namespace: a stub for each link, and a VXLAN device. A filter's class ID, which
leads from one to the other, has 16 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another machine that has a part of the lab. `delay_ns` is how long a packet takes to it over the underlay."""

    address: str
    delay_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CutLink:
    """A link whose other end is on another machine. `port` and `peer` are its ends, "node:interface".

    `number` is the link's, the same on both machines; `stub` and `tunnel` are the indexes of the two interfaces in the
    namespace of stubs.
    """

    number: int
    vni: int
    node: str
    port: str
    ifindex: int
    peer: str
    machine: str
    stub: int
    tunnel: int
    mtu_bytes: int


@dataclass(frozen=True, kw_only=True)
class LabPart:
    """The part of the lab that `machine` has (`testbed.lab.core.feature.Part`).

    `places` is the machine of every node. `address` is that of this machine on the underlay, on its interface `device`;
    `peers` are the other machines.
    """

    machine: str
    places: Mapping[str, str]
    address: str
    device: str
    peers: Mapping[str, Peer]

    def __post_init__(self) -> None:
        """Raise `ValueError` for addresses that are none."""
        for address in (self.address, *(peer.address for peer in self.peers.values())):
            IPv4Address(address)

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> LabPart:
        """Return what `to_json` wrote. Raises `ValueError`."""
        return msgspec.convert(said, cls, dec_hook=from_text)

    def to_json(self) -> Mapping[str, Any]:
        names = ("machine", "places", "address", "device", "peers")
        return {name: to_json(getattr(self, name)) for name in names}

    @cached_property
    def nodes(self) -> frozenset[str]:
        """The nodes that are here."""
        return frozenset(node for node, machine in self.places.items() if machine == self.machine)

    def model(self, lab: Lab) -> Lab:
        here = self.nodes
        return replace(
            lab,
            nodes=tuple(node for node in lab.nodes if node.name in here),
            links=tuple(link for link in lab.links if link.a.node in here and link.b.node in here),
            rail_subnets=tuple(subnet for subnet in lab.rail_subnets if subnet.switch in here),
        )

    def plan(self, plan: LabPlan) -> LabPlan:
        """Return what this machine has to make. Raises `PlanError` for more links than there are numbers for."""
        here = self.nodes
        return replace(
            plan,
            operations=tuple(self._operations(plan)),
            ports=tuple(
                replace(port, delay_ns=self._shortened(port.delay_ns, port.peer))
                for port in plan.ports
                if port.node in here
            ),
            switches=tuple(switch for switch in plan.switches if switch.node in here),
            routed_hosts=tuple(host for host in plan.routed_hosts if host.node in here),
            routers=tuple(router for router in plan.routers if router.node in here),
            hosts=tuple(host for host in plan.hosts if host.node in here),
            expected_routes={node: routes for node, routes in plan.expected_routes.items() if node in here},
        )

    def _shortened(self, delay_ns: int, peer: str) -> int:
        """The delay of a link without the time that the underlay takes, where it is cut."""
        other = self.places.get(peer.partition(":")[0], self.machine)
        return delay_ns if other == self.machine else max(0, delay_ns - self.peers[other].delay_ns)

    def _operations(self, plan: LabPlan) -> Iterator[Operation]:
        here, number = self.nodes, 0
        peers = {(port.node, port.name): port.peer for port in plan.ports}
        yield CreateNode(node=WIRES, cpu_slot=0)
        for key in ("all", "default"):  # nothing but what nodes send may go over a wire
            yield SetSysctl(node=WIRES, key=f"net/ipv6/conf/{key}/disable_ipv6", value="1", optional=True)
        for operation in plan.operations:
            match operation:
                case CreateVeth():
                    number += 1
                    ends = [end for end in (operation.a, operation.b) if end.node in here]
                    if len(ends) == 2:
                        yield operation
                    elif ends:
                        yield _cut(operation, number, keep=ends[0])
                case DelayPort() if operation.node in here:
                    peer = peers[operation.node, operation.name]
                    yield replace(operation, delay_ns=self._shortened(operation.delay_ns, peer))
                case _ if getattr(operation, "node", None) in here:
                    yield operation

    def cuts(self, plan: LabPlan) -> list[CutLink]:
        """Return the cut links of what `plan` has returned."""
        peers = {(port.node, port.name): port.peer for port in plan.ports}
        found = []
        for operation in plan.operations:
            if not isinstance(operation, CreateVeth) or WIRES not in (operation.a.node, operation.b.node):
                continue
            near, stub = sorted((operation.a, operation.b), key=lambda end: end.node == WIRES)
            number, peer = stub.ifindex - _FIRST_STUB, peers[near.node, near.name]
            found.append(
                CutLink(
                    number=number,
                    vni=plan.slot * MOST_LINKS + number,
                    node=near.node,
                    port=str(near),
                    ifindex=near.ifindex,
                    peer=peer,
                    machine=self.places[peer.partition(":")[0]],
                    stub=stub.ifindex,
                    tunnel=_FIRST_TUNNEL + number,
                    mtu_bytes=operation.mtu_bytes,
                )
            )
        return found


def stub_name(number: int) -> str:
    """Return the name of the stub of a link in its namespace."""
    return f"stub{number}"


def _cut(operation: CreateVeth, number: int, *, keep: VethEnd) -> CreateVeth:
    if number >= MOST_LINKS:
        raise PlanError(f"a lab over several machines has {MOST_LINKS - 1} links at most", code="too-many-links")
    mac = ":".join(f"{byte:02x}" for byte in (2, 0, 0, 0, number >> 8, number & 255))
    stub = VethEnd(node=WIRES, name=stub_name(number), ifindex=_FIRST_STUB + number, mac=mac)
    return replace(operation, a=keep, b=stub) if keep is operation.a else replace(operation, a=stub, b=keep)
