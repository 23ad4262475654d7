"""The entries that EVPN must have brought into the kernel's tables of a VRF in a converged overlay, as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

BEYOND = IPv4Address("169.254.0.1")
"""The next hop that zebra gives the kernel in place of a link-local one of IPv6."""


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
