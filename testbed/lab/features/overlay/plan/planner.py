"""Planning an overlay: VRFs and VNIs of each switch, their addresses and MACs, and what EVPN must bring into them.

A switch has a VRF of each tenant that has a NIC on it, and in it the L2VNIs of the subnets of those NICs, so that
addresses of tenants may repeat. A VRF is a device of the kernel (`devices`), or a network namespace beside the switch's
own; there its VXLAN devices keep their UDP socket in the switch's, where the underlay is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from typing import TypeVar

from testbed.base.errors import PlanError
from testbed.base.names import vrf_node_name
from testbed.lab.core.model import End, Lab, LoadBalancing, Overlay, Tenant, TenantSubnet, VrfBy
from testbed.lab.core.plan.hosts import MAIN_TABLE
from testbed.lab.core.plan.interfaces import LOOPBACK_IFINDEX
from testbed.lab.core.plan.lab_plan import ExpectedRoute, PortPlan
from testbed.lab.core.plan.operations import (
    AddAddress,
    AddRoute,
    CreateBridge,
    DelayPort,
    InstallPort,
    Operation,
    SetBridgePort,
    SetSysctl,
    SetUp,
    ShapePort,
)
from testbed.lab.core.plan.overlay_operations import CreateVrf, CreateVxlan
from testbed.lab.core.plan.overlay_plan import EvpnPlan, HeardNic, OverlayPlan, VniPlan, VrfPlan
from testbed.lab.core.plan.stable import probe_numbers
from testbed.lab.core.plan.sysctls import dual_stack_sysctls, vrf_sysctls
from testbed.lab.core.plan.tenancy import ROUTER
from testbed.lab.features.overlay.plan.devices import (
    FIRST_TABLE,
    FIRST_VRF,
    check_device_names,
    create_devices,
    device_switches,
    set_up_devices,
)
from testbed.lab.features.overlay.plan.expectation import OverlayExpectation, TenantNic
from testbed.lab.features.overlay.plan.external import ExternalPlanner
from testbed.lab.features.overlay.plan.policies import (
    PolicyPlanner,
    foreign_targets,
    passing,
    talking,
    tenants_by_switch,
    wires,
)

FIRST_VXLAN = 1 << 25
FIRST_VNI_BRIDGE = 1 << 26
"""Interface indexes are these plus the VNI: a device keeps its index whatever else there is."""
GATEWAY = "anycast gateway"
"""The name that stands for an interface where the MACs of the anycast gateways are planned."""
BRIDGE_AGEING_S = 86_400
"""The time for which the bridge of a VNI remembers a silent NIC: a day, or its type-2 route would go after five
minutes."""
_RD_NUMBERS = 1 << 16

_Address = tuple[IPv4Interface, IPv4Address | None]
_T = TypeVar("_T", bound=ShapePort | InstallPort | DelayPort | SetUp)


def overlay_macs(lab: Lab) -> list[tuple[str, str]]:
    """The MACs that an overlay needs beside those of its ports, by (switch, what).

    One for all gateways; for each switch one for its router, whatever the VRF (FRR issue 22577), and for each of its
    VXLAN devices.
    """
    if lab.overlay is None:
        return []
    ports = _ports_of_nics(lab)
    keys = {("", GATEWAY): None}
    for tenant in lab.overlay.tenants:
        for subnet in tenant.subnets:
            for switch in {port.node: None for end in subnet.nics for port in ports[end]}:
                keys |= {(switch, what): None for what in (ROUTER, _vxlan_name(tenant.vni), _vxlan_name(subnet.vni))}
        if tenant.external is not None:
            border = tenant.external.port.node
            keys |= {(border, ROUTER): None, (border, _vxlan_name(tenant.vni)): None}
    for wire in wires(lab):
        for end in (wire, wire.far):
            keys |= {(end.switch, ROUTER): None, (end.switch, _vxlan_name(end.side.vni)): None}
            keys[end.node, end.name] = None
    return list(keys)


def vrf_nodes(lab: Lab) -> list[str]:
    """Return the names by which operations call the namespaces of all VRFs of a lab, where they are namespaces."""
    return [vrf_node_name(switch, name) for switch, names in tenants_by_switch(lab).items() for name in names]


def _vxlan_name(vni: int) -> str:
    return f"vx{vni}"


def _ports_of_nics(lab: Lab) -> dict[End, tuple[End, ...]]:
    """The ports of switches that each NIC of a tenant is on: several for a link group."""
    found: dict[End, tuple[End, ...]] = {}
    for link in lab.tenant_links:
        found[link.nic] = (*found.get(link.nic, ()), link.b)
    return found


class OverlayPlanner:
    """The overlay's part of a plan. A lab without an overlay has an empty one."""

    def __init__(
        self,
        lab: Lab,
        loopbacks: Mapping[str, int],
        vteps: Mapping[str, int],
        macs: Mapping[tuple[str, str], str],
        auto_vrf: VrfBy,
    ) -> None:
        """`loopbacks` are the addresses of switches, and `vteps` those of leaves that are one VTEP with another leaf.

        `macs` are those of interfaces and of `overlay_macs`. `auto_vrf` is what VRFs are where it is left to the
        machine (`testbed.lab.core.deploy.mechanisms.decide_vrf`).
        """
        self._lab = lab
        self._devices = device_switches(lab, auto_vrf)
        self._overlay = lab.overlay or Overlay(mtu_bytes={})
        self._tenants = {tenant.name: tenant for tenant in self._overlay.tenants}
        self._reached = {tenant.name: _prefixes(tenant) for tenant in self._overlay.tenants}
        for a, b in talking(lab):
            self._reached[a.name] += _prefixes(b)
            self._reached[b.name] += _prefixes(a)
        self.externals = ExternalPlanner(lab, self._devices)
        for tenant, external in self.externals.tenants:
            self._reached[tenant.name] += [(prefix, external.network) for prefix in external.prefixes]
        self._networks = {node.name: node.network for node in lab.switches}
        self._loopbacks = loopbacks
        self._vteps = {switch: IPv4Address(vteps.get(switch, address)) for switch, address in loopbacks.items()}
        self._macs = macs
        ports = _ports_of_nics(lab)
        self._nics = [
            TenantNic(
                end=end,
                ports=ports[end],
                tenant=tenant,
                subnet=subnet,
                address=IPv4Interface((int(subnet.prefix.network_address) + 2 + index, subnet.prefix.prefixlen)),
                gateway=subnet.prefix.network_address + 1,
                address6=subnet.addresses6[index] if subnet.prefix6 is not None else None,
            )
            for tenant in self._overlay.tenants
            for subnet in tenant.subnets
            for index, end in enumerate(subnet.nics)
        ]
        self._rd_numbers = self._number_vnis()
        self._policies = PolicyPlanner(lab, macs, self._devices)
        self.vrfs = self._plan_vrfs()
        self._by_node = {vrf.node: vrf for vrf in self.vrfs}
        self._by_port = {port: nic for nic in self._nics for port in nic.ports}
        self._by_end = {nic.end: nic for nic in self._nics} | self._by_port

    def with_addresses(self, routed: Mapping[tuple[str, str], _Address]) -> dict[tuple[str, str], _Address]:
        """The address and the gateway of each NIC by node and interface: those given, and those of tenants' NICs.

        Raises `PlanError` where a host could not tell the prefix of a tenant's NIC from that of a routed one.
        """
        by_node: dict[str, list[tuple[str, IPv4Network]]] = defaultdict(list)
        for (node, interface), (address, _) in routed.items():
            by_node[node].append((interface, address.network))
        for nic in self._nics:
            for interface, network in by_node[nic.end.node]:
                if network.overlaps(nic.subnet.prefix):
                    raise PlanError(
                        f"{nic.end} would be in {nic.subnet.prefix}, and {interface} of that host is in {network}",
                        field=_key_of(nic.tenant, nic.subnet, "prefix"),
                        code="overlap",
                        hint="a host's NICs need prefixes that do not overlap: choose one outside of 10.0.0.0/8 and"
                        " of the prefixes of networks",
                    )
        ours = {(nic.end.node, nic.end.interface): (nic.address, nic.gateway) for nic in self._nics}
        return {**routed, **ours}

    def ipv6_of(self, end: End) -> tuple[IPv6Interface | None, IPv6Address | None]:
        nic = self._by_end.get(end) if self._by_end else None
        if nic is None or nic.end != end or nic.address6 is None or (gateway := nic.subnet.gateway6) is None:
            return None, None
        return nic.address6, gateway.ip

    def tenant_of(self, end: End) -> str:
        nic = self._by_end.get(end) if self._by_end else None
        return self.externals.tenant_of(end) if nic is None else nic.tenant.name

    def reached_by(self, tenant: str) -> set[str]:
        return {tenant, *(other for asking, other in passing(self._lab) if asking == tenant)}

    def vrf_of(self, end: End) -> str:
        nic = self._by_port.get(end) if self._by_port else None  # most labs have none, and are asked for each port
        if nic is None:
            return self.externals.vrf_of(end)
        return "" if end.node in self._devices else vrf_node_name(end.node, nic.tenant.name)

    def master(self, end: End) -> int:
        return FIRST_VNI_BRIDGE + self._by_port[end].subnet.vni

    def evpn(self, switch: str) -> EvpnPlan | None:
        """Return what a switch is told of the overlay; None where there is none."""
        if self._networks[switch] not in self._overlay.mtu_bytes:
            return None
        vrfs = tuple(vrf for vrf in self.vrfs if vrf.switch == switch)
        foreign = foreign_targets(self._lab, self.vrfs, switch)
        return EvpnPlan(vrfs=vrfs, foreign=foreign, by_namespace=switch not in self._devices)

    # ------------------------------------------------------------------ tables

    def _number_vnis(self) -> dict[int, int]:
        """The number of each VNI in route distinguishers, 16 bits: the VNI itself where it fits."""
        vnis = [vni for tenant in self._overlay.tenants for vni in (tenant.vni, *(s.vni for s in tenant.subnets))]
        small = {vni: vni for vni in vnis if vni < _RD_NUMBERS}
        keys = {f"vni {vni}": vni for vni in vnis if vni >= _RD_NUMBERS}
        found = probe_numbers(keys, size=_RD_NUMBERS, taken=(0, *small), what="route distinguisher")
        return small | {keys[key]: number for key, number in found.items()}

    def _plan_vrfs(self) -> tuple[VrfPlan, ...]:
        ports: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for nic in self._nics:
            for port in nic.ports:
                ports[port.node, nic.tenant.name][nic.subnet.name].append(port.interface)
        present = tenants_by_switch(self._lab)
        vrfs = []
        for switch in self._lab.switches:
            for tenant in self._overlay.tenants:
                if tenant.name not in present.get(switch.name, ()):
                    continue
                subnets = ports[switch.name, tenant.name]
                loopback = IPv4Address(self._loopbacks[switch.name])
                mtu_bytes = self._overlay.mtu_bytes[tenant.network or switch.network]
                router_mac = self._macs[switch.name, ROUTER]
                l3 = replace(
                    self._vni(loopback, tenant.vni, router_mac, tenant.exports, mtu_bytes), imports=tenant.imports
                )
                if given := tenant.rds.get(switch.name):
                    l3 = replace(l3, rd=given)
                l2 = tuple(
                    replace(
                        self._vni(loopback, subnet.vni, self._macs["", GATEWAY], (f"65000:{subnet.vni}",), mtu_bytes),
                        subnet=subnet.name,
                        gateway=subnet.gateway,
                        gateway6=subnet.gateway6,
                        ports=tuple(subnets[subnet.name]),
                    )
                    for subnet in tenant.subnets
                    if subnet.name in subnets
                )
                node, device = vrf_node_name(switch.name, tenant.name), switch.name in self._devices
                vrf = VrfPlan(
                    node=node,
                    place=switch.name if device else node,
                    table=FIRST_TABLE + tenant.vni if device else MAIN_TABLE,
                    ifindex=FIRST_VRF + tenant.vni if device else 0,
                    ipv6=any(subnet.prefix6 is not None for subnet in tenant.subnets),
                    switch=switch.name,
                    tenant=tenant.name,
                    router_id=loopback,
                    vtep=self._vteps[switch.name],
                    l3=l3,
                    l2=l2,
                    external=self.externals.peer(switch.name, tenant.name),
                )
                _check_names(vrf, self._policies.names(vrf.node))
                vrfs.append(vrf)
        self._check_rds(vrfs)
        return tuple(vrfs)

    def _check_rds(self, vrfs: Sequence[VrfPlan]) -> None:
        """Given route distinguishers are of VRFs that there are, and nobody else's."""
        there = {(vrf.tenant, vrf.switch) for vrf in vrfs}
        owners: dict[str, str] = {}
        for vrf in vrfs:
            for vni in vrf.l2:
                owners[vni.rd] = f"the subnet {vni.subnet} of {vrf.tenant} on {vrf.switch}"
        given = {(tenant.name, switch) for tenant in self._overlay.tenants for switch in tenant.rds}
        for vrf in sorted(vrfs, key=lambda one: (one.tenant, one.switch) in given):
            if (other := owners.get(vrf.l3.rd)) is not None:
                raise PlanError(
                    f"the route distinguisher {vrf.l3.rd} of {vrf.tenant} on {vrf.switch} is that of {other}, too",
                    field=f"tenants.{vrf.tenant}.rd.{vrf.switch}",
                    code="duplicate-rd",
                    hint="routes of one would take the place of those of the other: each VRF needs one of its own",
                )
            owners[vrf.l3.rd] = f"{vrf.tenant} on {vrf.switch}"
        for tenant, switch in sorted(given - there):
            raise PlanError(
                f"{tenant} has no VRF on {switch}, and so no route distinguisher there",
                field=f"tenants.{tenant}.rd.{switch}",
                code="rd-without-vrf",
                hint="it has one on each leaf with a NIC of it, or of a tenant that it talks to",
            )

    def _vni(self, loopback: IPv4Address, vni: int, mac: str, targets: tuple[str, ...], mtu_bytes: int) -> VniPlan:
        return VniPlan(
            vni=vni,
            bridge=f"br{vni}",
            bridge_ifindex=FIRST_VNI_BRIDGE + vni,
            vxlan=_vxlan_name(vni),
            vxlan_ifindex=FIRST_VXLAN + vni,
            mac=mac,
            mtu_bytes=mtu_bytes,
            rd=f"{loopback}:{self._rd_numbers[vni]}",
            imports=targets,
            exports=targets,
        )

    # ------------------------------------------------------------------ operations

    def creations(self, cpu_slots: Mapping[str, int]) -> list[CreateVrf]:
        """The namespaces of VRFs that are some; `cpu_slots` are those of their switches."""
        return [
            CreateVrf(node=vrf.node, switch=vrf.switch, tenant=vrf.tenant, cpu_slot=cpu_slots[vrf.switch])
            for vrf in self.vrfs
            if not vrf.is_device
        ]

    def before_links(self) -> list[Operation]:
        """Settings, bridges and VXLAN devices: what the ports of NICs are then made into."""
        operations: list[Operation] = []
        for vrf in self.vrfs:
            if not vrf.is_device:
                operations += vrf_sysctls(vrf.node, balancing=self._balancing(vrf.switch))
        operations += create_devices(self.vrfs)
        for vrf, vni in self._all_vnis():
            operations.append(
                CreateBridge(
                    node=vrf.place,
                    name=vni.bridge,
                    ifindex=vni.bridge_ifindex,
                    mac=vni.mac,
                    mtu_bytes=vni.mtu_bytes,
                    ageing_s=BRIDGE_AGEING_S,
                    master=vrf.ifindex,
                )
            )
        operations += [
            CreateVxlan(
                node=vrf.place,
                switch=vrf.switch,
                name=vni.vxlan,
                ifindex=vni.vxlan_ifindex,
                vni=vni.vni,
                mac=self._macs[vrf.switch, vni.vxlan],
                local=vrf.vtep,
                master=vni.bridge_ifindex,
                mtu_bytes=vni.mtu_bytes,
                dscp=self._dscp(vrf),
            )
            for vrf, vni in self._all_vnis()
        ]
        operations += [
            SetBridgePort(
                node=vrf.place,
                name=vni.vxlan,
                ifindex=vni.vxlan_ifindex,
                learning=False,
                neighbour_suppression=True,
            )
            for vrf, vni in self._all_vnis()
        ]
        operations += self._policies.creations(self._by_node)
        return operations + set_up_devices(self.vrfs, self._policies.names)

    def after_links(self) -> list[Operation]:
        """Bring the bridges and VXLAN devices up, and give the gateways their addresses."""
        operations: list[Operation] = [*self._dual_stack(), *self._policies.dual_stack(self._by_node)]
        operations += [
            SetUp(node=vrf.node, name="lo", ifindex=LOOPBACK_IFINDEX) for vrf in self.vrfs if not vrf.is_device
        ]
        for vrf, vni in self._all_vnis():
            operations.append(SetUp(node=vrf.place, name=vni.bridge, ifindex=vni.bridge_ifindex))
            operations.append(SetUp(node=vrf.place, name=vni.vxlan, ifindex=vni.vxlan_ifindex))
            operations += [
                AddAddress(node=vrf.place, name=vni.bridge, ifindex=vni.bridge_ifindex, address=address)
                for address in (vni.gateway, vni.gateway6)
                if address is not None
            ]
        return operations + self._policies.routes(self._by_node)

    def _dual_stack(self) -> list[SetSysctl]:
        """IPv6 for the NICs and gateways of subnets that have it, and for the bridges that their VRFs route over."""
        nics = [(nic.end.node, nic.end.interface, False) for nic in self._nics if nic.address6 is not None]
        bridges = [
            (vrf.place, vni.bridge, True)
            for vrf, vni in self._all_vnis()
            if vni.gateway6 is not None or (vrf.ipv6 and vni is vrf.l3)
        ]
        return [
            *(  # a node sends to its own addresses, too
                SetSysctl(node=node, key="net/ipv6/conf/lo/disable_ipv6", value="0")
                for node in dict.fromkeys(node for node, _, _ in nics)
            ),
            *(
                setting
                for node, interface, router in (*nics, *bridges)
                for setting in dual_stack_sysctls(node, interface, router=router)
            ),
        ]

    def placed(self, operations: Iterable[_T]) -> list[_T]:
        """Operations on ports, those of tenants in their VRFs, and under their caps, at which their links run."""
        if not (self._by_port or self.externals.tenants):
            return list(operations)
        found = []
        for operation in operations:
            end = End(node=operation.node, interface=operation.name)
            vrf = self.vrf_of(end)
            placed = replace(operation, vrf=vrf) if vrf else operation
            if isinstance(placed, InstallPort) and vrf and self._tenants[self.tenant_of(end)].cap is not None:
                placed = replace(placed, cap_bps=placed.rate_bps)
            found.append(placed)
        return found

    def _dscp(self, vrf: VrfPlan) -> int | None:
        """That of the class which a tenant's packets have between switches; None: their own."""
        name = self._tenants[vrf.tenant].traffic_class
        policy = self._lab.qos_of(self._networks[vrf.switch])
        return None if policy is None or not name else policy.profiles[0].dscp_of(name)

    def _all_vnis(self) -> list[tuple[VrfPlan, VniPlan]]:
        return [(vrf, vni) for vrf in self.vrfs for vni in (vrf.l3, *vrf.l2)]

    def _balancing(self, switch: str) -> LoadBalancing | None:
        policy = self._lab.qos_of(self._networks[switch])
        return None if policy is None else policy.of(switch).load_balancing

    def host_routes(self, nics: Sequence[PortPlan]) -> list[AddRoute]:
        """The routes of a host's main table to what its tenants reach beside it, each by the first NIC in the tenant.

        What is bound to a NIC's address needs none: it leaves by that NIC whatever the destination.
        """
        both = [address for nic in nics for address in (nic.address, nic.address6)]
        taken = [address.network for address in both if address is not None]
        routes = []
        for nic in nics:
            for prefix, network in self._reached.get(nic.tenant, ()):
                address, gateway = (nic.address, nic.gateway) if prefix.version == 4 else (nic.address6, nic.gateway6)
                assert address is not None or prefix.version == 6, "a tenant's NIC has an IPv4 address"
                if address is None or network != nic.network or any(prefix.overlaps(other) for other in taken):
                    continue
                taken.append(prefix)
                routes.append(
                    AddRoute(
                        node=nic.node,
                        destination=prefix,
                        gateway=gateway,
                        ifindex=nic.ifindex,
                        table=MAIN_TABLE,
                        source=address.ip,
                    )
                )
        return sorted(routes, key=lambda route: route.destination.version)

    # ------------------------------------------------------------------ expectation

    def plan(
        self, expected_routes: Mapping[str, Sequence[ExpectedRoute]], indexes: Mapping[str, Mapping[str, int]]
    ) -> OverlayPlan | None:
        """The whole, with what each VRF must have: a VTEP is seen where the underlay has a route to it.

        `indexes` are the interface indexes of each node. Raises `PlanError` for a subnet on switches without a path.
        """
        if self._lab.overlay is None:
            return None
        reachable = {
            switch: {route.prefix.network_address for route in routes if route.prefix.prefixlen == 32}
            for switch, routes in expected_routes.items()
        }
        self._check_paths(reachable)
        check_device_names(self.vrfs, self._policies.names, indexes)
        expected = OverlayExpectation(self.vrfs, self._nics, self._macs, indexes).entries(reachable)
        nics = tuple(
            HeardNic(
                node=nic.end.node,
                name=nic.end.interface,
                ifindex=indexes[nic.end.node][nic.end.interface],
                gateway=gateway,
                vrf=vrf_node_name(port.node, nic.tenant.name),
                address=address,
            )
            for nic in self._nics
            for port in nic.ports
            for address, gateway in nic.pairs
        )
        return OverlayPlan(vrfs=self.vrfs, nics=nics, expected=expected, passes=passing(self._lab))

    def _check_paths(self, reachable: Mapping[str, set[IPv4Address]]) -> None:
        for tenant in self._overlay.tenants:
            for subnet in tenant.subnets:
                switches = sorted(
                    {
                        port.node
                        for nic in self._nics
                        if nic.tenant is tenant and nic.subnet is subnet
                        for port in nic.ports
                    }
                )
                for other in switches[1:]:
                    if IPv4Address(self._loopbacks[other]) not in reachable.get(switches[0], ()):
                        raise PlanError(
                            f"the subnet {subnet.name} of {tenant.name} is on {switches[0]} and {other},"
                            " which have no path to each other",
                            field=_key_of(tenant, subnet),
                            code="subnet-without-path",
                            hint="a subnet needs switches of one plane or rail: give each a subnet of its own",
                        )


def _key_of(tenant: Tenant, subnet: TenantSubnet, *keys: str) -> str:
    """The section of a file that a subnet is from, or keys in it; that of a whole network has no section of its own."""
    if tenant.network:
        return f"networks.{tenant.network}"
    return ".".join(("tenants", tenant.name, "subnets", subnet.name, *keys))


def _prefixes(tenant: Tenant) -> list[tuple[IPv4Network | IPv6Network, str]]:
    """The prefixes of a tenant's subnets, of both families, with their networks."""
    return [
        (prefix, subnet.network)
        for subnet in tenant.subnets
        for prefix in (subnet.prefix, subnet.prefix6)
        if prefix is not None
    ]


def _check_names(vrf: VrfPlan, to_others: Iterable[str]) -> None:
    ours = {name for vni in (vrf.l3, *vrf.l2) for name in (vni.bridge, vni.vxlan)} | {*to_others}
    for vni in vrf.l2:
        for port in vni.ports:
            if port in ours:
                raise PlanError(f"{vrf.switch}: two things want the interface {port}", code="duplicate-interface")
