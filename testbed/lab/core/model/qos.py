"""The QoS of switch ports and NICs as a user means it: classes, buffers, load balancing.

Everything is in the units of the real fabric; thresholds are bytes or multiples of the bandwidth-delay product.
The plan resolves them to bytes. Traffic classes are numbered by their priority (IEEE 802.1Q PCP, 0..7), which is
also the priority of their pause frames (IEEE 802.1Q clause 36). What a class is, and the rules of its queue, is in
`testbed.base.datapath.traffic_class`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from testbed.base.datapath.abi import FIVE_TUPLE, AdaptPer, BalancingMode, HashField
from testbed.base.datapath.traffic_class import TrafficClass
from testbed.base.keys import key
from testbed.base.units import BYTES, Duration

CODE_POINTS = 64
"""DSCPs (RFC 2474 section 3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """A switch's shared packet memory: a lossy queue may take `alpha` times what is free (dynamic threshold)."""

    shared_bytes: int = key(
        "Gives the packet memory that all ports share, such as 16MB.", 16_000_000, name="shared", measure=BYTES
    )
    alpha: float = key("Lets a lossy queue hold alpha times what is free.", 1.0, low=1 / 256, high=128)


class HashEngine(StrEnum):
    """Who computes the ECMP hash: our ingress program, or the kernel (`fib_multipath_hash_policy` 3)."""

    EBPF = "ebpf"
    KERNEL = "kernel"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBalancing:
    """The way in which a switch chooses between equal paths."""

    mode: BalancingMode = key(
        "Chooses a path by 5-tuple (flow), anew after a gap (flowlet), for each packet (spray), by the least bytes"
        " queued (adaptive), or by the destination alone (static).",
        BalancingMode.FLOW,
        noun="load balancing mode",
    )
    per: AdaptPer = key(
        "Lets mode: adaptive look at the queues for each packet (packet), or after a gap alone (flowlet).",
        AdaptPer.PACKET,
    )
    hysteresis: int | None = key(
        "Keeps a flow of mode: adaptive on its path until another has so many bytes fewer queued, such as 30KB.",
        None,
        measure=BYTES,
    )
    gap: Duration = key("Gives the flowlet gap in real time, such as 50us.", Duration(50_000), of_fabric=True)
    hash: HashEngine = key(
        "Says who hashes, ebpf or kernel (fib_multipath_hash_policy 3) as a cross-check; or which fields of a packet,"
        " such as {fields: [source, destination, roce_qp]}.",
        HashEngine.EBPF,
    )
    hash_fields: tuple[HashField, ...] = FIVE_TUPLE
    """The fields of a packet that the hash heeds, in the order of `HashField`; the key `hash` says that, too."""
    polarised: bool = key("Gives every switch the same hash seed, for teaching.", default=False)
    seed: int | None = key(
        "Gives every run the hash seeds that the run with this seed has; by default each run has its own.",
        None,
        high=2**31 - 1,
    )
    """None: each run has its own (`lab.core.plan.stable.seed_of_run`)."""

    @property
    def asks_kernel(self) -> bool:
        """Tell whether a switch has to know all paths of a packet."""
        return self.mode in (BalancingMode.ADAPTIVE, BalancingMode.STATIC)

    @property
    def has_flowlets(self) -> bool:
        """Tell whether a flow may change its path after a gap alone."""
        adapts = self.mode is BalancingMode.ADAPTIVE and self.per is AdaptPer.FLOWLET
        return adapts or self.mode is BalancingMode.FLOWLET


@dataclass(frozen=True, slots=True, kw_only=True)
class Watchdog:
    """PFC watchdog, in lab time: a queue paused for `detect` is freed, and guarded again after `restore` unpaused."""

    detect: Duration = key("Frees a queue that is paused for so long.", Duration(200_000_000))
    restore: Duration = key("Lets a queue that is not paused for so long obey pauses again.", Duration(200_000_000))


@dataclass(frozen=True, slots=True, kw_only=True)
class QosProfile:
    """All QoS settings of a port. `classes` in priority order, exactly one of them `default`; `preset` for display."""

    preset: str
    classes: tuple[TrafficClass, ...]
    buffer: Buffer = key("Describes the packet memory of a switch.", Buffer(), of_switch=True)
    load_balancing: LoadBalancing = key(
        "Says how a switch chooses between equal paths.", LoadBalancing(), of_switch=True
    )
    trimming: bool = key(
        "Says whether packets of a full queue are cut instead of dropped.", default=False, of_switch=True
    )
    marks_account: bool = key(
        "Says whether ECN marks are counted by queue depth, which costs less than 0.1 us a packet.", default=True
    )
    """Packets that may be marked are counted by the depth of their queue, for the marking curves of reports."""
    watchdog: Watchdog | None = key(
        "Describes the PFC watchdog, or is false.",
        None,
        of_switch=True,
        word=False,
        hint="write {detect: 200ms, restore: 200ms}",
    )
    base_rtt: Duration | None = key(
        "Gives the real base RTT that bdp is made of; by default it is modelled from the longest path.",
        None,
        of_fabric=True,
    )

    def class_of(self, dscp: int) -> TrafficClass:
        """The class that has a DSCP: the one that names it, or the default."""
        return next((item for item in self.classes if dscp in item.dscp), self._default)

    def dscp_of(self, name: str) -> int | None:
        """The first DSCP of a class; None for one that is not there, or that no DSCP is of."""
        written = next((item.dscp for item in self.classes if item.name == name), ())
        return next((dscp for dscp in written or range(CODE_POINTS) if self.class_of(dscp).name == name), None)

    @property
    def _default(self) -> TrafficClass:
        return next(item for item in self.classes if item.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class QosPolicy:
    """Which profile each port has. Index 0 of `profiles` is the fabric's; others are overrides.

    A port's profile is `of_port["node:interface"]`, else `of_node[node]`, else 0. Buffer, load balancing and
    watchdog belong to the node.
    """

    profiles: tuple[QosProfile, ...]
    of_node: Mapping[str, int] = field(default_factory=dict)
    of_port: Mapping[str, int] = field(default_factory=dict)

    def of(self, node: str, interface: str = "") -> QosProfile:
        return self.profiles[self.index_of(node, interface)]

    def index_of(self, node: str, interface: str) -> int:
        """Return the index of a port's profile."""
        of_node = self.of_node.get(node, 0)
        return self.of_port.get(f"{node}:{interface}", of_node) if self.of_port else of_node
