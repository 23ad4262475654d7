"""The overlay of a network: tenants, each with subnets that VXLAN stretches over the switches its NICs are on.

The control plane is BGP EVPN (RFC 7432, RFC 8365), with symmetric integrated routing and bridging (RFC 9135): a tenant
is a VRF with a VNI of its own for what is routed (L3VNI), and each of its subnets is a bridge with one for what is
bridged (L2VNI). NICs that no tenant names are no part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from testbed.model.end import End

VXLAN_BYTES = 50
"""What VXLAN adds to an IP packet of a tenant: Ethernet 14, VXLAN 8, UDP 8, IPv4 20 (RFC 7348 section 5)."""
VXLAN_PORT = 4789
"""The UDP port that VTEPs listen at (RFC 7348 section 5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantSubnet:
    """A subnet of a tenant. Its first address is the gateway's, the same on every switch (anycast).

    The NICs have the addresses that follow, in their order here.
    """

    name: str
    network: str
    """The network that all of them are in."""
    prefix: IPv4Network
    vni: int
    nics: tuple[End, ...]

    @property
    def gateway(self) -> IPv4Interface:
        return IPv4Interface((int(self.prefix.network_address) + 1, self.prefix.prefixlen))

    @property
    def addresses(self) -> tuple[IPv4Address, ...]:
        """Those of the NICs, in their order."""
        return tuple(self.prefix.network_address + 2 + index for index in range(len(self.nics)))


class ServiceProtocol(StrEnum):
    """What a service is spoken by."""

    TCP = "tcp"
    UDP = "udp"
    ICMP = "icmp"
    """Echo: who may ask gets the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What one tenant may ask of another: a port of TCP or UDP, or an ICMP echo (port 0)."""

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
class Tenant:
    """A tenant. `vni` is its L3VNI. `route_target` is the one (such as "65000:50001") its VRF exports and imports.

    `talks_to` has the other tenants that it reaches, each once.
    """

    name: str
    vni: int
    route_target: str
    subnets: tuple[TenantSubnet, ...]
    talks_to: tuple[Talk, ...] = ()

    def services_of(self, tenant: str) -> tuple[Service, ...] | None:
        """What it may ask of another tenant: all (no services) or some of it; None for nothing."""
        return next((talk.services for talk in self.talks_to if talk.tenant == tenant), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """EVPN overlays of networks, with their tenants in the order of the file.

    `mtu_bytes` is the MTU of tenants' NICs and bridges in each network that has an overlay, by the network's name.
    In those of `rt_filter` spines take no route of a leaf with the route target of a tenant that has no VRF there.
    """

    mtu_bytes: Mapping[str, int]
    tenants: tuple[Tenant, ...] = ()
    rt_filter: frozenset[str] = frozenset()
