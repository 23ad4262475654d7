"""The guards of access ports: which port belongs to which host, and which addresses are those of switches.

Both ports of a host's link group belong to its aggregate: the MAC and the addresses are those of the aggregate at
either leaf. What comes over a peer link was let in by the other leaf, and is not guarded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from testbed.base.errors import PlanError
from testbed.lab.core.model import BACKEND, DelayBy, Guards, Lab, LinkKind
from testbed.lab.core.plan.lab_plan import HostPlan, PortPlan, SwitchPlan
from testbed.lab.core.plan.operations import CreateBridge, GuardedPort, GuardSwitch, Operation
from testbed.lab.core.plan.overlay_plan import VrfPlan
from testbed.lab.core.plan.tenancy import Tenancy


@dataclass(frozen=True, slots=True)
class _Access:
    """A port of a switch, the NIC of the host on it, and that NIC's port at the other end: the NIC itself, but where it
    is an aggregate."""

    port: PortPlan
    nic: PortPlan
    member: PortPlan


def guard_switches(
    lab: Lab,
    ports: Sequence[PortPlan],
    hosts: Sequence[HostPlan],
    before: Iterable[Operation],
    switches: Sequence[SwitchPlan],
    tenancy: Tenancy,
    vteps: Mapping[str, int],
) -> list[GuardSwitch]:
    """One operation for each switch, and each VRF on it, whose network has guards and that has hosts on it.

    `before` has the operations that make the bridges of switches and of VRFs, which `tenancy` knows; `vteps` the
    addresses of switches that are one VTEP with another.

    Raises `PlanError` where the kernel delays what a guarded port receives: it would come in past the guards.
    """
    own = {BACKEND: lab.guards, **{network.name: network.guards for network in lab.networks}}
    guards = {name: own[lab.carrier_of(name)] for name in own}
    if not any(guards.values()):
        return []
    ends = {f"{port.node}:{port.name}": port for port in ports}
    nics = {f"{nic.node}:{nic.name}": nic for host in hosts for nic in host.nics}
    aggregates = {str(link.a): nics[str(link.nic)] for link in lab.links if link.kind is LinkKind.MEMBER}
    every = [*ports, *dict.fromkeys(aggregates.values())]
    known = {host.node for host in hosts}
    access: dict[tuple[str, str], list[_Access]] = defaultdict(list)
    for port in ports:
        if port.node not in known and ends[port.peer].node in known and guards[port.network]:
            _check_delay(port)
            member, nic = ends[port.peer], aggregates.get(port.peer)
            access[port.place, port.tenant].append(_Access(port, member if nic is None else nic, member))
    tenants = {(vrf.place, vni.bridge_ifindex): vrf.tenant for vrf in tenancy.vrfs for vni in (vrf.l3, *vrf.l2)}
    routers = {(vrf.place, vrf.tenant): _routers(vrf) for vrf in tenancy.vrfs}
    stations: dict[tuple[str, str], list[str]] = defaultdict(list)
    for bridge in before:
        if isinstance(bridge, CreateBridge):
            stations[bridge.node, tenants.get((bridge.node, bridge.ifindex), "")].append(bridge.mac)
    found = []
    for (place, tenant), ends_here in access.items():
        network = ends_here[0].port.network
        carrier = lab.carrier_of(network)
        around = {carrier, *lab.carried_by(carrier)}
        addresses = _switch_addresses(around, tenant, every, switches, known, vteps, tenancy)
        if tenant:  # behind another leaf of the tenant is known, too
            stations[place, tenant] += [port.mac for port in every if port.tenant == tenant and port.node in known]
        here = place, tenant
        found.append(_guard(guards[network], ends_here, addresses, stations[here], routers.get(here, ())))
    return found


def _routers(vrf: VrfPlan) -> tuple[str, ...]:
    """The MACs of the bridges that are gateways of IPv6."""
    return tuple(sorted({vni.mac for vni in vrf.l2 if vni.gateway6 is not None}))


def _check_delay(port: PortPlan) -> None:
    if port.delay_ns and port.delay_by is DelayBy.KERNEL:
        raise PlanError(
            f"{port.node}:{port.name} cannot be guarded: the kernel delays what it receives, past the guards",
            code="guards",
            hint="delay: {value: ..., by: endpoint} for links to hosts, or guards: off",
        )


def _switch_addresses(
    around: Collection[str],
    tenant: str,
    ports: Sequence[PortPlan],
    switches: Sequence[SwitchPlan],
    hosts: Collection[str],
    vteps: Mapping[str, int],
    tenancy: Tenancy,
) -> tuple[IPv4Address | IPv6Address, ...]:
    """Every address of a switch in a network that a tenant's hosts ("": those of none) are kept from.

    Loopbacks, those of two leaves as one VTEP and of routed links, and their gateways: addresses of other tenants mean
    something else to them, as does one of the underlay that is in a prefix that the tenant reaches. Of IPv6 there are
    gateways of tenants alone.
    """
    ours = {switch.node: switch.loopback.ip for switch in switches if switch.network in around}
    found = {*ours.values(), *(IPv4Address(vtep) for leaf, vtep in vteps.items() if leaf in ours)}
    mine = [port for port in ports if port.network in around]
    found |= {port.gateway for port in mine if port.gateway is not None and not port.tenant}
    found |= {port.address.ip for port in mine if port.node not in hosts and port.address is not None}
    if tenant:
        reached = tenancy.reached_by(tenant)
        prefixes = {port.address.network for port in ports if port.tenant in reached and port.address is not None}
        found = {address for address in found if not any(address in prefix for prefix in prefixes)}
        found |= {port.gateway for port in mine if port.gateway is not None and port.tenant == tenant}
    gateways6 = {port.gateway6 for port in mine if port.gateway6 is not None and port.tenant == tenant}
    return (*sorted(found), *sorted(gateways6))


def _guard(
    guards: Guards,
    access: Sequence[_Access],
    switches: tuple[IPv4Address | IPv6Address, ...],
    stations: Sequence[str],
    routers: tuple[str, ...],
) -> GuardSwitch:
    first = access[0].port
    return GuardSwitch(
        node=first.node,
        vrf=first.vrf,
        tenant="" if first.vrf else first.tenant,
        guards=guards,
        ports=tuple(
            GuardedPort(
                name=end.port.name,
                ifindex=end.port.ifindex,
                mac=end.nic.mac,
                addresses=tuple(end.nic.addresses),
                gateway=end.nic.gateway,
                gateway6=end.nic.gateway6,
                member_mac="" if end.member is end.nic else end.member.mac,
            )
            for end in access
        ),
        switches=switches,
        stations=tuple(sorted({mac for end in access for mac in (end.port.mac, end.nic.mac)}.union(stations))),
        routers=routers,
    )
