"""What the switch and the endpoints of a scale-up domain by packets are told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from testbed.base.units import ByteCount, Duration
from testbed.lab.core.fabric import FabricParams, generate_fabric
from testbed.lab.core.model import (
    SCALE_UP_PRESETS,
    TRANSACTION,
    Credits,
    LinkRetry,
    PlaneSpray,
    ScaleUpBy,
    ScaleUpFlowControl,
)
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.features.scale_up.apply import NoPackets, domain_link, gpu_settings, link_settings, switch_description
from testbed.lab.features.scale_up.plan.domains import WIRE_MTU_BYTES
from testbed.lab.features.scale_up.plan.time_scale import plan_planes
from testbed.lab.features.scale_up.sizing import PACKET_CREDITS, PACKET_GPUS, PACKET_VCS, credit_loop, fold_plane
from testbed.protocols.scale_up.domain import binding
from testbed.protocols.scale_up.domain.endpoint import Spray
from testbed.protocols.scale_up.domain.link import MOST_CAPACITY, MOST_COARSE, FlowControl, LinkSettings

K = 20_000
H100 = replace(SCALE_UP_PRESETS["h100"], by=ScaleUpBy.PACKETS)
ETHERNET_BYTES = 14


def planned(**changes: Any) -> LabPlan:
    made = generate_fabric(FabricParams(design="rail-optimized", segments=1, hosts=2, gpus=4, spines=1), name="lab")
    return plan_lab(replace(made, scale_up=replace(H100, **changes)), k=K)


def settings(plane: int = 1, **changes: Any) -> LinkSettings:
    return domain_link(planned(**changes), plane)


def test_what_is_refused_in_a_file_is_what_the_switch_cannot() -> None:
    assert (PACKET_GPUS, PACKET_VCS, PACKET_CREDITS) == (binding.MOST_GPUS, binding.LINK_VCS, MOST_CAPACITY)
    longest = LinkSettings(rate_bps=1_000_000, coarse=MOST_COARSE).frame_bytes
    assert longest - ETHERNET_BYTES <= WIRE_MTU_BYTES


@pytest.mark.parametrize("coarse", [1, 16, 32])
@pytest.mark.parametrize("unit", [32, 64, 256, 2048])
def test_a_full_frame_takes_the_credits_that_the_plan_counts(coarse: int, unit: int) -> None:
    """With its headers: so the limit in frames is a credit loop's, at every unit."""
    changed = replace(H100, coarse=coarse, credits=Credits(unit=ByteCount(unit)))
    (link, *_) = plan_planes(changed, K)
    found = link_settings(link)
    per_frame = -(-TRANSACTION.bytes // unit)
    assert found.credits(found.frame_bytes) == per_frame
    frame = ByteCount(coarse * TRANSACTION.bytes)
    loop_bytes = link.real.link_rate.bps * credit_loop(fold_plane(changed, 1), frame).seconds / 8
    assert found.capacity[0] / per_frame == pytest.approx(loop_bytes / frame.bytes, abs=1.01)


def test_times_are_stretched_and_windows_counted_in_frames() -> None:
    found = settings()
    assert (found.rate_bps, found.delay_ns) == (50_000_000, 5_000_000)
    assert found.retry is not None
    assert found.retry.outstanding_bytes_max // found.frame_bytes == 17
    assert found.retry.outstanding_frames_max == 35, "each may be followed by an answer to a frame of the other end"
    window_ns = found.retry.replay_timer_ns / 4
    assert window_ns == pytest.approx(17 * 4096 * 8 / 50e6 * 1e9, rel=0.02)
    assert found.retry.pcs_lost_timeout_ns == pytest.approx(40 * window_ns, rel=1e-6)
    assert found.cc_period_ns == 0


def test_a_share_of_the_limit_and_of_the_window_arrives() -> None:
    whole, half = settings(), settings(credits=Credits(loops=0.5), retry=LinkRetry(round_trips=0.5))
    assert half.capacity[0] == pytest.approx(whole.capacity[0] / 2, abs=0.6)
    assert whole.retry is not None and half.retry is not None
    windows = [one.outstanding_bytes_max / whole.frame_bytes for one in (half.retry, whole.retry)]
    assert windows[0] == pytest.approx(windows[1] / 2, abs=0.6)


@pytest.mark.parametrize(("given", "lab_ns"), [(Duration.parse("1us"), 20_000_000), (None, 0)])
def test_without_retry_credits_come_back_by_cc_updates(given: Duration | None, lab_ns: int) -> None:
    found = settings(retry=None, credits=Credits(cc_update=given))
    assert (found.retry, found.cc_period_ns) == (None, lab_ns)


def test_pauses_have_a_busy_link_below_and_their_headroom_above() -> None:
    credits, pauses = settings(), settings(flow_control=ScaleUpFlowControl.PFC)
    assert pauses.flow_control is FlowControl.PFC
    assert pauses.xoff[0] >= credits.capacity[0]
    assert pauses.capacity[0] - pauses.xoff[0] >= credits.capacity[0]
    assert pauses.xon[0] < pauses.xoff[0]


def test_a_buffer_of_the_file_is_that_of_each_link_of_the_fastest_plane() -> None:
    found = settings(
        plane=2,
        flow_control=ScaleUpFlowControl.PFC,
        buffer=ByteCount(16_384),
        xoff=ByteCount(8_192),
        xon=ByteCount(4_096),
    )
    assert (found.capacity, found.xoff, found.xon) == ((20, 20), (10, 10), (5, 5)), "of five links: the fastest plane's"
    assert found.rate_bps == 40_000_000, "of four"
    nothing = settings(plane=1, flow_control=ScaleUpFlowControl.NONE, buffer=ByteCount(4_096))
    assert (nothing.flow_control, nothing.capacity, nothing.xoff) == (FlowControl.NONE, (5, 5), ())


def test_the_switch_and_the_endpoints_are_told_the_same_wires() -> None:
    plan = planned(voq=True, spray=PlaneSpray.EQUAL, vcs=1)
    domain = plan.scale_up_domains[1]
    description = switch_description(plan, domain)
    assert (description.gpus, description.planes, description.voq) == (4, 4, True)
    assert list(description.plane_rates_bps) == [50_000_000, 40_000_000, 40_000_000, 50_000_000]
    gpu = gpu_settings(plan, "p1-s1-h2", 3)
    assert (gpu.gpu, gpu.gpus, gpu.request_vc, gpu.response_vc, gpu.spray) == (2, 4, 0, 0, Spray.EQUAL)
    assert gpu.peer_window == gpu.link.capacity[0] // 2
    assert gpu_settings(planned(), "p1-s1-h2", 3).peer_window == 0
    assert list(gpu.interfaces) == ["gpu3p1", "gpu3p2", "gpu3p3", "gpu3p4"]
    theirs = [description.ports[plane * 4 + 2] for plane in range(4)]
    assert [(port.peer, port.mac) for port in theirs] == list(gpu.addresses)
    assert gpu.link == description.link
    assert gpu.plane_rates_bps == description.plane_rates_bps
    narrow = domain_link(plan, 2)
    assert narrow == replace(description.link, rate_bps=40_000_000), "what readings are compared with"


def test_who_has_no_packets_is_told_so() -> None:
    plan = planned(by=ScaleUpBy.TIME)
    with pytest.raises(NoPackets, match="have no packets"):
        gpu_settings(plan, "p1-s1-h1", 1)
    with pytest.raises(NoPackets, match="has no GPU 5"):
        gpu_settings(planned(), "p1-s1-h1", 5)
    with pytest.raises(NoPackets, match="planes 1 to 4, not 5"):
        settings(plane=5)
