"""Scale-up domains at a lab's time scale, and the scale that their packets would need.

Rates are divided by k and times multiplied, as everywhere; bytes stay. One frame of the lab stands for several
transactions, so that credits and windows count fewer, larger frames and hold the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.base.units import ByteCount, Duration
from testbed.lab.core.model import TRANSACTION, Lab, ScaleUp, ScaleUpFlowControl, ScaleUpPool
from testbed.lab.core.plan.domain_plan import PoolPlan, ScaleUpPlan
from testbed.lab.core.plan.scale import USABLE_SHARE, round_up_125
from testbed.lab.features.scale_up.sizing import (
    buffer_credits,
    credit_limit,
    find_domains,
    fold_plane,
    frame_credits,
    held_credits,
    lab_unit,
    needed_window,
    replay_window,
)

CARRIED_FRAMES_PER_S = 100_000
"""Frames a second, of data and answers together, that a switch and the endpoints of its GPUs carry on two cores that do
nothing else: each takes 7 us of the switch and 10 us of both ends (tests/bench/test_scale_up.py)."""
ANSWERED = 2
"""Frames on a wire for each frame of data: whoever writes is answered, and whoever reads has asked."""
LATENCY_FLOOR = Duration(150_000)
"""The idle round trip through an endpoint, two wires and a switch process in lab time, at the median as measured."""
FLOOR_SHARE = 0.1
"""The share of a domain's round trip, in lab time, that the floor may be, or latencies would be the machine's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketScale:
    """The time scale that packets of the lab's scale-up domains would ask of this kind of machine.

    `frames_per_s` are the frames of data of all GPUs sending at line rate, in real time: at a time scale k there are a
    k-th of them. `k` is the smallest of the 1-2-5 series at which they and their answers take no more than `share` of
    what two cores carry.
    """

    frames_per_s: float
    rate_k: float
    """The k that the frames need."""
    latency_k: float
    """The k that the latency floor needs."""
    k: float
    share: float

    def load(self, k: float) -> float:
        """The share of what two cores carry that all GPUs sending at line rate use at the time scale `k`."""
        return ANSWERED * self.frames_per_s / k / CARRIED_FRAMES_PER_S

    def reason(self, k: float) -> str:
        return (
            f"packets of scale-up domains, {self.frames_per_s / k:,.0f} frames/s at line rate and their answers, use"
            f" {self.load(k):.0%} of what two cores carry"
        )

    def complaint(self, k: float) -> str:
        why = f"they would use {self.load(k):.0%} of what two cores carry, and may use {self.share:.0%}"
        if k < self.latency_k:
            why = f"this kind of machine's own round trip of {LATENCY_FLOOR} would be more than a tenth of the domain's"
        return f"scale-up domains by packets need k = {self.k:,.0f}, not {k:g}: {why}"


def plan_scale_up(scale_up: ScaleUp, k: float) -> ScaleUpPlan:
    """Return the domains as they are in a lab of the time scale `k`."""
    frame = ByteCount(scale_up.coarse * TRANSACTION.bytes)
    unit = lab_unit(scale_up)
    window = replay_window(scale_up, frame)
    buffer = max(frame_credits(frame, unit), buffer_credits(scale_up, unit, frame))
    timer = None
    if window is not None and scale_up.retry is not None:
        sending = max(window, needed_window(scale_up, frame)) * frame.bytes * 8 / scale_up.link_rate.bps
        timer = Duration(round(scale_up.retry.timer_windows * sending * 1e9 * k))
    return ScaleUpPlan(
        k=k,
        gpu_rate=scale_up.rate.scaled(k),
        plane_rates=tuple(scale_up.plane_rate(plane).scaled(k) for plane in range(1, scale_up.planes + 1)),
        rtt=scale_up.rtt.scaled(k),
        latency=scale_up.latency.scaled(k),
        frame=frame,
        window_frames=window,
        replay_timer=timer,
        credit_unit=unit,
        credits=credit_limit(scale_up, unit, frame),
        buffer_credits=buffer,
        pause_credits=_pauses(scale_up, unit, frame, buffer),
        real=scale_up,
    )


def _pauses(scale_up: ScaleUp, unit: ByteCount, frame: ByteCount, buffer: int) -> tuple[int, int] | None:
    """Return the levels at which pauses begin and end, in credits of `unit` bytes: as the file says, or at a half and a
    quarter."""
    if scale_up.flow_control is not ScaleUpFlowControl.PFC:
        return None
    xoff = buffer // 2 if scale_up.xoff is None else held_credits(scale_up.xoff, unit, frame)
    xon = buffer // 4 if scale_up.xon is None else held_credits(scale_up.xon, unit, frame)
    return xoff, min(xon, xoff)


def plan_planes(scale_up: ScaleUp, k: float) -> tuple[ScaleUpPlan, ...]:
    """Plan the link of a GPU to each plane, at the time scale `k`: that is one wire of a lab by packets."""
    return tuple(plan_scale_up(fold_plane(scale_up, plane), k) for plane in range(1, scale_up.planes + 1))


def plan_pool(scale_up: ScaleUp, pool: ScaleUpPool, k: float) -> PoolPlan:
    """Plan the memory devices of a domain, at the time scale `k`."""
    return PoolPlan(
        real=pool,
        rate=pool.rate.scaled(k),
        latency=pool.latency.scaled(k),
        granule=ByteCount(scale_up.coarse * pool.interleave.bytes),
    )


def packet_scale(lab: Lab, share: float = USABLE_SHARE) -> PacketScale:
    """The time scale at which packets of the lab's domains take no more than a share of this kind of machine."""
    scale_up = lab.scale_up
    gpus = sum(domain.gpus for domain in find_domains(lab))
    frames = gpus * scale_up.rate.bps / 8 / (scale_up.coarse * TRANSACTION.bytes)
    rate_k = ANSWERED * frames / (share * CARRIED_FRAMES_PER_S)
    latency_k = LATENCY_FLOOR.ns / (FLOOR_SHARE * scale_up.rtt.ns)
    k = round_up_125(max(rate_k, latency_k))
    return PacketScale(frames_per_s=frames, rate_k=rate_k, latency_k=latency_k, k=k, share=share)
