"""The planned QoS as data: profiles of ports and buffers of switches, as the data path takes them."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.base.datapath.traffic_class import ClassPlan
from testbed.lab.core.model import BalancingMode, HashEngine
from testbed.lab.core.plan.stable import seed_of_run


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
    """The profiles and buffers that `InstallPort` names, which the data path of a lab needs beside its operations.

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
