"""The planned link groups as data: the hosts' ends, and those of the leaves."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPlan:
    """A port of a link group, by its node's name for it."""

    name: str
    ifindex: int
    group: str
    """The host whose group it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateBond:
    """A bond of the kernel that speaks LACP (IEEE 802.3ad, PDUs each second): the NIC of a host's link group."""

    node: str
    name: str
    ifindex: int
    mac: str
    mtu_bytes: int

    def __str__(self) -> str:
        return f"create bond {self.node}:{self.name} mtu {self.mtu_bytes}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregatePlan:
    """A host's link group. `inner_ifindex` is the interface that what the NIC sends comes out of, and 0 where the NIC
    is a bond of the kernel."""

    node: str
    nic: str
    ifindex: int
    inner_ifindex: int
    mac: str
    members: tuple[MemberPlan, ...]

    @property
    def is_bond(self) -> bool:
        """Tell whether the kernel speaks LACP and chooses members, and no process of ours."""
        return not self.inner_ifindex


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedBridgePlan:
    """A bridge that both leaves of a pair have: that of the pair's own subnet, or of an L2VNI of a tenant.

    `node` is the one whose namespace it lies in, a leaf or a VRF, and `peer_ifindex` its port towards the peer. For an
    L2VNI that port is a veth, with `tail_ifindex` at its other end, `vlan` is the tag that its frames have on the peer
    link, and `entries` is how many prefixes and flood lists EVPN brings its VRF. All are 0 for the pair's own subnet,
    whose port is the peer link.
    """

    node: str
    ifindex: int
    peer_ifindex: int
    members: tuple[MemberPlan, ...]
    vlan: int = 0
    tail_ifindex: int = 0
    vxlan_ifindex: int = 0
    entries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedLeafPlan:
    """A leaf of a pair. `system` is the pair's in LACP; groups have the number of their host as key.

    `vtep` is the address that both are one VTEP by; None without an overlay.
    """

    node: str
    peer: str
    primary: bool
    system: str
    peer_interface: str
    peer_ifindex: int
    bridges: tuple[PairedBridgePlan, ...]
    vtep: IPv4Address | None = None

    @property
    def members(self) -> tuple[MemberPlan, ...]:
        """Its ports that are members of link groups, in their order on the leaf."""
        found = (member for bridge in self.bridges for member in bridge.members)
        return tuple(sorted(found, key=lambda member: member.ifindex))


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkGroupPlan:
    """All link groups of a lab: the hosts' ends, and those of the leaves."""

    hosts: tuple[AggregatePlan, ...]
    leaves: tuple[PairedLeafPlan, ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that have link groups, hosts first."""
        return tuple(dict.fromkeys((*(item.node for item in self.hosts), *(item.node for item in self.leaves))))

    @property
    def served(self) -> tuple[str, ...]:
        """The nodes whose link groups are served by a process of ours, hosts first."""
        hosts = (item.node for item in self.hosts if not item.is_bond)
        return tuple(dict.fromkeys((*hosts, *(item.node for item in self.leaves))))

    @property
    def programmed(self) -> frozenset[str]:
        """The ends of links ("node:interface") that have programs of a link group."""
        hosts = {f"{item.node}:{member.name}" for item in self.hosts if not item.is_bond for member in item.members}
        leaves = {f"{item.node}:{member.name}" for item in self.leaves for member in item.members}
        return frozenset(hosts | leaves | {f"{item.node}:{item.peer_interface}" for item in self.leaves if item.vtep})

    @property
    def members(self) -> int:
        """Return the number of ports of nodes that are members of link groups."""
        return sum(len(item.members) for item in self.hosts) + sum(len(item.members) for item in self.leaves)
