"""The sites of attacks, where they start and whom they are against: each access port of a lab, and a neighbour of the
host on it.

Both ports of a host's link group are one site: the host may send by either, and what it sends to one leaf may do harm
on the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Interface

from testbed.base.linux.rtnetlink import mac_bytes
from testbed.lab.core.drivers.nodes.raw_ports import Place
from testbed.lab.core.fabric.forwarding.links import planes_apart
from testbed.lab.core.model import Guard, Guards, Lab
from testbed.lab.core.plan.lab_plan import LabPlan, PortPlan
from testbed.lab.core.plan.operations import CreateBridge, CreateVeth

MOST_SITES = 64
"""In a network: more of its ports are not attacked from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tunnel:
    """An L2VNI of a tenant that ends on a switch at the address `vtep`, and a NIC in it."""

    tenant: str
    vni: int
    vtep: IPv4Address
    nic: PortPlan


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Site:
    """An access port: the attacker's NIC `nic`, the switch's end of its link, and the guards that are there.

    `ports` has that end, or both ends of a link group's links, and `members` the attacker's ends of the same links:
    what is sent as a whole frame leaves by each of them.
    `victim` is a NIC in the same segment, on the same bridge or else `stretched`, behind another VTEP; None where there
    is none. `far` is one in another subnet, or `victim`. `bridge` is the bridge's interface index, 0 on a routed port.
    `third` is an address of the subnet that is neither's, and `third6` one of its prefix of IPv6, None where it has
    none. `tunnel` is into a subnet of another tenant on the switch, None where there is none.
    """

    number: int
    nic: PortPlan
    members: tuple[PortPlan, ...]
    ports: tuple[PortPlan, ...]
    victim: PortPlan | None
    stretched: bool
    far: PortPlan | None
    bridge: int
    gateway: IPv4Address
    gateway_mac: bytes
    loopback: IPv4Address
    third: IPv4Address
    guards: Guards
    tunnel: Tunnel | None = None
    password: bool = False
    """True where the switch, or the tenant's VRF on it, takes nothing from here by BGP that is not signed."""
    third6: IPv6Address | None = None

    @property
    def cut_off(self) -> bool:
        """Tell whether the attacker's VRF has no route to the underlay, and no guard counts what it sends there."""
        return bool(self.nic.tenant) and Guard.CONTROL not in self.guards

    @property
    def port(self) -> PortPlan:
        """The switch's end of the link, the first one of a link group."""
        return self.ports[0]

    @property
    def senders(self) -> tuple[Place, ...]:
        """The interfaces that whole frames are sent by."""
        return tuple((member.node, member.name) for member in self.members)

    @property
    def places(self) -> tuple[str, ...]:
        """The nodes whose namespaces the switches' ends lie in."""
        return tuple(port.place for port in self.ports)

    @property
    def is_pair(self) -> bool:
        """Tell whether the host is on two leaves that tell each other what they have heard of it."""
        return len(self.ports) > 1

    @property
    def mac(self) -> bytes:
        return mac_bytes(self.nic.mac)

    @property
    def address(self) -> IPv4Address:
        assert self.nic.address is not None
        return self.nic.address.ip

    @property
    def victim_place(self) -> Place:
        assert self.victim is not None
        return self.victim.node, self.victim.name

    @property
    def victim_address(self) -> IPv4Address:
        assert self.victim is not None
        assert self.victim.address is not None
        return self.victim.address.ip

    @property
    def gateway6(self) -> IPv6Address:
        """That of a subnet that has IPv6."""
        assert self.nic.gateway6 is not None
        return self.nic.gateway6

    @property
    def victim_address6(self) -> IPv6Address:
        """That in a subnet that has IPv6."""
        assert self.victim is not None
        assert self.victim.address6 is not None
        return self.victim.address6.ip

    @property
    def victim_mac(self) -> bytes:
        assert self.victim is not None
        return mac_bytes(self.victim.mac)

    @property
    def gateway_interface(self) -> int:
        """The interface index of the gateway address on the switch."""
        return self.bridge or self.port.ifindex

    def __str__(self) -> str:
        return "+".join(f"{port.node}:{port.name}" for port in self.ports)


def find_sites(lab: Lab, plan: LabPlan, network: str) -> list[Site]:
    """The access ports of a network whose hosts have addresses and gateways, or an even choice of them."""
    masters, bridges = find_bridges(plan)
    loopbacks = {switch.node: switch.loopback.ip for switch in plan.switches}
    secured = {switch.node for switch in plan.switches if switch.password}
    guards = plan.guards
    ports = {f"{port.node}:{port.name}": port for port in plan.ports}
    members = _members(plan, ports)
    tunnels = _tunnels(plan, members)

    def ends(nic: PortPlan) -> tuple[PortPlan, ...]:
        return tuple(ports[member.peer] for member in members[nic.node, nic.name])

    nics = [
        nic
        for host in plan.hosts
        for nic in host.nics
        if nic.network == network
        and nic.address is not None
        and nic.gateway is not None
        and ports[nic.peer].node in loopbacks
    ]
    by_subnet: dict[tuple[str, IPv4Network], list[PortPlan]] = {}
    for nic in nics:
        assert nic.address is not None
        by_subnet.setdefault((nic.tenant, nic.address.network), []).append(nic)
    found: list[Site] = []
    isolated = network == "backend" and lab.isolated_rails
    planes = planes_apart(lab)
    for nic in some_of(nics, MOST_SITES):
        assert nic.address is not None
        assert nic.gateway is not None
        port = ends(nic)[0]
        segment = by_subnet[nic.tenant, nic.address.network]
        master = masters.get((port.place, port.ifindex), 0)
        here = [item for item in segment if ends(item)[0].place == port.place]
        near = next_host(nic, here) if master else None
        victim = near or (next_host(nic, segment) if master and nic.tenant else None)
        mine = [
            item
            for item in nics
            if item.tenant == nic.tenant and item not in segment and _plane(planes, item) == _plane(planes, nic)
        ]
        elsewhere = [] if isolated and not nic.tenant else mine
        taken = {item.address.ip for item in segment if item.address is not None} | {nic.gateway}
        others = [item for item in segment if item not in (nic, victim)]
        free = next((host for host in reversed(list(nic.address.network.hosts())) if host not in taken), nic.gateway)
        found.append(
            Site(
                number=len(found),
                nic=nic,
                members=members[nic.node, nic.name],
                ports=ends(nic),
                victim=victim,
                stretched=near is None and victim is not None,
                far=next_host(nic, elsewhere) or victim,
                bridge=master,
                gateway=nic.gateway,
                gateway_mac=mac_bytes(bridges.get((port.place, master), port.mac)),
                loopback=loopbacks[port.node],
                third=next((item.address.ip for item in others if item.address is not None), free),
                third6=None if nic.address6 is None else _third6(nic.address6, others),
                guards=guards.get((port.node, port.name), Guards()),
                tunnel=next((one for one in tunnels.get(port.node, ()) if one.tenant != nic.tenant), None),
                password=port.node in secured,
            )
        )
    return found


def _plane(planes: Mapping[str, int], nic: PortPlan) -> int:
    """The plane of a NIC; 0 where all can reach each other."""
    return planes.get(nic.peer.partition(":")[0], 0)


def _third6(own: IPv6Interface, others: Sequence[PortPlan]) -> IPv6Address:
    """An address of one of `others`, else the last one of the prefix, which is nobody's."""
    return next((item.address6.ip for item in others if item.address6 is not None), own.network[-1])


def _members(plan: LabPlan, ports: Mapping[str, PortPlan]) -> dict[Place, tuple[PortPlan, ...]]:
    """The ports of each NIC at the host: the NIC itself, or the members of the aggregate that it is."""
    found: dict[Place, tuple[PortPlan, ...]] = {
        (nic.node, nic.name): (nic,) for host in plan.hosts for nic in host.nics
    }
    for group in () if plan.link_groups is None else plan.link_groups.hosts:
        found[group.node, group.nic] = tuple(ports[f"{group.node}:{member.name}"] for member in group.members)
    return found


def _tunnels(plan: LabPlan, members: Mapping[Place, Sequence[PortPlan]]) -> dict[str, list[Tunnel]]:
    """The tunnels into each VTEP, to each NIC of a tenant that is on it."""
    nics = {member.peer: nic for host in plan.hosts for nic in host.nics for member in members[nic.node, nic.name]}
    found: dict[str, list[Tunnel]] = {}
    for vrf in () if plan.overlay is None else plan.overlay.vrfs:
        for vni in vrf.l2:
            for port in vni.ports:
                if nic := nics.get(f"{vrf.switch}:{port}"):
                    tunnel = Tunnel(tenant=vrf.tenant, vni=vni.vni, vtep=vrf.vtep, nic=nic)
                    found.setdefault(vrf.switch, []).append(tunnel)
    return found


def find_bridges(plan: LabPlan) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], str]]:
    """The bridge of each port in one, and the MAC of each bridge, by node and interface index."""
    masters: dict[tuple[str, int], int] = {}
    macs: dict[tuple[str, int], str] = {}
    for item in plan.operations:
        if isinstance(item, CreateVeth):
            masters |= {(end.node, end.ifindex): end.master for end in (item.a, item.b) if end.master}
        elif isinstance(item, CreateBridge):
            macs[item.node, item.ifindex] = item.mac
    return masters, macs


def next_host(nic: PortPlan, among: Sequence[PortPlan]) -> PortPlan | None:
    """Return the port of another node that follows this one, going round."""
    start = next((index for index, item in enumerate(among) if item is nic), 0)
    turned = (among[(start + step) % len(among)] for step in range(len(among)))
    return next((item for item in turned if item.node != nic.node), None)


def some_of(ports: Sequence[PortPlan], most: int) -> Sequence[PortPlan]:
    """Return an even choice of ports where there are more than `most`."""
    return ports if len(ports) <= most else [ports[n * len(ports) // most] for n in range(most)]
