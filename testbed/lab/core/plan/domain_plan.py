"""Scale-up domains in lab units, and what a lab has for their packets.

That is a namespace for the switch of each domain, and a wire for each GPU and plane.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.base.units import ByteCount, Duration, Rate
from testbed.lab.core.model.scale_up import ScaleUp, ScaleUpPool


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleUpPlan:
    """Scale-up domains in lab units at the time scale `k`. Rates are per direction."""

    k: float
    gpu_rate: Rate
    plane_rates: tuple[Rate, ...]
    """The rates at which a GPU sends to each plane."""
    rtt: Duration
    latency: Duration
    """From a GPU to another one: half of `rtt`, or zero where the topology states no domain."""
    frame: ByteCount
    """The payload of one frame: `coarse` transactions."""
    window_frames: int | None
    """Frames of a link without an acknowledgement; None without link-level retry."""
    replay_timer: Duration | None
    """Without an acknowledgement for so long, a link sends its window again."""
    credit_unit: ByteCount
    credits: int | None
    """Credits of a link's virtual channel; None where credits are not what controls the flow."""
    buffer_credits: int
    """The credits that the buffer of a channel holds, whatever controls the flow."""
    pause_credits: tuple[int, int] | None
    """The credits in it when a pause begins and when it ends; None where no pauses control the flow."""
    real: ScaleUp
    """The domains in the units of the real system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """The memory devices of a domain in lab units. They are the last of its ends."""

    real: ScaleUpPool
    rate: Rate
    latency: Duration
    granule: ByteCount
    """The bytes of one way before the next one's: a frame of the lab for each transaction of `interleave`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainWire:
    """The veth pair between a GPU, or a memory device, and the switch of one plane. It carries neither IPv4 nor IPv6.

    The ends of memory devices are in the namespace of their domain's first host, whose worker serves them.
    """

    gpu: int
    """The number of the GPU in its domain, from 0: hosts in the order of the lab, GPUs of each by rail, then memory."""
    plane: int
    """From 1, as in `ScaleUp.plane_rate`."""
    host: str
    local_gpu: int
    """The number of the GPU in its host, from 1, as rails are counted."""
    interface: str
    """The GPU's end, in the namespace of its host."""
    mac: str
    ifindex: int
    memory: int = 0
    """The number of the memory device, from 1, whose `local_gpu` is behind those of the host's GPUs; 0: it is none."""
    switch_interface: str
    """The switch's end, in the namespace of the domain."""
    switch_mac: str
    switch_ifindex: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainPlan:
    """One scale-up domain whose transfers are frames.

    `node` names the namespace that the switch process of all its planes runs in: a place of the lab beside its nodes.
    """

    name: str
    """As of `testbed.lab.features.scale_up.sizing.find_domains`."""
    node: str
    gpus: int
    wires: tuple[DomainWire, ...]
    """By plane, then by GPU: as a switch counts its ports."""
    links: tuple[ScaleUpPlan, ...]
    """The wires of each plane: a GPU's links to it as one."""
    pool: PoolPlan | None = None
    """None: it has no memory devices."""

    @property
    def devices(self) -> int:
        """Its memory devices."""
        return 0 if self.pool is None else self.pool.real.devices

    @property
    def ends(self) -> int:
        """GPUs and memory devices: the ports of a switch in each plane."""
        return self.gpus + self.devices

    @property
    def planes(self) -> int:
        """Switch chips that each GPU reaches."""
        return len(self.links)

    def wires_of(self, host: str, local_gpu: int) -> tuple[DomainWire, ...]:
        """The wires of one GPU of a host (from 1), by plane; none where there is no such GPU."""
        return tuple(wire for wire in self.wires if (wire.host, wire.local_gpu) == (host, local_gpu))
