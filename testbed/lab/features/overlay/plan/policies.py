"""Lets traffic pass between tenants: a wire between two VRFs of a switch, routes over it, and a filter at its ends.

Where VRFs are network namespaces, a route that leaks from one into the other needs a wire to leave by, and there what
passes can be told by its service; VRF devices have the same wires. So each switch that a NIC of either tenant is on has
the VRFs of both: a packet changes the tenant on the leaf that it comes in at, and is routed on in the tenant of its
destination. The answer does so on the other's leaf: no switch sees both directions, and the policy has no state, as the
access lists of switches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from testbed.base.names import vrf_node_name
from testbed.lab.core.model import Lab, LinkKind, Role, Service, Tenant, TenantSubnet
from testbed.lab.core.plan.operations import AddRoute, CreateVeth, Operation, SetNeighbour, SetSysctl, SetUp, VethEnd
from testbed.lab.core.plan.overlay_operations import PolicyPort, SetPolicy
from testbed.lab.core.plan.overlay_plan import VrfPlan
from testbed.lab.core.plan.stable import probe_numbers
from testbed.lab.core.plan.sysctls import dual_stack_sysctls

FIRST_WIRE = 1 << 27
"""The interface index of a wire is this plus the L3VNI of the tenant that it leads to.

Where VRFs are devices, all wires of a switch are in one namespace: it is this plus a number of the two tenants.
"""
_WIRE_NUMBERS = 1 << 24
_BEYOND = IPv4Address("169.254.0.1")
"""The next hop over every wire: nobody's address, whose MAC is that of the other end (RFC 3927)."""
_BEYOND6 = IPv6Address("fe80::1")
"""The link-local address of the other end of a wire: no interface makes it of its MAC (RFC 4291, appendix A)."""


def talking(lab: Lab) -> list[tuple[Tenant, Tenant]]:
    """The pairs of tenants that talk to each other, each once."""
    tenants = {tenant.name: tenant for tenant in lab.overlay.tenants} if lab.overlay is not None else {}
    pairs: dict[frozenset[str], tuple[Tenant, Tenant]] = {}
    for tenant in tenants.values():
        for talk in tenant.talks_to:
            pairs.setdefault(frozenset((tenant.name, talk.tenant)), (tenant, tenants[talk.tenant]))
    return list(pairs.values())


def tenants_by_switch(lab: Lab) -> dict[str, dict[str, None]]:
    """The tenants that have a VRF on each switch: of NICs on it, those that they talk to in its network, and those
    whose border it is."""
    if lab.overlay is None:
        return {}
    owners = {end: tenant.name for tenant in lab.overlay.tenants for subnet in tenant.subnets for end in subnet.nics}
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for link in lab.tenant_links:
        found[link.b.node][owners[link.nic]] = None
    own = {switch: tuple(names) for switch, names in found.items()}
    networks = {node.name: node.network for node in lab.switches}
    for pair in talking(lab):
        for a, b in (pair, pair[::-1]):
            for switch, names in own.items():
                if a.name in names and any(subnet.network == networks[switch] for subnet in b.subnets):
                    found[switch][b.name] = None
    for tenant in lab.overlay.tenants:
        if tenant.external is not None:
            found[tenant.external.port.node][tenant.name] = None
    return found


def passing(lab: Lab) -> dict[tuple[str, str], tuple[Service, ...]]:
    """Return what one tenant may ask of another, by their names: no services for all; one that is not there may ask
    nothing."""
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
        """The VRF that this end is in."""
        return vrf_node_name(self.switch, self.side.name)

    @property
    def name(self) -> str:
        """Its name in its VRF; the interface, where the VRF is a namespace."""
        return f"to{self.other.vni}"

    @property
    def switch_name(self) -> str:
        """The name of the interface in the switch's own namespace: both L3VNIs, in 14 characters at most."""
        return f"t{self.side.vni:x}-{self.other.vni:x}"

    @property
    def key(self) -> str:
        """The two tenants, which number it."""
        return f"wire {self.side.name} {self.other.name}"

    @property
    def far(self) -> Wire:
        """This wire from its other end."""
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
    """For each port of a spine to a leaf, the route targets that VRFs import and those on that leaf do not export.

    A leaf that announces one would have its routes taken up by VRFs that it has no part in. Routes without any are
    imported by nobody. Empty where the network has no `rt_filter`, and on leaves, which believe their spines.
    """
    nodes = {node.name: node for node in lab.switches}
    filtered = frozenset[str]() if lab.overlay is None else lab.overlay.rt_filter
    if nodes[switch].network not in filtered or nodes[switch].role is not Role.SPINE:
        return ()
    of_leaf: dict[str, dict[str, None]] = defaultdict(dict)
    for vrf in vrfs:
        of_leaf[vrf.switch] |= dict.fromkeys(target for vni in (vrf.l3, *vrf.l2) for target in vni.exports)
    every = dict.fromkeys(
        target for vrf in vrfs for vni in (vrf.l3, *vrf.l2) for target in (*vni.imports, *vni.exports)
    )
    found = []
    for link in lab.links:
        for end, other in ((link.a, link.b), (link.b, link.a)):
            if link.kind is LinkKind.FABRIC and end.node == switch and nodes[other.node].role in (Role.LEAF, Role.RAIL):
                found.append((end.interface, tuple(item for item in every if item not in of_leaf[other.node])))
    return tuple(found)


class PolicyPlanner:
    """The part of a plan between tenants; empty where they are apart."""

    def __init__(self, lab: Lab, macs: Mapping[tuple[str, str], str], devices: Collection[str]) -> None:
        """`macs` has those of the ends of wires, by the node of the VRF and the name in it.

        `devices` are the switches whose VRFs are devices.
        """
        self._lab = lab
        self._macs = macs
        self._devices = devices
        self._wires = wires(lab)
        ends = [end for wire in self._wires for end in (wire, wire.far) if wire.switch in devices]
        self._numbers = probe_numbers((end.key for end in ends), size=_WIRE_NUMBERS, what="wire")
        self._passing = passing(lab)
        self._networks = {node.name: node.network for node in lab.switches}

    def names(self, node: str) -> list[str]:
        """The interfaces of wires in a VRF."""
        return [self._name(end) for wire in self._wires for end in (wire, wire.far) if end.node == node]

    def _name(self, wire: Wire) -> str:
        return wire.switch_name if wire.switch in self._devices else wire.name

    def _ifindex(self, wire: Wire) -> int:
        return FIRST_WIRE + (self._numbers[wire.key] if wire.switch in self._devices else wire.other.vni)

    def creations(self, vrfs: Mapping[str, VrfPlan]) -> list[Operation]:
        """Make the wires, down, and then put in force what may pass them. `vrfs` are all, by node."""
        assert self._lab.overlay is not None or not self._wires
        operations: list[Operation] = []
        ports: dict[str, list[Wire]] = defaultdict(list)
        for wire in self._wires:
            assert self._lab.overlay is not None
            mtu_bytes = self._lab.overlay.mtu_bytes[self._networks[wire.switch]]
            ends = (self._end(end, vrfs[end.node]) for end in (wire, wire.far))
            operations.append(CreateVeth(a=next(ends), b=next(ends), mtu_bytes=mtu_bytes))
            ports[wire.node].append(wire)
            ports[wire.far.node].append(wire.far)
        for node, mine in ports.items():
            vrf = vrfs[node]
            policies = tuple(self._policy(wire) for wire in mine)
            operations.append(SetPolicy(node=vrf.place, tenant=vrf.tenant, shared=vrf.is_device, ports=policies))
        return operations

    def dual_stack(self, vrfs: Mapping[str, VrfPlan]) -> list[SetSysctl]:
        """IPv6 for the ends of wires between tenants that both have some. `vrfs` are all, by node."""
        return [
            setting
            for end in self._ends()
            if self._is_dual(end)
            for setting in dual_stack_sysctls(vrfs[end.node].place, self._name(end), router=True)
        ]

    def _ends(self) -> list[Wire]:
        return [end for wire in self._wires for end in (wire, wire.far)]

    def _is_dual(self, wire: Wire) -> bool:
        """Tell whether both tenants have subnets with IPv6 in the network of the wire's switch."""
        return all(
            any(subnet.prefix6 is not None for subnet in self._subnets(tenant, wire.switch))
            for tenant in (wire.side, wire.other)
        )

    def routes(self, vrfs: Mapping[str, VrfPlan]) -> list[Operation]:
        """Bring the wires up, and route to the other tenant's subnets over them. `vrfs` are all, by node."""
        operations: list[Operation] = []
        ends = self._ends()
        operations += [
            SetUp(node=vrfs[end.node].place, name=self._name(end), ifindex=self._ifindex(end)) for end in ends
        ]
        operations += [
            SetNeighbour(
                node=vrfs[end.node].place,
                name=self._name(end),
                ifindex=self._ifindex(end),
                address=beyond,
                mac=self._macs[end.far.node, end.far.name],
            )
            for end in ends
            for beyond in ((_BEYOND, _BEYOND6) if self._is_dual(end) else (_BEYOND,))
        ]
        operations += [
            AddRoute(
                node=vrfs[end.node].place,
                destination=prefix,
                gateway=_BEYOND if prefix.version == 4 else _BEYOND6,
                ifindex=self._ifindex(end),
                table=vrfs[end.node].table,
                onlink=True,
            )
            for end in ends
            for prefix in self._prefixes(end)
        ]
        return operations

    def _end(self, wire: Wire, vrf: VrfPlan) -> VethEnd:
        return VethEnd(
            node=vrf.place,
            name=self._name(wire),
            ifindex=self._ifindex(wire),
            mac=self._macs[wire.node, wire.name],
            master=vrf.ifindex,
        )

    def _subnets(self, tenant: Tenant, switch: str) -> list[TenantSubnet]:
        network = self._networks[switch]
        return [subnet for subnet in tenant.subnets if subnet.network == network]

    def _prefixes(self, wire: Wire) -> Iterator[IPv4Network | IPv6Network]:
        """Yield the prefixes that a wire leads to."""
        for subnet in self._subnets(wire.other, wire.switch):
            yield subnet.prefix
            if subnet.prefix6 is not None and self._is_dual(wire):
                yield subnet.prefix6

    def _addresses(self, tenant: Tenant, wire: Wire) -> tuple[IPv4Address | IPv6Address, ...]:
        """Return the addresses of a tenant's NICs that may be at an end of a wire."""
        subnets = self._subnets(tenant, wire.switch)
        found: list[IPv4Address | IPv6Address] = [address for subnet in subnets for address in subnet.addresses]
        if self._is_dual(wire):
            found += [address.ip for subnet in subnets for address in subnet.addresses6]
        return tuple(found)

    def _policy(self, wire: Wire) -> PolicyPort:
        """Return the filter at an end of a wire: from the other tenant to the one whose VRF it is in."""
        names = wire.other.name, wire.side.name
        asked, answered = (self._passing.get(pair) for pair in (names, names[::-1]))
        return PolicyPort(
            wire=wire.name,
            name=self._name(wire),
            ifindex=self._ifindex(wire),
            sources=self._addresses(wire.other, wire),
            targets=self._addresses(wire.side, wire),
            services=_ordered(asked),
            answers=_ordered(answered),
            everything=asked == (),
        )


def _ordered(services: tuple[Service, ...] | None) -> tuple[Service, ...]:
    return tuple(sorted(services or (), key=lambda item: (item.protocol, item.port)))
