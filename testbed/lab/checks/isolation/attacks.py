"""The attacks, as what is sent and where its success would be seen. Data for `arena`, which carries them out."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address

from testbed.lab.checks.isolation import frames
from testbed.lab.checks.isolation.sites import Site
from testbed.lab.core.drivers.nodes.raw_ports import Place
from testbed.lab.core.model import Guard
from testbed.lab.core.plan.lab_plan import PortPlan

FOREIGN = IPv4Address("203.0.113.9")
"""An address of TEST-NET-3 (RFC 5737), which no lab has."""
NOWHERE = IPv4Address("198.51.100.9")
"""An address of TEST-NET-2: a switch drops what is for it."""
FOREIGN6 = IPv6Address("2001:db8::9")
"""An address of the prefix for documentation (RFC 3849)."""
_DISCARD = (40000, 9)
FLOODED_MACS = 64
_STORM_FRAMES = 400
_MOST_STORM_FRAMES = 8000
_ALONE, _ALONE_ON_SWITCH = "no other host is on the segment", "no other host of the segment is on the switch"
_NO_ROUTE = "the tenant's VRF has no route to the underlay"
BGP, VTY, VXLAN = 179, 2605, 4789


class Attack(ABC):
    """An attack: frames that a host should not send. `guard` is the defence, `name` what tables call it."""

    name: str
    guard: Guard
    alone = False
    """One attacker at a time on a switch: they would be in each other's way."""

    def misfit(self, site: Site) -> str:
        """Why it cannot be tried at a port; "" where it can."""
        return ""

    @abstractmethod
    def frames(self, site: Site, token: bytes) -> Sequence[bytes]:
        """Return the frames that are sent; `token` tells them from all others."""

    def to_drop(self, site: Site, sent: int, seconds: float) -> int:
        """Return the number of frames that a guard drops which stops the attack."""
        return sent


class NearAttack(Attack):
    """One that concerns the tables, or the links, of one switch: its victim must be there, too."""

    def misfit(self, site: Site) -> str:
        return super().misfit(site) or (_ALONE_ON_SWITCH if site.victim is None or site.stretched else "")


class SeenAttack(Attack):
    """An attack that has succeeded when frames arrive at `where`."""

    def where(self, site: Site) -> Place:
        return site.victim_place

    def misfit(self, site: Site) -> str:
        return "" if site.victim is not None else _ALONE

    def enough(self, site: Site, seconds: float) -> int:
        """Return the number of arrivals that is a success."""
        return 1


class TableAttack(Attack):
    """An attack that has succeeded when somebody believes it: a neighbour table, or the table of a bridge."""


class NeighbourAttack(TableAttack):
    """One that puts the attacker's MAC beside another's address."""

    @abstractmethod
    def entries(self, site: Site) -> Sequence[tuple[str, int, IPv4Address | IPv6Address]]:
        """Node, interface index and address of the neighbour that would be a lie, wherever it may be believed."""

    def misfit(self, site: Site) -> str:
        return "" if site.victim is not None else _ALONE


class StationAttack(TableAttack):
    """One that has a bridge learn other MACs at the attacker's port."""

    def misfit(self, site: Site) -> str:
        return "" if site.bridge else "the port is in no bridge"


class ForeignSource(SeenAttack):
    name = "source of nobody"
    guard = Guard.SOURCE

    def where(self, site: Site) -> Place:
        far = _far(site)
        return far.node, far.name

    def misfit(self, site: Site) -> str:
        return "" if site.far is not None else "no other host is in the network"

    def frames(self, site: Site, token: bytes) -> Sequence[bytes]:
        target = _far(site).address
        assert target is not None
        return [frames.udp(site.gateway_mac, site.mac, (FOREIGN, target.ip), _DISCARD, token)]


class NeighbourSource(SeenAttack):
    name = "source of a neighbour"
    guard = Guard.SOURCE

    def frames(self, site: Site, token: bytes) -> Sequence[bytes]:
        return [frames.udp(site.victim_mac, site.mac, (site.third, site.victim_address), _DISCARD, token)]


class StolenMac(NearAttack, StationAttack):
    name = "MAC of a neighbour"
    guard = Guard.MAC

    def frames(self, site: Site, token: bytes) -> Sequence[bytes]:
        return [frames.udp(site.gateway_mac, site.victim_mac, (site.address, NOWHERE), _DISCARD, token)]


class MacFlood(StationAttack):
    name = "MAC flood"
    guard = Guard.MAC

    def frames(self, site: Site, token: bytes) -> Sequence[bytes]:
        return [
            frames.udp(site.gateway_mac, b"\x06" + os.urandom(5), (site.address, NOWHERE), _DISCARD, token)
            for _ in range(FLOODED_MACS)
        ]


class GatewayArp(NeighbourAttack):
    name = "ARP: I am the gateway"
    guard = Guard.ARP

    def entries(self, site: Site) -> Sequence[tuple[str, int, IPv4Address | IPv6Address]]:
        assert site.victim is not None
        return [(site.victim.node, site.victim.ifindex, site.gateway)]

    def frames(self, site: Site, token: bytes) -> Sequence[bytes]:
        return [frames.gratuitous_arp(site.victim_mac, site.mac, site.gateway, token)]


class NeighbourArp(NearAttack, NeighbourAttack):
    name = "ARP: I am a neighbour"
    guard = Guard.ARP

    def entries(self, site: Site) -> Sequence[tuple[str, int, IPv4Address | IPv6Address]]:
        return [(place, site.gateway_interface, site.victim_address) for place in site.places]

    def frames(self, site: Site, token: bytes) -> Sequence[bytes]:
        return [frames.gratuitous_arp(site.gateway_mac, site.mac, site.victim_address, token)]


class GatewayAdvertisement(SeenAttack):
    """Its frame arrives: a host that spoke IPv6 would believe it."""

    name = "ND: I am the gateway"
    guard = Guard.ARP

    def frames(self, site: Site, token: bytes) -> Sequence[bytes]:
        claimed = frames.link_local(site.gateway_mac)
        return [frames.neighbour_advertisement(site.mac, site.victim_mac, claimed, token)]


class GatewaySource6(SeenAttack):
    name = "IPv6 source of the gateway"
    guard = Guard.SOURCE

    def frames(self, site: Site, token: bytes) -> Sequence[bytes]:
        addresses = (frames.link_local(site.gateway_mac), frames.link_local(site.victim_mac))
        return [frames.udp_over_ipv6(site.victim_mac, site.mac, addresses, token)]


class ForeignSource6(ForeignSource):
    name = "IPv6 source of nobody"

    def misfit(self, site: Site) -> str:
        return super().misfit(site) or _without_ipv6(site, site.far)

    def frames(self, site: Site, token: bytes) -> Sequence[bytes]:
        target = _far(site).address6
        assert target is not None
        addresses = (FOREIGN6.packed, target.ip.packed)
        return [frames.udp_over_ipv6(site.gateway_mac, site.mac, addresses, token)]


class NeighbourSource6(SeenAttack):
    name = "IPv6 source of a neighbour"
    guard = Guard.SOURCE

    def misfit(self, site: Site) -> str:
        return super().misfit(site) or _without_ipv6(site, site.victim)

    def frames(self, site: Site, token: bytes) -> Sequence[bytes]:
        assert site.third6 is not None
        addresses = (site.third6.packed, site.victim_address6.packed)
        return [frames.udp_over_ipv6(site.victim_mac, site.mac, addresses, token)]


class GatewayNd(GatewayArp):
    """The victim's table has the attacker's MAC for the gateway's global address."""

    name = "ND: I am the IPv6 gateway"

    def misfit(self, site: Site) -> str:
        return super().misfit(site) or _without_ipv6(site, site.victim)

    def entries(self, site: Site) -> Sequence[tuple[str, int, IPv4Address | IPv6Address]]:
        assert site.victim is not None
        return [(site.victim.node, site.victim.ifindex, site.gateway6)]

    def frames(self, site: Site, token: bytes) -> Sequence[bytes]:
        return [frames.neighbour_advertisement(site.mac, site.victim_mac, site.gateway6.packed, token)]


class NeighbourNd(NearAttack, GatewayNd):
    """The switch's table has the attacker's MAC for a neighbour's global address."""

    name = "ND: I am an IPv6 neighbour"

    def entries(self, site: Site) -> Sequence[tuple[str, int, IPv4Address | IPv6Address]]:
        return [(place, site.gateway_interface, site.victim_address6) for place in site.places]

    def frames(self, site: Site, token: bytes) -> Sequence[bytes]:
        return [frames.neighbour_advertisement(site.mac, site.gateway_mac, site.victim_address6.packed, token)]


class TakenAddress(NearAttack, NeighbourSource6):
    """Who is about to take the address, and is asked by somebody who says the same, lets it be (RFC 4862, 5.4.3).

    A VTEP floods no such question: it answers for the others.
    """

    name = "ND: the address is taken"
    guard = Guard.ARP

    def frames(self, site: Site, token: bytes) -> Sequence[bytes]:
        return [frames.duplicate_address(site.mac, site.victim_address6, token)]


class RogueDhcp(SeenAttack):
    name = "DHCP offer"
    guard = Guard.SERVERS

    def frames(self, site: Site, token: bytes) -> Sequence[bytes]:
        return [frames.dhcp_offer(site.mac, site.address, site.third, token)]


class RogueRouter(SeenAttack):
    name = "router advertisement"
    guard = Guard.SERVERS

    def frames(self, site: Site, token: bytes) -> Sequence[bytes]:
        return [frames.router_advertisement(site.mac, token)]


class VlanHopping(SeenAttack):
    name = "VLAN tag"
    guard = Guard.VLAN

    def frames(self, site: Site, token: bytes) -> Sequence[bytes]:
        addresses = (site.address, site.victim_address)
        return [frames.tagged(frames.udp(site.victim_mac, site.mac, addresses, _DISCARD, token), 10)]


class DoubleTag(SeenAttack):
    """A switch that takes the outer tag for its own forwards what is left into the VLAN of the inner one."""

    name = "two VLAN tags"
    guard = Guard.VLAN

    def frames(self, site: Site, token: bytes) -> Sequence[bytes]:
        addresses = (site.address, site.victim_address)
        inner = frames.tagged(frames.udp(site.victim_mac, site.mac, addresses, _DISCARD, token), 10)
        return [frames.tagged(inner, 1), frames.tagged(inner, 1, service=True)]


class SpanningTree(NearAttack, SeenAttack):
    name = "spanning tree root"
    guard = Guard.CONTROL

    def frames(self, site: Site, token: bytes) -> Sequence[bytes]:
        return [frames.bridge_frame(site.mac, token)]


class Storm(SeenAttack):
    name = "broadcast storm"
    guard = Guard.STORM
    alone = True

    def misfit(self, site: Site) -> str:
        if _burst(site) * 2 > _MOST_STORM_FRAMES:
            return f"{site.guards.storm_pps} packets a second are more than is sent"
        return super().misfit(site)

    def frames(self, site: Site, token: bytes) -> Sequence[bytes]:
        addresses = (site.address, IPv4Address("255.255.255.255"))
        frame = frames.udp(frames.BROADCAST, site.mac, addresses, _DISCARD, token)
        return [frame] * max(_STORM_FRAMES, 4 * _burst(site))

    def enough(self, site: Site, seconds: float) -> int:
        """More than the guard lets pass at each port; without it, half of what is sent, however long that takes."""
        if self.guard not in site.guards:
            return _STORM_FRAMES // 2
        return len(site.ports) * (_burst(site) + round(site.guards.storm_pps * seconds) + 2)

    def to_drop(self, site: Site, sent: int, seconds: float) -> int:
        return sent - self.enough(site, seconds)


class SwitchAttack(Attack):
    """An attack on a switch itself, by the host's own TCP or UDP; it has succeeded when the switch answers at all."""

    guard = Guard.CONTROL
    udp = False
    port: int

    @abstractmethod
    def target(self, site: Site) -> IPv4Address | IPv6Address:
        """The switch's address that is tried."""

    def frames(self, site: Site, token: bytes) -> Sequence[bytes]:
        return []


class BgpToGateway(SwitchAttack):
    name = "BGP to the gateway"
    port = BGP

    def target(self, site: Site) -> IPv4Address | IPv6Address:
        return site.gateway


class BgpToGateway6(BgpToGateway):
    name = "BGP to the IPv6 gateway"

    def misfit(self, site: Site) -> str:
        return _without_ipv6(site)

    def target(self, site: Site) -> IPv4Address | IPv6Address:
        return site.gateway6


class BgpToLoopback(BgpToGateway):
    name = "BGP to the loopback"

    def misfit(self, site: Site) -> str:
        return _NO_ROUTE if site.cut_off else ""

    def target(self, site: Site) -> IPv4Address:
        return site.loopback


class VtyToGateway(BgpToGateway):
    name = "vty of bgpd"
    port = VTY


class VxlanToLoopback(BgpToLoopback):
    name = "VXLAN to the loopback"
    port = VXLAN
    udp = True

    def misfit(self, site: Site) -> str:
        if site.tunnel is not None or site.nic.tenant:
            return "the switch is a VTEP, which says nothing to what it takes"
        return ""


class VxlanInjection(SeenAttack):
    """A frame in a tunnel that the attacker is no end of: Linux takes it from any source (RFC 7348, section 7)."""

    name = "VXLAN into a tenant"
    guard = Guard.CONTROL

    def misfit(self, site: Site) -> str:
        if site.tunnel is None:
            return "the switch is no VTEP with a NIC of another tenant"
        return _NO_ROUTE if site.cut_off else ""

    def where(self, site: Site) -> Place:
        assert site.tunnel is not None
        return site.tunnel.nic.node, site.tunnel.nic.name

    def frames(self, site: Site, token: bytes) -> Sequence[bytes]:
        if site.tunnel is None:
            return []
        inner = frames.udp(
            frames.BROADCAST, b"\x06" + site.mac[1:], (FOREIGN, IPv4Address("255.255.255.255")), _DISCARD, token
        )
        payload = frames.vxlan(site.tunnel.vni, inner)
        return [frames.udp(site.gateway_mac, site.mac, (site.address, site.tunnel.vtep), (VXLAN, VXLAN), payload)]


ATTACKS: tuple[Attack, ...] = (
    ForeignSource(),
    NeighbourSource(),
    GatewaySource6(),
    ForeignSource6(),
    NeighbourSource6(),
    StolenMac(),
    MacFlood(),
    GatewayArp(),
    NeighbourArp(),
    GatewayAdvertisement(),
    GatewayNd(),
    NeighbourNd(),
    TakenAddress(),
    RogueDhcp(),
    RogueRouter(),
    BgpToGateway(),
    BgpToGateway6(),
    BgpToLoopback(),
    VtyToGateway(),
    VxlanToLoopback(),
    VxlanInjection(),
    SpanningTree(),
    VlanHopping(),
    DoubleTag(),
    Storm(),
)


def _without_ipv6(site: Site, other: PortPlan | None = None) -> str:
    """Why what is said over IPv6 cannot be tried at a port; "" where it, and the other one, have some."""
    if site.third6 is None or (other is not None and other.address6 is None):
        return "the subnet has no IPv6"
    return ""


def _far(site: Site) -> PortPlan:
    assert site.far is not None
    return site.far


def _burst(site: Site) -> int:
    return max(1, site.guards.storm_pps // 2)
