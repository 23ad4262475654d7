"""The planned QoS as data: profiles of ports and buffers of switches, as the data path takes them."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.base.datapath.abi import FIVE_TUPLE
from testbed.base.datapath.traffic_class import ClassPlan
from testbed.lab.core.model import AdaptPer, BalancingMode, HashEngine, HashField
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
    hash_fields: tuple[HashField, ...] = FIVE_TUPLE
    per: AdaptPer = AdaptPer.PACKET
    hysteresis_bytes: int = 0
    """A flow of `BalancingMode.ADAPTIVE` keeps to its path until another has so many bytes fewer queued."""
    stride: int = 1
    """`BalancingMode.STATIC`: so many destinations that follow each other are pinned to one path, since the tier below
    has divided them already."""

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
    destinations: tuple[tuple[int, int], ...] = ()
    """The IPv4 addresses of all NICs, as numbers, ascending, each with that by which it is pinned; where no switch pins
    them, none."""
    egresses: tuple[tuple[int, int, int], ...] = ()
    """The ports of switches that adapt, ascending: the number of the buffer, the interface, and the port's number."""

    @property
    def adapts(self) -> bool:
        """Tell whether some switch looks at the queues in front of its paths."""
        return any(buffer.mode is BalancingMode.ADAPTIVE for buffer in self.buffers)

    @property
    def asks_kernel(self) -> bool:
        """Tell whether some switch has to know the paths that the kernel has for a packet."""
        return self.adapts or any(buffer.mode is BalancingMode.STATIC for buffer in self.buffers)


@dataclass(frozen=True, slots=True, kw_only=True)
class QosPlan(QosTables):
    """The profiles and buffers of one network. `base_rtt_ns` is modelled, in real time.

    `reaction_ns` is the pause reaction (lab time) that the headroom was computed from.
    """

    base_rtt_ns: int
    reaction_ns: int
