"""The planned overlay as data: the VRFs of each switch, and what EVPN must have brought into each when converged."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testbed.lab.core.model import Service

BEYOND = IPv4Address("169.254.0.1")
"""What zebra gives the kernel as the next hop in place of a link-local one of IPv6."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VniPlan:
    """A VNI on one switch: a bridge with a VXLAN device and the ports of the NICs of its subnet.

    `gateway` is the anycast gateway of an L2VNI, and `gateway6` that of IPv6 where its subnet has some; None for the
    L3VNI, whose bridge has the router's MAC instead. Its routes, of types 2 and 3 for an L2VNI and 5 for the L3VNI,
    have `rd` and the route targets `exports`; those that have one of `imports` are taken up.
    """

    vni: int
    bridge: str
    bridge_ifindex: int
    vxlan: str
    vxlan_ifindex: int
    mac: str
    mtu_bytes: int
    rd: str
    imports: tuple[str, ...]
    exports: tuple[str, ...]
    subnet: str = ""
    gateway: IPv4Interface | None = None
    gateway6: IPv6Interface | None = None
    ports: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalPeer:
    """A router outside that a VRF has an eBGP session with, unnumbered, on its port `interface`.

    `accepts` are the prefixes that are taken from it, `announces` those that it is told; no others.
    """

    interface: str
    remote: str
    remote_interface: str
    asn: int
    accepts: tuple[IPv4Network, ...]
    announces: tuple[IPv4Network, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VrfPlan:
    """A tenant's VRF on a switch. Its name there is the tenant's, and `node` tells it from all others of the lab.

    `place` is the node whose namespace its interfaces are in: `node`, which is a namespace of its own, or the switch,
    where the VRF is a device with the index `ifindex`. Its routes are in `table`. `ipv6`: some subnet of
    its tenant has IPv6.
    """

    node: str
    switch: str
    tenant: str
    router_id: IPv4Address
    vtep: IPv4Address
    l3: VniPlan
    l2: tuple[VniPlan, ...]
    place: str
    table: int
    ifindex: int = 0
    ipv6: bool = False
    external: ExternalPeer | None = None
    """None on leaves that are not the tenant's border."""

    @property
    def is_device(self) -> bool:
        """Tell whether it is a VRF device of the kernel, and no namespace."""
        return self.place == self.switch


@dataclass(frozen=True, slots=True, kw_only=True)
class EvpnPlan:
    """What a switch is told of the overlay beside its routing. Spines have no VRFs, and hand the routes on.

    `foreign` has, by the interface of a neighbour, the route targets that none of its routes may have.
    """

    vrfs: tuple[VrfPlan, ...] = ()
    foreign: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def vnis(self) -> tuple[VniPlan, ...]:
        """The L2VNIs of all its VRFs."""
        return tuple(vni for vrf in self.vrfs for vni in vrf.l2)


class EntryKind(StrEnum):
    """Which table of the kernel an expected entry is in, and what brings it."""

    HEARD = "heard"
    """A neighbour that is a local NIC: the switch has heard it, and announces its MAC and address (type 2)."""
    FLOOD = "flood"
    """A copy of each broadcast goes to another VTEP: an FDB entry of MAC 0, from a type-3 route."""
    MAC = "mac"
    """An FDB entry of a VXLAN device: a NIC behind another VTEP (type 2), or that VTEP's router MAC."""
    NEIGHBOUR = "neighbour"
    """A neighbour behind another VTEP: a NIC (type 2), or that VTEP's router."""
    ROUTE = "route"
    """A route over the L3VNI: of a prefix (type 5), or of a NIC's address (type 2 with two labels). On the border: to
    the router outside."""


ANY_MAC = "00:00:00:00:00:00"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvpnRoute:
    """A BGP EVPN route: its route distinguisher, and the rest of its key as FRR writes it, type first."""

    rd: str
    prefix: str

    def __str__(self) -> str:
        return f"type-{self.prefix[1]} route {self.prefix} of {self.rd}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedEntry:
    """One entry that a VRF of a converged overlay has in the kernel.

    `ifindex` is that of the bridge or the VXLAN device. `vteps`: any of them will do, at least one; none for what is
    local. `of` names what is behind it, such as "p1-s1-h2:rail1", and `switch` the one that announces it (itself, for
    HEARD). `routes` are those that bring it, one of each VTEP; none for a router's MAC, which comes with any route.
    """

    kind: EntryKind
    vni: int
    ifindex: int
    of: str
    switch: str
    mac: str = ""
    address: IPv4Address | IPv6Address | None = None
    prefix: IPv4Network | IPv6Network | None = None
    vteps: tuple[IPv4Address, ...] = ()
    routes: tuple[EvpnRoute, ...] = ()

    @property
    def ipv6(self) -> bool:
        """Tell whether it is of an address or a prefix of IPv6; a MAC is of none."""
        return isinstance(self.address, IPv6Address) or isinstance(self.prefix, IPv6Network)

    def __str__(self) -> str:
        vteps = " or ".join(map(str, self.vteps))
        match self.kind:
            case EntryKind.HEARD | EntryKind.NEIGHBOUR:
                return f"no neighbour {_text(self.address)} ({self.of}) in VNI {self.vni}"
            case EntryKind.FLOOD:
                return f"no flood entry to {vteps} ({self.switch}) in VNI {self.vni}"
            case EntryKind.MAC:
                return f"no FDB entry of {self.mac} ({self.of}) to {vteps} in VNI {self.vni}"
            case EntryKind.ROUTE:
                return f"no route to {self.prefix} ({self.of}) via {vteps} in VNI {self.vni}"


def _text(address: IPv4Address | IPv6Address | None) -> str:
    """An address as `ip` writes it; Python before 3.13 has hexadecimal digits for one that maps another of IPv4."""
    vtep = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(address) if vtep is None else f"::ffff:{vtep}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeardNic:
    """A NIC of a tenant that asks for its gateway once, so that its switch hears it."""

    node: str
    name: str
    ifindex: int
    gateway: IPv4Address | IPv6Address
    vrf: str
    address: IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayPlan:
    """The overlay of a lab. `expected` maps each VRF (by its `node`) to its entries when converged.

    `passes` has what one tenant may ask of another, by their names: no services for all, no entry for nothing.
    """

    vrfs: tuple[VrfPlan, ...]
    nics: tuple[HeardNic, ...]
    expected: dict[str, tuple[ExpectedEntry, ...]]
    passes: dict[tuple[str, str], tuple[Service, ...]] = field(default_factory=dict)

    def may_ask(self, tenant: str, other: str, service: Service) -> bool:
        """Tell whether a tenant's packets for a service reach another tenant, or itself."""
        if tenant == other:
            return True
        services = self.passes.get((tenant, other))
        return services is not None and (not services or service in services)

    def reached(self) -> dict[tuple[str, str], set[str]]:
        """The switches that a tenant's VRF on a switch is to reach, itself among them, by switch and tenant."""
        return {
            (vrf.switch, vrf.tenant): {vrf.switch, *(entry.switch for entry in self.expected[vrf.node])}
            for vrf in self.vrfs
        }

    def on(self, switches: Collection[str]) -> OverlayPlan:
        """The overlay as these switches have it."""
        vrfs = tuple(vrf for vrf in self.vrfs if vrf.switch in switches)
        nodes = {vrf.node for vrf in vrfs}
        return replace(
            self,
            vrfs=vrfs,
            nics=tuple(nic for nic in self.nics if nic.vrf in nodes),
            expected={node: entries for node, entries in self.expected.items() if node in nodes},
        )
