"""Scale-up domains at a time scale: rates are divided, times are multiplied, bytes stay."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testbed.base.units import ByteCount, Duration, Rate
from testbed.lab.core.fabric import FabricParams, generate_fabric
from testbed.lab.core.model import SCALE_UP_PRESETS, UNSTATED_SCALE_UP, LinkRetry
from testbed.lab.features.scale_up.plan.time_scale import CARRIED_FRAMES_PER_S, packet_scale, plan_scale_up

H100, NVL72 = SCALE_UP_PRESETS["h100"], SCALE_UP_PRESETS["nvl72"]


def test_an_h100_at_ten_thousand() -> None:
    plan = plan_scale_up(H100, 10_000)
    assert plan.gpu_rate == Rate.parse("360M")
    assert plan.plane_rates == tuple(Rate.parse(rate) for rate in ("100M", "80M", "80M", "100M"))
    assert (plan.rtt, plan.latency) == (Duration.parse("10ms"), Duration.parse("5ms"))
    assert plan.frame == plan.credit_unit == ByteCount(4096)


@pytest.mark.parametrize("k", [1, 1_000, 20_000])
def test_what_has_no_unit_is_the_same_at_every_scale(k: float) -> None:
    plan, real = plan_scale_up(NVL72, k), plan_scale_up(NVL72, 1)
    assert plan.gpu_rate.bps * plan.rtt.ns == pytest.approx(real.gpu_rate.bps * real.rtt.ns, rel=1e-9)
    assert (plan.window_frames, plan.credits) == (real.window_frames, real.credits)
    assert plan.replay_timer is not None
    assert real.replay_timer is not None
    assert plan.replay_timer.ns / plan.rtt.ns == pytest.approx(real.replay_timer.ns / real.rtt.ns, rel=1e-3)


def test_the_replay_timer_never_ends_before_acknowledgements_can_arrive() -> None:
    """A window that is small on purpose is sent sooner than its first acknowledgement is back."""
    plan = plan_scale_up(replace(NVL72, retry=LinkRetry(round_trips=0.01)), 1_000)
    assert plan.window_frames == 1
    assert plan.replay_timer is not None
    assert plan.replay_timer.ns > 4 * NVL72.rtt.ns / 2 * 1_000


def test_without_retry_and_without_a_file_there_is_no_timer_and_no_latency() -> None:
    plan = plan_scale_up(replace(UNSTATED_SCALE_UP, retry=None), 1_000)
    assert (plan.window_frames, plan.replay_timer, plan.latency) == (None, None, Duration(0))
    assert plan.gpu_rate == Rate.parse("3.6G")


def test_packets_of_eight_gpus_are_answered_and_take_their_share_of_two_cores() -> None:
    """At a thousand, 440,000 frames of 8 KiB a second."""
    made = generate_fabric(FabricParams(design="rail-optimized", segments=1, hosts=1), name="lab")
    packets = packet_scale(replace(made, scale_up=replace(H100, coarse=32)))
    assert packets.frames_per_s / 1_000 == pytest.approx(440_000, rel=0.01)
    assert packets.rate_k == pytest.approx(1_000 * 2 * 440_000 / (0.5 * CARRIED_FRAMES_PER_S), rel=0.01)
    assert packets.latency_k == pytest.approx(1_500)
    assert packets.k == 20_000
    assert packets.load(packets.rate_k) == pytest.approx(0.5)


def test_a_short_round_trip_needs_a_larger_scale_than_its_frames_do() -> None:
    made = generate_fabric(FabricParams(design="rail-optimized", segments=1, hosts=1), name="lab")
    packets = packet_scale(replace(made, scale_up=replace(H100, rtt=Duration(30), rate=Rate.parse("7.2G"))))
    assert packets.rate_k < packets.latency_k == pytest.approx(50_000)
    assert packets.k == 50_000
