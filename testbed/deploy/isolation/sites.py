"""Where attacks start and whom they are against: each access port of a lab, and a neighbour of the host on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from testbed.drivers.netlink.rtnetlink import mac_bytes
from testbed.drivers.nodes.raw_ports import Place
from testbed.model import Guard, Guards, Lab
from testbed.plan.guards import guards_by_port
from testbed.plan.operations import CreateBridge, CreateVeth, LabPlan, PortPlan

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
    """An access port: the attacker's NIC `nic`, the switch's end `port` of its link, and the guards that are there.

    `victim` is a NIC in the same segment (a bridge), None where there is none; `far` one behind another switch, or
    `victim`. `bridge` is the bridge's interface index, 0 on a routed port. `third` is an address of the subnet that
    is neither's. `tunnel` is into a subnet of another tenant on the switch, None where there is
    none.
    """

    number: int
    nic: PortPlan
    port: PortPlan
    victim: PortPlan | None
    far: PortPlan | None
    bridge: int
    gateway: IPv4Address
    gateway_mac: bytes
    loopback: IPv4Address
    third: IPv4Address
    guards: Guards
    tunnel: Tunnel | None = None

    @property
    def cut_off(self) -> bool:
        """Tell whether the attacker's VRF has no route to the underlay, and no guard counts what it sends there."""
        return bool(self.nic.tenant) and Guard.CONTROL not in self.guards

    @property
    def place(self) -> Place:
        return self.nic.node, self.nic.name

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
    def victim_mac(self) -> bytes:
        assert self.victim is not None
        return mac_bytes(self.victim.mac)

    @property
    def gateway_interface(self) -> int:
        """The interface index of the gateway address on the switch."""
        return self.bridge or self.port.ifindex

    def __str__(self) -> str:
        return f"{self.port.node}:{self.port.name}"


def find_sites(lab: Lab, plan: LabPlan, network: str) -> list[Site]:
    """The access ports of a network whose hosts have addresses and gateways, or an even choice of them."""
    masters, bridges = _bridges(plan)
    loopbacks = {switch.node: switch.loopback.ip for switch in plan.switches}
    guards = guards_by_port(plan.operations)
    tunnels = _tunnels(plan)
    ports = {f"{port.node}:{port.name}": port for port in plan.ports}
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
    for nic in _some(nics):
        assert nic.address is not None
        assert nic.gateway is not None
        port = ports[nic.peer]
        segment = by_subnet[nic.tenant, nic.address.network]
        master = masters.get((port.place, port.ifindex), 0)
        here = [item for item in segment if ports[item.peer].place == port.place]
        victim = _next(nic, here) if master else None
        mine = [item for item in nics if item.tenant == nic.tenant and item not in segment]
        elsewhere = [] if isolated and not nic.tenant else mine
        taken = {item.address.ip for item in segment if item.address is not None} | {nic.gateway}
        others = [item.address.ip for item in segment if item not in (nic, victim) and item.address is not None]
        free = next((host for host in reversed(list(nic.address.network.hosts())) if host not in taken), nic.gateway)
        found.append(
            Site(
                number=len(found),
                nic=nic,
                port=port,
                victim=victim,
                far=_next(nic, elsewhere) or victim,
                bridge=master,
                gateway=nic.gateway,
                gateway_mac=mac_bytes(bridges.get((port.place, master), port.mac)),
                loopback=loopbacks[port.node],
                third=others[0] if others else free,
                guards=guards.get((port.node, port.name), Guards()),
                tunnel=next((one for one in tunnels.get(port.node, ()) if one.tenant != nic.tenant), None),
            )
        )
    return found


def _tunnels(plan: LabPlan) -> dict[str, list[Tunnel]]:
    """The tunnels into each VTEP, to each NIC of a tenant that is on it."""
    nics = {nic.peer: nic for host in plan.hosts for nic in host.nics}
    found: dict[str, list[Tunnel]] = {}
    for vrf in () if plan.overlay is None else plan.overlay.vrfs:
        for vni in vrf.l2:
            for port in vni.ports:
                if nic := nics.get(f"{vrf.switch}:{port}"):
                    tunnel = Tunnel(tenant=vrf.tenant, vni=vni.vni, vtep=vrf.vtep, nic=nic)
                    found.setdefault(vrf.switch, []).append(tunnel)
    return found


def _bridges(plan: LabPlan) -> tuple[dict[tuple[str, int], int], dict[tuple[str, int], str]]:
    """The bridge of each port in one, and the MAC of each bridge, by node and interface index."""
    masters: dict[tuple[str, int], int] = {}
    macs: dict[tuple[str, int], str] = {}
    for item in plan.operations:
        if isinstance(item, CreateVeth):
            masters |= {(end.node, end.ifindex): end.master for end in (item.a, item.b) if end.master}
        elif isinstance(item, CreateBridge):
            macs[item.node, item.ifindex] = item.mac
    return masters, macs


def _next(nic: PortPlan, among: Sequence[PortPlan]) -> PortPlan | None:
    """The NIC of another host that follows this one, going round."""
    start = next((index for index, item in enumerate(among) if item is nic), 0)
    turned = (among[(start + step) % len(among)] for step in range(len(among)))
    return next((item for item in turned if item.node != nic.node), None)


def _some(nics: Sequence[PortPlan]) -> Sequence[PortPlan]:
    return nics if len(nics) <= MOST_SITES else [nics[n * len(nics) // MOST_SITES] for n in range(MOST_SITES)]
