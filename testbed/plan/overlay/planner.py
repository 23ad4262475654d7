"""Planning an overlay: VRFs and VNIs of each switch, their addresses and MACs, and what EVPN must bring into them.

A switch has a VRF of each tenant that has a NIC on it, and in it the L2VNIs of the subnets of those NICs. A VRF is a
network namespace beside the switch's own, so that addresses of tenants may repeat; its VXLAN devices keep their UDP
socket in the switch's, where the underlay is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import TypeVar

from testbed.errors import PlanError
from testbed.model import End, Lab, Link, LinkKind, LoadBalancing, Overlay, Tenant, TenantSubnet
from testbed.names import vrf_node_name
from testbed.plan.hosts import MAIN_TABLE
from testbed.plan.interfaces import LOOPBACK_IFINDEX
from testbed.plan.operations import (
    AddAddress,
    AddRoute,
    CreateBridge,
    CreateVrf,
    CreateVxlan,
    DelayPort,
    ExpectedRoute,
    InstallPort,
    Operation,
    PortPlan,
    SetBridgePort,
    SetUp,
    ShapePort,
)
from testbed.plan.overlay.policies import PolicyPlanner, foreign_targets, passing, talking, tenants_by_switch, wires
from testbed.plan.overlay.vrfs import (
    ANY_MAC,
    EntryKind,
    EvpnPlan,
    EvpnRoute,
    ExpectedEntry,
    HeardNic,
    OverlayPlan,
    VniPlan,
    VrfPlan,
)
from testbed.plan.stable import probe_numbers
from testbed.plan.sysctls import vrf_sysctls

FIRST_VXLAN = 1 << 25
FIRST_VNI_BRIDGE = 1 << 26
"""Interface indexes are these plus the VNI: a device keeps its index whatever else there is."""
GATEWAY = "anycast gateway"
ROUTER = "router"
"""What the MACs of the anycast gateways and of a VTEP's router are planned for, in place of an interface."""
BRIDGE_AGEING_S = 86_400
"""How long the bridge of a VNI remembers a silent NIC: a day, or its type-2 route would go after five minutes."""
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
    ports = {link.a: link.b for link in _tenant_links(lab)}
    keys = {("", GATEWAY): None}
    for tenant in lab.overlay.tenants:
        for subnet in tenant.subnets:
            for switch in {ports[end].node: None for end in subnet.nics}:
                keys |= {(switch, what): None for what in (ROUTER, _vxlan_name(tenant.vni), _vxlan_name(subnet.vni))}
    for wire in wires(lab):
        for end in (wire, wire.far):
            keys |= {(end.switch, ROUTER): None, (end.switch, _vxlan_name(end.side.vni)): None}
            keys[end.node, end.name] = None
    return list(keys)


def vrf_nodes(lab: Lab) -> list[str]:
    """What operations call the namespaces of all VRFs of a lab."""
    return [vrf_node_name(switch, name) for switch, names in tenants_by_switch(lab).items() for name in names]


def _vxlan_name(vni: int) -> str:
    return f"vx{vni}"


def _tenant_links(lab: Lab) -> list[Link]:
    return [link for link in lab.links if link.kind is LinkKind.TENANT]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Nic:
    """A tenant's NIC with its address, and the port of the switch that it is on."""

    end: End
    port: End
    tenant: Tenant
    subnet: TenantSubnet
    address: IPv4Interface
    gateway: IPv4Address


class OverlayPlanner:
    """The overlay's part of a plan. A lab without an overlay has an empty one."""

    def __init__(self, lab: Lab, loopbacks: Mapping[str, int], macs: Mapping[tuple[str, str], str]) -> None:
        """`loopbacks` are the addresses of switches, `macs` those of interfaces and of `overlay_macs`."""
        self._lab = lab
        self._overlay = lab.overlay or Overlay(mtu_bytes={})
        self._reached = {tenant.name: [*tenant.subnets] for tenant in self._overlay.tenants}
        for a, b in talking(lab):
            self._reached[a.name] += b.subnets
            self._reached[b.name] += a.subnets
        self._networks = {node.name: node.network for node in lab.switches}
        self._loopbacks = loopbacks
        self._macs = macs
        ports = {link.a: link.b for link in _tenant_links(lab)}
        self._nics = [
            _Nic(
                end=end,
                port=ports[end],
                tenant=tenant,
                subnet=subnet,
                address=IPv4Interface((int(subnet.prefix.network_address) + 2 + index, subnet.prefix.prefixlen)),
                gateway=subnet.prefix.network_address + 1,
            )
            for tenant in self._overlay.tenants
            for subnet in tenant.subnets
            for index, end in enumerate(subnet.nics)
        ]
        self._rd_numbers = self._number_vnis()
        self._policies = PolicyPlanner(lab, macs)
        self.vrfs = self._plan_vrfs()
        self._by_port = {nic.port: nic for nic in self._nics}
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
                        field=f"tenants.{nic.tenant.name}.subnets.{nic.subnet.name}.prefix",
                        code="overlap",
                        hint="a host's NICs need prefixes that do not overlap: choose one outside of 10.0.0.0/8 and"
                        " of the prefixes of networks",
                    )
        ours = {(nic.end.node, nic.end.interface): (nic.address, nic.gateway) for nic in self._nics}
        return {**routed, **ours}

    def tenant_of(self, end: End) -> str:
        """The tenant that a NIC, or the port that it is on, belongs to; "" for none."""
        nic = self._by_end.get(end)
        return "" if nic is None else nic.tenant.name

    def vrf_of(self, end: End) -> str:
        """The node whose namespace a switch's port lies in where that is a VRF's; "" else."""
        nic = self._by_port.get(end)
        return "" if nic is None else vrf_node_name(end.node, nic.tenant.name)

    def master(self, end: End) -> int:
        """The bridge that a switch's port in a VRF is a port of."""
        return FIRST_VNI_BRIDGE + self._by_port[end].subnet.vni

    def evpn(self, switch: str) -> EvpnPlan | None:
        """What a switch is told of the overlay; None where there is none."""
        if self._networks[switch] not in self._overlay.mtu_bytes:
            return None
        vrfs = tuple(vrf for vrf in self.vrfs if vrf.switch == switch)
        return EvpnPlan(vrfs=vrfs, foreign=foreign_targets(self._lab, self.vrfs, switch))

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
            ports[nic.port.node, nic.tenant.name][nic.subnet.name].append(nic.port.interface)
        present = tenants_by_switch(self._lab)
        vrfs = []
        for switch in self._lab.switches:
            for tenant in self._overlay.tenants:
                if tenant.name not in present.get(switch.name, ()):
                    continue
                subnets = ports[switch.name, tenant.name]
                loopback = IPv4Address(self._loopbacks[switch.name])
                mtu_bytes = self._overlay.mtu_bytes[switch.network]
                l3 = self._vni(loopback, tenant.vni, self._macs[switch.name, ROUTER], tenant.route_target, mtu_bytes)
                l2 = tuple(
                    replace(
                        self._vni(loopback, subnet.vni, self._macs["", GATEWAY], f"65000:{subnet.vni}", mtu_bytes),
                        subnet=subnet.name,
                        gateway=subnet.gateway,
                        ports=tuple(subnets[subnet.name]),
                    )
                    for subnet in tenant.subnets
                    if subnet.name in subnets
                )
                vrf = VrfPlan(
                    node=vrf_node_name(switch.name, tenant.name),
                    switch=switch.name,
                    tenant=tenant.name,
                    router_id=loopback,
                    vtep=loopback,
                    l3=l3,
                    l2=l2,
                )
                _check_names(vrf, self._policies.names(vrf.node))
                vrfs.append(vrf)
        return tuple(vrfs)

    def _vni(self, loopback: IPv4Address, vni: int, mac: str, route_target: str, mtu_bytes: int) -> VniPlan:
        return VniPlan(
            vni=vni,
            bridge=f"br{vni}",
            bridge_ifindex=FIRST_VNI_BRIDGE + vni,
            vxlan=_vxlan_name(vni),
            vxlan_ifindex=FIRST_VXLAN + vni,
            mac=mac,
            mtu_bytes=mtu_bytes,
            rd=f"{loopback}:{self._rd_numbers[vni]}",
            route_target=route_target,
        )

    # ------------------------------------------------------------------ operations

    def creations(self, cpu_slots: Mapping[str, int]) -> list[CreateVrf]:
        """The namespaces of all VRFs; `cpu_slots` are those of their switches."""
        return [
            CreateVrf(node=vrf.node, switch=vrf.switch, tenant=vrf.tenant, cpu_slot=cpu_slots[vrf.switch])
            for vrf in self.vrfs
        ]

    def before_links(self) -> list[Operation]:
        """Settings, bridges and VXLAN devices: what the ports of NICs are then made into."""
        operations: list[Operation] = []
        for vrf in self.vrfs:
            operations += vrf_sysctls(vrf.node, balancing=self._balancing(vrf.switch))
        for vrf, vni in self._all_vnis():
            operations.append(
                CreateBridge(
                    node=vrf.node,
                    name=vni.bridge,
                    ifindex=vni.bridge_ifindex,
                    mac=vni.mac,
                    mtu_bytes=vni.mtu_bytes,
                    ageing_s=BRIDGE_AGEING_S,
                )
            )
        operations += [
            CreateVxlan(
                node=vrf.node,
                switch=vrf.switch,
                name=vni.vxlan,
                ifindex=vni.vxlan_ifindex,
                vni=vni.vni,
                mac=self._macs[vrf.switch, vni.vxlan],
                local=vrf.vtep,
                master=vni.bridge_ifindex,
                mtu_bytes=vni.mtu_bytes,
            )
            for vrf, vni in self._all_vnis()
        ]
        operations += [
            SetBridgePort(
                node=vrf.node,
                name=vni.vxlan,
                ifindex=vni.vxlan_ifindex,
                learning=False,
                neighbour_suppression=True,
            )
            for vrf, vni in self._all_vnis()
        ]
        return operations + self._policies.creations()

    def after_links(self) -> list[Operation]:
        """Bring the bridges and VXLAN devices up, and give the gateways their addresses."""
        operations: list[Operation] = []
        for vrf in self.vrfs:
            operations.append(SetUp(node=vrf.node, name="lo", ifindex=LOOPBACK_IFINDEX))
        for vrf, vni in self._all_vnis():
            operations.append(SetUp(node=vrf.node, name=vni.bridge, ifindex=vni.bridge_ifindex))
            operations.append(SetUp(node=vrf.node, name=vni.vxlan, ifindex=vni.vxlan_ifindex))
            if vni.gateway is not None:
                operations.append(
                    AddAddress(node=vrf.node, name=vni.bridge, ifindex=vni.bridge_ifindex, address=vni.gateway)
                )
        return operations + self._policies.routes()

    def placed(self, operations: Iterable[_T]) -> list[_T]:
        """Operations on ports, those of tenants in their VRFs."""
        found = []
        for operation in operations:
            vrf = self.vrf_of(End(node=operation.node, interface=operation.name))
            found.append(replace(operation, vrf=vrf) if vrf else operation)
        return found

    def _all_vnis(self) -> list[tuple[VrfPlan, VniPlan]]:
        return [(vrf, vni) for vrf in self.vrfs for vni in (vrf.l3, *vrf.l2)]

    def _balancing(self, switch: str) -> LoadBalancing | None:
        policy = self._lab.qos_of(self._networks[switch])
        return None if policy is None else policy.of(switch).load_balancing

    def host_routes(self, nics: Sequence[PortPlan]) -> list[AddRoute]:
        """The routes of a host's main table to what its tenants reach beside it, each by the first NIC in the tenant.

        What is bound to a NIC's address needs none: it leaves by that NIC whatever the destination.
        """
        taken = [nic.address.network for nic in nics if nic.address is not None]
        routes = []
        for nic in nics:
            for subnet in self._reached.get(nic.tenant, ()):
                if any(subnet.prefix.overlaps(other) for other in taken) or subnet.network != nic.network:
                    continue
                assert nic.address is not None, "a tenant's NIC has an address"
                taken.append(subnet.prefix)
                routes.append(
                    AddRoute(
                        node=nic.node,
                        destination=subnet.prefix,
                        gateway=nic.gateway,
                        ifindex=nic.ifindex,
                        table=MAIN_TABLE,
                        source=nic.address.ip,
                    )
                )
        return routes

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
        expected = {}
        for vrf in self.vrfs:
            others = [
                other
                for other in self.vrfs
                if other.tenant == vrf.tenant
                and other.l2
                and other.switch != vrf.switch
                and other.vtep in reachable.get(vrf.switch, ())
            ]
            expected[vrf.node] = tuple(self._expect(vrf, others))
        nics = tuple(
            HeardNic(
                node=nic.end.node,
                name=nic.end.interface,
                ifindex=indexes[nic.end.node][nic.end.interface],
                gateway=nic.gateway,
                vrf=vrf_node_name(nic.port.node, nic.tenant.name),
                address=nic.address.ip,
            )
            for nic in self._nics
        )
        return OverlayPlan(vrfs=self.vrfs, nics=nics, expected=expected, passes=passing(self._lab))

    def _check_paths(self, reachable: Mapping[str, set[IPv4Address]]) -> None:
        for tenant in self._overlay.tenants:
            for subnet in tenant.subnets:
                switches = sorted(
                    {nic.port.node for nic in self._nics if nic.tenant is tenant and nic.subnet is subnet}
                )
                for other in switches[1:]:
                    if IPv4Address(self._loopbacks[other]) not in reachable.get(switches[0], ()):
                        raise PlanError(
                            f"the subnet {subnet.name} of {tenant.name} is on {switches[0]} and {other},"
                            " which have no path to each other",
                            field=f"tenants.{tenant.name}.subnets.{subnet.name}",
                            code="subnet-without-path",
                            hint="a subnet needs switches of one plane or rail: give each a subnet of its own",
                        )

    def _expect(self, vrf: VrfPlan, others: Sequence[VrfPlan]) -> list[ExpectedEntry]:
        local = {vni.vni: vni for vni in vrf.l2}
        l3 = vrf.l3
        entries = []
        prefixes: dict[IPv4Network, list[VrfPlan]] = {}
        for nic in self._nics_of(vrf):
            vni = local[nic.subnet.vni]
            entries.append(_neighbour(EntryKind.HEARD, vni, nic.address.ip, self._mac(nic.end), str(nic.end), vrf))
        for other in others:
            theirs = {vni.vni: vni for vni in other.l2}
            name = f"the router of {other.switch}"
            entries.append(_fdb(EntryKind.MAC, l3, other.l3.mac, name, other))
            entries.append(_neighbour(EntryKind.NEIGHBOUR, l3, other.vtep, other.l3.mac, name, other))
            for vni in other.l2:
                if vni.vni in local:
                    flood = EvpnRoute(rd=vni.rd, prefix=f"[3]:[0]:[32]:[{other.vtep}]")
                    entries.append(_fdb(EntryKind.FLOOD, local[vni.vni], ANY_MAC, other.switch, other, flood))
                elif vni.gateway is not None:
                    prefixes.setdefault(vni.gateway.network, []).append(other)
            for nic in self._nics_of(other):
                of, mac, address = str(nic.end), self._mac(nic.end), nic.address.ip
                rd = theirs[nic.subnet.vni].rd
                macip = EvpnRoute(rd=rd, prefix=f"[2]:[0]:[48]:[{mac}]:[32]:[{address}]")
                if (shared := local.get(nic.subnet.vni)) is not None:
                    bare = EvpnRoute(rd=rd, prefix=f"[2]:[0]:[48]:[{mac}]")
                    entries.append(_fdb(EntryKind.MAC, shared, mac, of, other, bare))
                    entries.append(_neighbour(EntryKind.NEIGHBOUR, shared, address, mac, of, other, macip))
                entries.append(_route(l3, IPv4Network((address, 32)), of, [other], [macip]))
        for prefix, holders in prefixes.items():
            subnet = f"[5]:[0]:[{prefix.prefixlen}]:[{prefix.network_address}]"
            routes = [EvpnRoute(rd=holder.l3.rd, prefix=subnet) for holder in holders]
            entries.append(_route(l3, prefix, "a subnet", holders, routes))
        return entries

    def _nics_of(self, vrf: VrfPlan) -> list[_Nic]:
        return [nic for nic in self._nics if nic.port.node == vrf.switch and nic.tenant.name == vrf.tenant]

    def _mac(self, end: End) -> str:
        return self._macs[end.node, end.interface]


def _check_names(vrf: VrfPlan, to_others: Iterable[str]) -> None:
    ours = {name for vni in (vrf.l3, *vrf.l2) for name in (vni.bridge, vni.vxlan)} | {*to_others}
    for vni in vrf.l2:
        for port in vni.ports:
            if port in ours:
                raise PlanError(f"{vrf.switch}: two things want the interface {port}", code="duplicate-interface")


def _fdb(
    kind: EntryKind, vni: VniPlan, mac: str, of: str, other: VrfPlan, route: EvpnRoute | None = None
) -> ExpectedEntry:
    return ExpectedEntry(
        kind=kind,
        vni=vni.vni,
        ifindex=vni.vxlan_ifindex,
        mac=mac,
        of=of,
        switch=other.switch,
        vteps=(other.vtep,),
        routes=() if route is None else (route,),
    )


def _neighbour(
    kind: EntryKind,
    vni: VniPlan,
    address: IPv4Address,
    mac: str,
    of: str,
    other: VrfPlan,
    route: EvpnRoute | None = None,
) -> ExpectedEntry:
    return ExpectedEntry(
        kind=kind,
        vni=vni.vni,
        ifindex=vni.bridge_ifindex,
        mac=mac,
        address=address,
        of=of,
        switch=other.switch,
        vteps=() if kind is EntryKind.HEARD else (other.vtep,),
        routes=() if route is None else (route,),
    )


def _route(
    l3: VniPlan, prefix: IPv4Network, of: str, holders: Sequence[VrfPlan], routes: Sequence[EvpnRoute]
) -> ExpectedEntry:
    return ExpectedEntry(
        kind=EntryKind.ROUTE,
        vni=l3.vni,
        ifindex=l3.bridge_ifindex,
        prefix=prefix,
        of=of,
        switch=" or ".join(holder.switch for holder in holders),
        vteps=tuple(holder.vtep for holder in holders),
        routes=tuple(routes),
    )
