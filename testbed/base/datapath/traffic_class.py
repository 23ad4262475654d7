"""A traffic class of a port and the rules of its queue: as a file says them, and in bytes as both backends obey them.

`TrafficClass` is in the units of the real fabric. Of each of its keys that `ClassPlan` has a field for, by the name of
the key, the plan takes the value over: a depth as `<key>_bytes`, a duration as `<key>_ns` in lab time, all else as it
is. What is decided otherwise, `testbed.lab.core.plan.qos.planner` says. The kernel's side is `class_config` in
`programs/rules.h`, which is filled in by the names of its fields; the simulator's is `ClassQueue`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from testbed.base.datapath.abi import PROBABILITY_ONE
from testbed.base.datapath.markers import KERNEL_MARKERS, MarkAt, MarkBy
from testbed.base.keys import key
from testbed.base.units import PERCENT, SHARE, ByteCount

UNLIMITED: Final = 1 << 61
"""More than any queue holds."""
_KERNEL_MARKERS = " or ".join(f"Linux's {marker.qdisc} qdisc ({marker.by})" for marker in KERNEL_MARKERS)


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

    def bytes_at(self, bdp: int) -> int:
        """Return the depth in bytes, for a bandwidth-delay product in bytes."""
        return round(self.value * bdp if self.unit is DepthUnit.BDP else self.value)


class NonEct(StrEnum):
    """The fate of a packet that WRED would mark but may not (RFC 3168: no ECT)."""

    KEEP = "keep"
    DROP = "drop"


@dataclass(frozen=True, slots=True, kw_only=True)
class EcnCurve:
    """WRED on the instantaneous queue: 0 up to `kmin`, linear to `pmax` at `kmax`, 1 above."""

    kmin: Depth = key("Gives the queue depth at which marking begins, such as 0.2bdp.")
    kmax: Depth = key("Gives the queue depth from which every packet is marked.")
    pmax: float = key(
        "Gives the marking probability just below kmax, such as 7%; the default is 1.",
        1.0,
        measure=SHARE,
        low=0.0001,
        high=1,
    )
    non_ect: NonEct = key(
        "Says whether to keep (default) or drop what would be marked but is not ECN-capable.", NonEct.KEEP
    )
    mark_at: MarkAt = key(
        "Marks by the queue that a packet finds (enqueue, default) or leaves behind (dequeue).", MarkAt.ENQUEUE
    )
    by: MarkBy = key(f"Chooses our own marker (ebpf, default) or, as a cross-check, {_KERNEL_MARKERS}.", MarkBy.EBPF)


@dataclass(frozen=True, slots=True, kw_only=True)
class PfcThresholds:
    """The thresholds of an ingress port and priority of a lossless class. None is "auto": the plan chooses."""

    xoff: Depth | None = key("Gives the depth at which the sender is paused, or auto.", None, word="auto")
    xon: Depth | None = key("Gives the depth at which the sender may send again, or auto.", None, word="auto")
    headroom: Depth | None = key(
        "Gives the room above xoff for what still arrives; auto takes it from the reaction time.", None, word="auto"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficClass:
    """One of up to eight classes. Strict classes go first, by priority; the others share by `weight` (percent)."""

    name: str
    priority: int = key(
        "Gives the priority (IEEE 802.1Q), also of pause frames; by default the DSCP does.", name="pcp", high=7
    )
    dscp: tuple[int, ...] = key("Lists the DSCPs of the class, such as [26, cs6], 26 or 24-31.", ())
    default: bool = key("Says whether it takes every DSCP that no class names.", default=False)
    strict: bool = key("Says whether it goes before all that are not strict.", default=False)
    weight: int = key(
        "Gives its percent of what strict classes leave; those of a port sum to 100.",
        0,
        measure=PERCENT,
        low=1,
        high=100,
    )
    lossless: bool = key("Says whether it is paused by PFC instead of dropped.", default=False)
    limit: Depth | None = key("Drops packets above this depth; only lossy classes have it.", None, of_switch=True)
    """None: the dynamic threshold of the shared buffer alone drops."""
    ecn: EcnCurve | None = key(
        "Gives the WRED curve that marks with ECN, or false.",
        None,
        of_switch=True,
        word=False,
        hint="write {kmin: 0.2bdp, kmax: 0.8bdp}",
    )
    pfc: PfcThresholds | None = key(
        "Gives the thresholds of a lossless class, or auto.",
        None,
        of_switch=True,
        word="auto",
        hint="write lossless: false for a class without PFC",
    )


def fixed_point(default: float, *, one: int) -> Any:
    """Declare a field of `ClassPlan` that the data path has as a whole number, in which 1.0 is `one`."""
    return field(default=default, metadata={"one": one})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassPlan:
    """A traffic class in bytes. `priority` is its number, that of IEEE 802.1Q (PCP) and that of its pause frames.

    `quantum_bytes` is what a weighted class may send in its turn. `limit_bytes` is the static tail drop, `alpha` the
    factor of what is free in the shared buffer (0: none); below `reserved_bytes` neither counts. `kmin_bytes` None: no
    ECN; `mark_at` and `mark_by` say which queue decides, and who marks. `xoff_bytes`, `xon_bytes` and `headroom_bytes`
    are those of an ingress port, 0 for a lossy class.
    """

    priority: int
    name: str = ""
    strict: bool = False
    weight: int = 0
    quantum_bytes: int = 1 << 14
    lossless: bool = False
    limit_bytes: int = UNLIMITED
    reserved_bytes: int = 0
    alpha: float = fixed_point(0.0, one=256)
    kmin_bytes: int | None = None
    kmax_bytes: int | None = None
    pmax: float = fixed_point(1.0, one=PROBABILITY_ONE)
    drop_non_ect: bool = False
    mark_at: MarkAt = MarkAt.ENQUEUE
    mark_by: MarkBy = MarkBy.EBPF
    xoff_bytes: int = 0
    xon_bytes: int = 0
    headroom_bytes: int = 0

    @property
    def hold_bytes(self) -> int:
        """All that an ingress port holds of the class: what it has at XOFF, and the headroom."""
        return self.xoff_bytes + self.headroom_bytes
