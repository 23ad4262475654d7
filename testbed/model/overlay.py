"""The overlay of a network: tenants, each with subnets that VXLAN stretches over the switches its NICs are on.

The control plane is BGP EVPN (RFC 7432, RFC 8365), with symmetric integrated routing and bridging (RFC 9135): a tenant
is a VRF with a VNI of its own for what is routed (L3VNI), and each of its subnets is a bridge with one for what is
bridged (L2VNI). NICs that no tenant names are no part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A tenant. `vni` is its L3VNI. `route_target` is the one (such as "65000:50001") its VRF exports and imports."""

    name: str
    vni: int
    route_target: str
    subnets: tuple[TenantSubnet, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlay:
    """EVPN overlays of networks, with their tenants in the order of the file.

    `mtu_bytes` is the MTU of tenants' NICs and bridges in each network that has an overlay, by the network's name.
    """

    mtu_bytes: Mapping[str, int]
    tenants: tuple[Tenant, ...] = ()
