"""What passes between tenants: a wire between two VRFs of a switch, routes over it, and what is let through.

VRFs are network namespaces, so a route that leaks from one into the other needs a wire to leave by, and there what
passes can be told by its service. So each switch that a NIC of either tenant is on has the VRFs of both: a
packet changes the tenant on the leaf that it comes in at, and is routed on in the tenant of its destination. The answer
does so on the other's leaf: no switch sees both directions, and the policy has no state, as the access lists of
switches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from testbed.model import Lab, LinkKind, Role, Service, Tenant
from testbed.names import vrf_node_name
from testbed.plan.hosts import MAIN_TABLE
from testbed.plan.operations import AddRoute, CreateVeth, Operation, SetNeighbour, SetUp, VethEnd
from testbed.plan.overlay.policy_operations import PolicyPort, SetPolicy
from testbed.plan.overlay.vrfs import VrfPlan

FIRST_WIRE = 1 << 27
"""The interface index of a wire is this plus the L3VNI of the tenant that it leads to."""
_BEYOND = IPv4Address("169.254.0.1")
"""The next hop over every wire: nobody's address, whose MAC is that of the other end (RFC 3927)."""


def talking(lab: Lab) -> list[tuple[Tenant, Tenant]]:
    """The pairs of tenants that talk to each other, each once."""
    tenants = {tenant.name: tenant for tenant in lab.overlay.tenants} if lab.overlay is not None else {}
    pairs: dict[frozenset[str], tuple[Tenant, Tenant]] = {}
    for tenant in tenants.values():
        for talk in tenant.talks_to:
            pairs.setdefault(frozenset((tenant.name, talk.tenant)), (tenant, tenants[talk.tenant]))
    return list(pairs.values())


def tenants_by_switch(lab: Lab) -> dict[str, dict[str, None]]:
    """The tenants that have a VRF on each switch: of NICs on it, and of those that they talk to in its network."""
    if lab.overlay is None:
        return {}
    owners = {end: tenant.name for tenant in lab.overlay.tenants for subnet in tenant.subnets for end in subnet.nics}
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for link in lab.links:
        if link.kind is LinkKind.TENANT:
            found[link.b.node][owners[link.a]] = None
    own = {switch: tuple(names) for switch, names in found.items()}
    networks = {node.name: node.network for node in lab.switches}
    for pair in talking(lab):
        for a, b in (pair, pair[::-1]):
            for switch, names in own.items():
                if a.name in names and any(subnet.network == networks[switch] for subnet in b.subnets):
                    found[switch][b.name] = None
    return found


def passing(lab: Lab) -> dict[tuple[str, str], tuple[Service, ...]]:
    """What one tenant may ask of another, by their names: no services for all; what is not there may ask nothing."""
    found: dict[tuple[str, str], tuple[Service, ...]] = {}
    for pair in talking(lab):
        for a, b in (pair, pair[::-1]):
            mine = a.services_of(b.name)
            if mine == () or b.services_of(a.name) == ():
                found[a.name, b.name] = ()
            elif mine is not None:
                found[a.name, b.name] = mine
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """A wire between the VRFs of two tenants on a switch, as the one on `side` sees it."""

    switch: str
    side: Tenant
    other: Tenant

    @property
    def node(self) -> str:
        """What operations call the namespace that this end lies in."""
        return vrf_node_name(self.switch, self.side.name)

    @property
    def name(self) -> str:
        return f"to{self.other.vni}"

    @property
    def ifindex(self) -> int:
        return FIRST_WIRE + self.other.vni

    @property
    def far(self) -> Wire:
        """The same wire from its other end."""
        return Wire(switch=self.switch, side=self.other, other=self.side)


def wires(lab: Lab) -> list[Wire]:
    """Every wire, once."""
    present = tenants_by_switch(lab)
    return [
        Wire(switch=switch.name, side=a, other=b)
        for switch in lab.switches
        for a, b in talking(lab)
        if a.name in present.get(switch.name, ()) and b.name in present.get(switch.name, ())
    ]


def foreign_targets(lab: Lab, vrfs: Sequence[VrfPlan], switch: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """For each port of a spine to a leaf, the route targets of tenants and subnets that are not on that leaf.

    A leaf that announces one would have its routes taken up by VRFs that it has no part in. Routes without any are
    imported by nobody. Empty where the network has no `rt_filter`, and on leaves, which believe their spines.
    """
    nodes = {node.name: node for node in lab.switches}
    filtered = frozenset[str]() if lab.overlay is None else lab.overlay.rt_filter
    if nodes[switch].network not in filtered or nodes[switch].role is not Role.SPINE:
        return ()
    of_leaf: dict[str, dict[str, None]] = defaultdict(dict)
    for vrf in vrfs:
        of_leaf[vrf.switch] |= dict.fromkeys(vni.route_target for vni in (vrf.l3, *vrf.l2))
    every = dict.fromkeys(target for targets in of_leaf.values() for target in targets)
    found = []
    for link in lab.links:
        for end, other in ((link.a, link.b), (link.b, link.a)):
            if link.kind is LinkKind.FABRIC and end.node == switch and nodes[other.node].role in (Role.LEAF, Role.RAIL):
                found.append((end.interface, tuple(item for item in every if item not in of_leaf[other.node])))
    return tuple(found)


class PolicyPlanner:
    """The part of a plan between tenants; empty where they are apart."""

    def __init__(self, lab: Lab, macs: Mapping[tuple[str, str], str]) -> None:
        """`macs` has those of the ends of wires, by the node of the VRF and the interface."""
        self._lab = lab
        self._macs = macs
        self._wires = wires(lab)
        self._passing = passing(lab)
        self._networks = {node.name: node.network for node in lab.switches}

    def names(self, node: str) -> list[str]:
        """The interfaces of wires in a VRF."""
        return [end.name for wire in self._wires for end in (wire, wire.far) if end.node == node]

    def creations(self) -> list[Operation]:
        """Make the wires, down, and then put in force what may pass them."""
        assert self._lab.overlay is not None or not self._wires
        operations: list[Operation] = []
        ports: dict[str, list[Wire]] = defaultdict(list)
        for wire in self._wires:
            assert self._lab.overlay is not None
            mtu_bytes = self._lab.overlay.mtu_bytes[self._networks[wire.switch]]
            operations.append(CreateVeth(a=self._end(wire), b=self._end(wire.far), mtu_bytes=mtu_bytes))
            ports[wire.node].append(wire)
            ports[wire.far.node].append(wire.far)
        for node, mine in ports.items():
            operations.append(SetPolicy(node=node, ports=tuple(self._policy(wire) for wire in mine)))
        return operations

    def routes(self) -> list[Operation]:
        """Bring the wires up, and route to the other tenant's subnets over them."""
        operations: list[Operation] = []
        ends = [end for wire in self._wires for end in (wire, wire.far)]
        operations += [SetUp(node=end.node, name=end.name, ifindex=end.ifindex) for end in ends]
        operations += [
            SetNeighbour(
                node=end.node,
                name=end.name,
                ifindex=end.ifindex,
                address=_BEYOND,
                mac=self._macs[end.far.node, end.far.name],
            )
            for end in ends
        ]
        operations += [
            AddRoute(
                node=end.node,
                destination=prefix,
                gateway=_BEYOND,
                ifindex=end.ifindex,
                table=MAIN_TABLE,
                onlink=True,
            )
            for end in ends
            for prefix in self._prefixes(end.other, end.switch)
        ]
        return operations

    def _end(self, wire: Wire) -> VethEnd:
        mac = self._macs[wire.node, wire.name]
        return VethEnd(node=wire.node, name=wire.name, ifindex=wire.ifindex, mac=mac)

    def _prefixes(self, tenant: Tenant, switch: str) -> Iterator[IPv4Network]:
        network = self._networks[switch]
        return (subnet.prefix for subnet in tenant.subnets if subnet.network == network)

    def _addresses(self, tenant: Tenant, switch: str) -> tuple[IPv4Address, ...]:
        network = self._networks[switch]
        return tuple(address for subnet in tenant.subnets if subnet.network == network for address in subnet.addresses)

    def _policy(self, wire: Wire) -> PolicyPort:
        """What comes in at an end of a wire: from the other tenant to the one whose VRF it is in."""
        names = wire.other.name, wire.side.name
        asked, answered = (self._passing.get(pair) for pair in (names, names[::-1]))
        return PolicyPort(
            name=wire.name,
            ifindex=wire.ifindex,
            sources=self._addresses(wire.other, wire.switch),
            targets=self._addresses(wire.side, wire.switch),
            services=_ordered(asked),
            answers=_ordered(answered),
            everything=asked == (),
        )


def _ordered(services: tuple[Service, ...] | None) -> tuple[Service, ...]:
    return tuple(sorted(services or (), key=lambda item: (item.protocol, item.port)))
