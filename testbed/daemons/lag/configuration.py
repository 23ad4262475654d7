"""The configuration that the link aggregation of nodes is started from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

PROCESS_NAME = "testbed-lag"
"""The name of the process of a node's link groups (comm in proc(5))."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPort:
    """A port of a link group. `number` is its port number in LACP, unique in its system."""

    name: str
    ifindex: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostAggregate:
    """The link group of a host's NIC. What is sent through the NIC comes out of the interface `inner`.

    The member for a packet is chosen by the hash of its flow, which begins with `seed`.
    """

    nic: str
    inner: int
    system: str
    key: int
    seed: int
    members: tuple[MemberPort, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostGroups:
    """The link groups of all NICs of a host, which one process serves."""

    namespace: str
    node: str
    aggregates: tuple[HostAggregate, ...]

    def seeded(self, seed: int) -> HostGroups:
        """Return the same with another seed for the hashes of flows."""
        return replace(self, aggregates=tuple(replace(one, seed=seed) for one in self.aggregates))


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafGroup:
    """A host's link group at a leaf, by the host's name."""

    name: str
    key: int
    member: MemberPort


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedBridge:
    """A bridge that a leaf and its peer have alike, in the namespace of the leaf or of a VRF.

    `peer_port` is its port to the peer. `vlan` is its tag on the peer link, and `tail` the other end of its port there;
    both are 0 for the one that the peer link itself is a port of. `vxlan` is the device of its VNI, and `entries` how
    many prefixes and flood lists EVPN brings its VRF.
    """

    namespace: str
    ifindex: int
    peer_port: int
    groups: tuple[LeafGroup, ...]
    vlan: int = 0
    tail: int = 0
    vxlan: int = 0
    entries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedLeaf:
    """A leaf of a pair that is one LACP partner. `loopback` and `peer_loopback` are where they ask over the fabric.

    `routes` is how many routes BGP brings it when all of the network is there. `vtep` is the address that both have as
    one VTEP, "" without an overlay.
    """

    namespace: str
    node: str
    peer: str
    primary: bool
    system: str
    secret: str
    peer_interface: str
    peer_ifindex: int
    loopback: str
    peer_loopback: str
    bridges: tuple[PairedBridge, ...]
    uplinks: tuple[int, ...]
    routes: int
    vtep: str = ""

    @property
    def pair(self) -> PairedLeaf:
        """All of it that its process is made of: without its bridges, and what it waits for of the fabric."""
        return replace(self, bridges=(), uplinks=(), routes=0)

    @property
    def groups(self) -> tuple[LeafGroup, ...]:
        """All of its groups, whatever bridge they are on."""
        found = (group for bridge in self.bridges for group in bridge.groups)
        return tuple(sorted(found, key=lambda group: group.key))


NodeConfiguration = HostGroups | PairedLeaf


@dataclass(frozen=True, slots=True, kw_only=True)
class LagConfiguration:
    """The nodes of a lab that have link groups. `directory` is where each keeps its status and its log.

    Root alone may read its file: it has the secrets of the pairs.
    """

    directory: Path
    leaves: tuple[PairedLeaf, ...]
    hosts: tuple[HostGroups, ...]

    @property
    def nodes(self) -> tuple[NodeConfiguration, ...]:
        """All of them, leaves first."""
        return (*self.leaves, *self.hosts)
