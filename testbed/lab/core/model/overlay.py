"""The overlay of a network: tenants, each with subnets that VXLAN stretches over the switches its NICs are on.

The control plane is BGP EVPN (RFC 7432, RFC 8365), with symmetric integrated routing and bridging (RFC 9135): a tenant
is a VRF with a VNI of its own for what is routed (L3VNI), and each of its subnets is a bridge with one for what is
bridged (L2VNI). NICs that no tenant names are no part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Interface, IPv6Network

from testbed.base.units import Rate
from testbed.lab.core.model.end import End

ROUTE_TARGET_AS = 65000
"""The first half of the route targets that follow from VNIs, as in "65000:50001"."""
VXLAN_BYTES = 50
"""The bytes that VXLAN adds to an IP packet of a tenant: Ethernet 14, VXLAN 8, UDP 8, IPv4 20 (RFC 7348 section 5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSubnet:
    """A subnet of a tenant. Its first address is the gateway's, the same on every switch (anycast).

    The NICs have the addresses that follow, in their order here. With `prefix6` it is dual-stack, by the same rule.
    """

    name: str
    network: str
    """The network that all of them are in."""
    prefix: IPv4Network
    vni: int
    nics: tuple[End, ...]
    prefix6: IPv6Network | None = None
    """None: its packets are IPv4 alone."""
    numbered: bool = False
    """Its VNI follows from its place in the file, which names none."""

    @property
    def gateway(self) -> IPv4Interface:
        return IPv4Interface((int(self.prefix.network_address) + 1, self.prefix.prefixlen))

    @property
    def addresses(self) -> tuple[IPv4Address, ...]:
        """The addresses of the NICs, in their order."""
        return tuple(self.prefix.network_address + 2 + index for index in range(len(self.nics)))

    @property
    def gateway6(self) -> IPv6Interface | None:
        return None if self.prefix6 is None else _nth_of(self.prefix6, 1)

    @property
    def addresses6(self) -> tuple[IPv6Interface, ...]:
        """The IPv6 addresses of the NICs, in their order; none without `prefix6`."""
        if self.prefix6 is None:
            return ()
        return tuple(_nth_of(self.prefix6, 2 + index) for index in range(len(self.nics)))


def _nth_of(prefix: IPv6Network, number: int) -> IPv6Interface:
    return IPv6Interface((int(prefix.network_address) + number, prefix.prefixlen))


class ServiceProtocol(StrEnum):
    """The protocol that a service is asked by."""

    TCP = "tcp"
    UDP = "udp"
    ICMP = "icmp"
    """Echo: who may ask gets the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service that one tenant may ask another one for: a port of TCP or UDP, or an ICMP echo (port 0)."""

    protocol: ServiceProtocol
    port: int = 0

    def __str__(self) -> str:
        return f"{self.protocol}/{self.port}" if self.port else self.protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """That a tenant reaches another one. No `services`: everything passes, in both directions.

    With services only those are asked for, by the tenant that has this, and their answers come back.
    """

    tenant: str
    services: tuple[Service, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class External:
    """A router outside of the fabric that a tenant has a way to, by eBGP in its VRF on one leaf.

    `router` and `port` are the ends of the link between them. `prefixes` are all that it may announce.
    """

    router: End
    port: End
    network: str
    """The network of the leaf."""
    asn: int
    prefixes: tuple[IPv4Network, ...]

    @property
    def addresses(self) -> tuple[IPv4Interface, ...]:
        """The addresses of the router: of each prefix the first that is a host's (RFC 3021: all of a /31 are)."""
        return tuple(
            IPv4Interface((int(prefix.network_address) + (prefix.prefixlen < 31), prefix.prefixlen))
            for prefix in self.prefixes
        )


def external_port(leaf: str, vni: int) -> End:
    """Return the port of a leaf that the router outside of the tenant with this L3VNI is on."""
    return End(node=leaf, interface=f"ext{vni}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A tenant. `vni` is its L3VNI. `imports` and `exports` are the route targets (such as "65000:50001") of its VRFs.

    `talks_to` has the other tenants that it reaches, each once. `rds` has the route distinguishers of its VRFs that are
    given, by switch.

    `cap` is what each of its NICs may send and receive; None: its link's rate. `traffic_class` is the class of QoS that
    VTEPs put its packets into ("": the one that a packet's own DSCP is of).
    """

    name: str
    vni: int
    imports: tuple[str, ...]
    exports: tuple[str, ...]
    subnets: tuple[TenantSubnet, ...]
    talks_to: tuple[Talk, ...] = ()
    rds: Mapping[str, str] = field(default_factory=dict, hash=False)
    external: External | None = None
    """None: it reaches nothing outside."""
    cap: Rate | None = None
    traffic_class: str = ""
    network: str = ""
    """The network that it is the whole of, carried over another one's switches; "" for one of `tenants:`."""
    numbered: bool = False
    """Its VNI follows from its place in the file, which names none."""

    def services_of(self, tenant: str) -> tuple[Service, ...] | None:
        """Return the services that it may ask another tenant for: () for everything, None for nothing."""
        return next((talk.services for talk in self.talks_to if talk.tenant == tenant), None)


class VrfBy(StrEnum):
    """The ways in which a switch has a tenant's VRF."""

    AUTO = "auto"
    """A device where the kernel has them, else a namespace."""
    DEVICE = "device"
    """The kernel's VRF device, with a table of its own, in the switch's namespace."""
    NAMESPACE = "namespace"
    """A network namespace beside the switch's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """EVPN overlays of networks, with their tenants in the order of the file, and then the networks that are carried.

    `mtu_bytes` is the MTU of tenants' NICs and bridges in each network that has an overlay or is carried over one, by
    the network's name.
    In those of `rt_filter` spines take no route of a leaf with the route target of a tenant that has no VRF there.
    `vrf_by` has the networks in which it is not left to the machine (AUTO) what VRFs are.
    """

    mtu_bytes: Mapping[str, int]
    tenants: tuple[Tenant, ...] = ()
    rt_filter: frozenset[str] = frozenset()
    vrf_by: Mapping[str, VrfBy] = field(default_factory=dict, hash=False)
