"""The QoS of switch ports and NICs as a user means it: classes, ECN curves, PFC, buffers, load balancing.

Everything is in the units of the real fabric; thresholds are bytes or multiples of the bandwidth-delay product.
The plan resolves them to bytes. Traffic classes are numbered by their priority (IEEE 802.1Q PCP, 0..7), which is
also the priority of their pause frames (IEEE 802.1Q clause 36).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from testbed.base.datapath.abi import BalancingMode
from testbed.base.datapath.markers import MarkAt, MarkBy
from testbed.base.units import ByteCount, Duration

CLASSES = 8
"""Priorities of IEEE 802.1Q."""
CODE_POINTS = 64
"""DSCPs (RFC 2474 section 3)."""


class DepthUnit(StrEnum):
    BYTES = "bytes"
    BDP = "bdp"


@dataclass(frozen=True, slots=True)
class Depth:
    """A queue depth: bytes, or a multiple of line rate x base RTT."""

    value: float
    unit: DepthUnit = DepthUnit.BYTES

    def __str__(self) -> str:
        return f"{self.value:g}bdp" if self.unit is DepthUnit.BDP else str(ByteCount(round(self.value)))


class NonEct(StrEnum):
    """This is what WRED does to a packet it would mark but may not (RFC 3168: no ECT)."""

    KEEP = "keep"
    DROP = "drop"


@dataclass(frozen=True, slots=True, kw_only=True)
class EcnCurve:
    """WRED on the instantaneous queue: 0 up to `kmin`, linear to `pmax` at `kmax`, 1 above."""

    kmin: Depth
    kmax: Depth
    pmax: float = 1.0
    non_ect: NonEct = NonEct.KEEP
    mark_at: MarkAt = MarkAt.ENQUEUE
    by: MarkBy = MarkBy.EBPF


@dataclass(frozen=True, slots=True, kw_only=True)
class PfcThresholds:
    """The thresholds of an ingress port and priority.

    None is "auto": the plan chooses. `headroom` None: from the reaction time.
    """

    xoff: Depth | None = None
    xon: Depth | None = None
    headroom: Depth | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficClass:
    """One of up to eight classes. Strict classes go first, by priority; the others share by `weight` (percent)."""

    name: str
    priority: int
    dscp: tuple[int, ...] = ()
    default: bool = False
    strict: bool = False
    weight: int = 0
    lossless: bool = False
    limit: Depth | None = None
    """Tail drop above this; None: the dynamic threshold of the shared buffer alone."""
    ecn: EcnCurve | None = None
    pfc: PfcThresholds | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """A switch's shared packet memory: a lossy queue may take `alpha` times what is free (dynamic threshold)."""

    shared_bytes: int = 16_000_000
    alpha: float = 1.0


class HashEngine(StrEnum):
    """This tells who computes the ECMP hash: our ingress program, or the kernel (`fib_multipath_hash_policy` 3)."""

    EBPF = "ebpf"
    KERNEL = "kernel"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadBalancing:
    """`gap` is the flowlet gap in real time. `polarised`: the same hash seed in every switch, for teaching.

    `seed` is the run whose hash seeds every run has; None: each has its own (`lab.core.plan.stable.seed_of_run`).
    """

    mode: BalancingMode = BalancingMode.FLOW
    gap: Duration = field(default_factory=lambda: Duration(50_000))
    hash: HashEngine = HashEngine.EBPF
    polarised: bool = False
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Watchdog:
    """PFC watchdog, in lab time: a queue paused for `detect` is freed, and guarded again after `restore` unpaused."""

    detect: Duration = field(default_factory=lambda: Duration(200_000_000))
    restore: Duration = field(default_factory=lambda: Duration(200_000_000))


@dataclass(frozen=True, slots=True, kw_only=True)
class QosProfile:
    """All QoS settings of a port. `classes` in priority order, exactly one of them `default`; `preset` for display."""

    preset: str
    classes: tuple[TrafficClass, ...]
    buffer: Buffer = field(default_factory=Buffer)
    load_balancing: LoadBalancing = field(default_factory=LoadBalancing)
    trimming: bool = False
    marks_account: bool = True
    """Packets that may be marked are counted by the depth of their queue, for the marking curves of reports."""
    watchdog: Watchdog | None = None
    base_rtt: Duration | None = None
    """Base RTT of the bandwidth-delay product, real time; None: modelled from the topology's longest path."""

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
        index = self.of_port.get(f"{node}:{interface}", self.of_node.get(node, 0)) if interface else None
        return self.profiles[self.of_node.get(node, 0) if index is None else index]
