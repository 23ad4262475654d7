"""The resolved lab: nodes, interfaces, links and routing intent, in the units of the real fabric.

Everything here is frozen and says *what* the lab is; numbers that only a plan decides (addresses,
AS numbers, MACs, scaled rates) are not here. Collections are tuples in a canonical order: the order
of a generator, then of the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Network

from testbed.model.container import NETNS, Container
from testbed.model.qos import QosPolicy
from testbed.units import Duration, Rate


class NodeKind(StrEnum):
    HOST = "host"
    SWITCH = "switch"


class Role(StrEnum):
    """A switch's tier in the Clos (RFC 7938 section 3)."""

    RAIL = "rail"
    SPINE = "spine"
    SUPER_SPINE = "super-spine"


class DelayBy(StrEnum):
    """This tells who realises a link's delay."""

    AUTO = "auto"
    KERNEL = "kernel"
    ENDPOINT = "endpoint"
    IGNORE = "ignore"


class Rdma(StrEnum):
    """This is what speaks RDMA on a host's NICs."""

    RXE = "rxe"
    """The kernel's soft RoCEv2 device (rdma_rxe), with real verbs."""


class Protocol(StrEnum):
    EBGP = "ebgp"
    IBGP = "ibgp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """One-way propagation delay of a link and how much it varies either way, in real-fabric time."""

    value: Duration
    by: DelayBy = DelayBy.AUTO
    jitter: Duration = field(default_factory=lambda: Duration(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """This tells where a generated node stands. All numbers start at 1; 0 means "not at this level".

    A place alone decides the node's addresses and AS number, so that adding nodes renumbers nobody.
    `plane` is 0 for single-port NICs, else 1..4 for the switch plane (names: a..d).
    """

    pod: int = 0
    segment: int = 0
    index: int
    plane: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A host or a switch. `place` is None for a hand-written node."""

    name: str
    kind: NodeKind
    role: Role | None = None
    place: Place | None = None
    asn: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    exec: tuple[tuple[str, ...], ...] = ()
    """Commands (argument lists) run in the node once routing has converged."""
    rdma: Rdma | None = None
    """What a host's GPU NICs have: an rxe device each, or none."""
    container: Container | None = None
    """None: a network namespace."""

    @property
    def runtime(self) -> str:
        """Return how the node is realised: "netns", or the runtime of its container."""
        return NETNS if self.container is None else self.container.runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """One end of a link."""

    node: str
    interface: str

    def __str__(self) -> str:
        return f"{self.node}:{self.interface}"


class LinkKind(StrEnum):
    ACCESS = "access"
    """A host NIC port on a rail of a rail switch: a bridge port of that rail."""
    FABRIC = "fabric"
    """Switch to switch: unnumbered, routed by BGP."""
    ROUTED = "routed"
    """A hand-written link with a host at an end: its own subnet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A point-to-point link. `a` is the lower end: the host of an access link, the lower tier of a fabric link.

    `rail` (1-based) and `nic` (1-based number of the NIC port's owner GPU) are set on access links.
    `rate` is per direction, in real-fabric bit/s.
    """

    a: End
    b: End
    kind: LinkKind
    rate: Rate
    mtu_bytes: int
    delay: Delay | None = None
    loss: float = 0.0
    """The share of packets (0 to 1) that the wire loses, each way."""
    rail: int = 0
    prefix: IPv4Network | None = None
    """The subnet of a routed link where the file names one; None: the plan chooses."""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RailSubnet:
    """One rail on one rail switch: an IPv4 subnet whose gateway is the switch.

    `slot` is the rail's position on its switch (0-based) out of `slots`; the switch's aggregate is
    split evenly, or in subnets of `prefix_length` where the design fixes it.
    """

    switch: str
    rail: int
    slot: int
    prefix_length: int
    aggregate_length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Bfd:
    """BFD on fabric links (RFC 5880), in lab time (not scaled)."""

    interval: Duration
    multiplier: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """Routing intent. `bfd` is the resolved choice (None: off), `bfd_auto` whether "auto" made it."""

    protocol: Protocol = Protocol.EBGP
    unnumbered: bool = True
    ecmp: int = 64
    bfd: Bfd | None = None
    bfd_auto: bool = True
    aggregate: bool = False
    """Rail switches announce one aggregate instead of their rails' subnets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """The time scale. `time` None means "auto": resolved against the machine at deploy time."""

    time: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """A whole lab, resolved and validated, independent of any machine.

    `isolated_rails`: rails are meant not to reach each other (design rail-only).
    `design` is the generator's name or "" for a hand-written graph.
    """

    name: str
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    rail_subnets: tuple[RailSubnet, ...] = ()
    routing: Routing = field(default_factory=Routing)
    scale: Scale = field(default_factory=Scale)
    design: str = ""
    isolated_rails: bool = False
    gpus_per_nic: int = 1
    switch_radix: int | None = None
    qos: QosPolicy | None = None
    """None: plain ports, one queue each, and the kernel's ECMP hash."""
    source: str = ""
    """Path of the file this came from, for messages only."""

    def node(self, name: str) -> Node:
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)

    @property
    def hosts(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.kind is NodeKind.HOST)

    @property
    def switches(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.kind is NodeKind.SWITCH)
