"""The planned overlay as data: the VRFs of each switch, and what EVPN must have brought into each when converged."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface

from testbed.daemons.keeper.entries import ExpectedEntry
from testbed.lab.core.model import Service


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
    """The overlay in the configuration of a switch, beside its routing. Spines have no VRFs, and hand the routes on.

    `foreign` has, by the interface of a neighbour, the route targets that none of its routes may have. `by_namespace`:
    its VRFs are network namespaces, or would be if it had some.
    """

    vrfs: tuple[VrfPlan, ...] = ()
    foreign: tuple[tuple[str, tuple[str, ...]], ...] = ()
    by_namespace: bool = False

    @property
    def vnis(self) -> tuple[VniPlan, ...]:
        """The L2VNIs of all its VRFs."""
        return tuple(vni for vrf in self.vrfs for vni in vrf.l2)


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
