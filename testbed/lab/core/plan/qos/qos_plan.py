"""The planned QoS as data: traffic classes of ports and buffers of switches, as the data path takes them."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.lab.core.model import BalancingMode, HashEngine, MarkAt, MarkBy
from testbed.lab.core.plan.stable import seed_of_run


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassPlan:
    """A traffic class in bytes, as the data path takes it. `priority` is PCP and PFC priority.

    `quantum_bytes` is what a weighted class may send in its turn. `limit_bytes` is the static tail drop,
    `alpha` the dynamic threshold's factor (0: none). `kmin_bytes` None: no ECN;
    `mark_at` and `mark_by` say which queue decides, and who marks. `xoff_bytes`, `xon_bytes` and
    `headroom_bytes` are those of an ingress port, 0 for a lossy class.
    """

    priority: int
    name: str
    strict: bool
    weight: int
    quantum_bytes: int
    lossless: bool
    limit_bytes: int
    reserved_bytes: int
    alpha: float
    kmin_bytes: int | None = None
    kmax_bytes: int | None = None
    pmax: float = 0.0
    drop_non_ect: bool = False
    mark_at: MarkAt = MarkAt.ENQUEUE
    mark_by: MarkBy = MarkBy.EBPF
    xoff_bytes: int = 0
    xon_bytes: int = 0
    headroom_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PortProfile:
    """All numbers that ports of one kind, rate and QoS share. `class_of_dscp` has 64 priorities.

    `bdp_bytes` is the bandwidth-delay product that multiples were resolved with; `profile` the index in
    `QosPolicy.profiles` it comes from. `trimmed_class` takes trimmed packets.
    """

    profile: int
    switch: bool
    rate_bps: int
    mtu_bytes: int
    bdp_bytes: int
    classes: tuple[ClassPlan, ...]
    class_of_dscp: tuple[int, ...]
    control_class: int
    trimmed_class: int
    trimming: bool
    marks_account: bool = True
    """Marks of its queues are counted by depth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferPlan:
    """A switch's shared buffer, and how it balances load. `gap_ns` is in lab time.

    `seed` is what its hash begins with, in every run where it is `fixed_seed`, else by
    `lab.core.plan.stable.seed_of_run`.

    `shared_bytes` is the whole; `headroom_bytes` of it is set aside for its lossless ingress queues.
    """

    node: str
    shared_bytes: int
    headroom_bytes: int
    mode: BalancingMode
    hash: HashEngine
    gap_ns: int
    seed: int
    watchdog_detect_ns: int = 0
    watchdog_restore_ns: int = 0
    """0: no watchdog."""
    fixed_seed: bool = False

    def seed_in(self, run: int) -> int:
        """Return what its hash begins with in the run of this seed."""
        return self.seed if self.fixed_seed else seed_of_run(self.seed, run)


@dataclass(frozen=True, slots=True, kw_only=True)
class QosTables:
    """What the data path of a lab needs beside its operations: the profiles and buffers that `InstallPort` names.

    The first buffer is none: NICs have no shared buffer.
    """

    profiles: tuple[PortProfile, ...]
    buffers: tuple[BufferPlan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class QosPlan(QosTables):
    """The profiles and buffers of one network. `base_rtt_ns` is modelled, in real time.

    `reaction_ns` is the pause reaction (lab time) that the headroom was computed from.
    """

    base_rtt_ns: int
    reaction_ns: int
