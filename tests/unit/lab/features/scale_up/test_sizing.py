"""Scale-up domains: who is in one, and what their links hold. Figures of real systems are those of data sheets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from testbed.base.units import ByteCount, Duration, Rate
from testbed.lab.core.fabric import FabricParams, NicParams, generate_fabric
from testbed.lab.core.model import (
    SCALE_UP_PRESETS,
    TRANSACTION,
    UNSTATED_SCALE_UP,
    Credits,
    DomainSpan,
    Lab,
    LinkRetry,
    ScaleUp,
    ScaleUpFlowControl,
)
from testbed.lab.core.schema.load import load_topology
from testbed.lab.features.scale_up.sizing import (
    check_scale_up,
    credit_limit,
    find_domains,
    measure_scale_up,
    needed_window,
    replay_window,
)

TOPOLOGIES = Path(__file__).parents[5] / "topologies"
H100, NVL72 = SCALE_UP_PRESETS["h100"], SCALE_UP_PRESETS["nvl72"]


def lab_of(scale_up: ScaleUp, *, segments: int | None = None, hosts: int | None = None, gpus: int | None = None) -> Lab:
    params = FabricParams(design="rail-optimized", segments=segments, hosts=hosts, gpus=gpus)
    made = generate_fabric(params, name="lab")
    return replace(made, scale_up=scale_up)


@pytest.mark.parametrize(
    ("preset", "link_gbps", "bdp_kb", "link_bdp_kb"),
    [("h100", 200, 450, 25), ("nvl72", 400, 900, 50), ("ualink", 800, 800, 100), ("sue", 800, 1200, 100)],
)
def test_presets_have_the_rates_of_their_systems_each_way(
    preset: str, link_gbps: int, bdp_kb: int, link_bdp_kb: int
) -> None:
    scale_up = SCALE_UP_PRESETS[preset]
    sizing = measure_scale_up(lab_of(scale_up))
    assert scale_up.link_rate == Rate(link_gbps * 10**9)
    assert sizing.gpu_bdp_bytes == bdp_kb * 1000
    assert sizing.link_bdp_bytes == link_bdp_kb * 1000
    assert sum(scale_up.plane_rate(plane).bps for plane in range(1, scale_up.planes + 1)) == scale_up.rate.bps


def test_all_of_an_nvl72_is_the_130_tb_that_is_printed_where_both_ways_are_counted() -> None:
    lab = load_topology(TOPOLOGIES / "nvl72.yml")
    (domain,) = find_domains(lab)
    assert (domain.name, len(domain.hosts), domain.gpus) == ("p1-s1", 18, 72)
    assert 2 * domain.gpus * lab.scale_up.rate.bps / 8 == pytest.approx(129.6e12)


def test_rho_is_9_like_for_like_and_18_with_nics_of_half_the_rate() -> None:
    lab = load_topology(TOPOLOGIES / "nvl72-superpod.yml")
    sizing = measure_scale_up(lab)
    assert (len(sizing.domains), sizing.gpus, sizing.ratios) == (8, 576, (9.0,))
    slower = load_topology(TOPOLOGIES / "nvl72-superpod.yml", overrides={"fabric.nic.rate": "400G"})
    assert measure_scale_up(slower).ratios == (18.0,)


def test_gpus_that_share_nics_have_a_part_of_them() -> None:
    nic = NicParams(per="host", count=2, rate=Rate.parse("200G"))
    made = generate_fabric(FabricParams(design="shared-nic", nic=nic), name="lab")
    sizing = measure_scale_up(made)
    assert {domain.gpus for domain in sizing.domains} == {8}
    assert sizing.nic_rates == (Rate.parse("50G"),)
    assert sizing.ratios == (72.0,)


def test_ports_of_one_nic_count_together() -> None:
    sizing = measure_scale_up(load_topology(TOPOLOGIES / "pod.yml"))
    assert (sizing.nic_rates, sizing.gpus) == ((Rate.parse("200G"),), 64)


def test_a_host_that_is_in_no_segment_is_a_domain_by_itself() -> None:
    lab = replace(load_topology(TOPOLOGIES / "mixed.yml"), scale_up=NVL72)
    by_hand = [host.name for host in lab.hosts if host.place is None]
    names = {domain.name for domain in find_domains(lab)}
    assert by_hand
    assert {lab.host_domains[name] for name in by_hand} == set(by_hand)
    assert any(name.startswith("p1-s") and "-h" not in name for name in names)


def test_what_no_file_states_has_the_rate_of_an_h100_and_no_latency() -> None:
    assert UNSTATED_SCALE_UP.rate == Rate.parse("3.6T")
    assert UNSTATED_SCALE_UP.domain is DomainSpan.HOST
    assert UNSTATED_SCALE_UP.latency == Duration(0)
    assert H100.latency == Duration(500)
    assert check_scale_up(lab_of(UNSTATED_SCALE_UP, gpus=16)) == ()


def test_ports_of_switches_bound_a_domain() -> None:
    assert check_scale_up(lab_of(NVL72, segments=2, hosts=9)) == ()
    (error,) = check_scale_up(lab_of(NVL72, segments=2, hosts=10))
    assert (error.code, error.field) == ("scale-up-domain", "scale_up.domain")
    assert "80 GPUs" in error.message
    assert "72" in error.message


def test_an_automatic_window_fills_the_link_and_a_smaller_one_is_refused_with_the_share_it_reaches() -> None:
    need = needed_window(NVL72, TRANSACTION)
    assert need == 1 + -(-400e9 * 500e-9 / 8 // 256)  # 25 kB within 500 ns
    assert replay_window(NVL72, TRANSACTION) == need
    (error,) = check_scale_up(lab_of(replace(NVL72, retry=LinkRetry(window=need // 2)), hosts=2))
    assert error.code == "scale-up-window"
    assert f"{need // 2 / need:.0%} of the rate" in error.message
    assert check_scale_up(lab_of(replace(NVL72, retry=LinkRetry(window=need)), hosts=2)) == ()


def test_a_share_of_a_window_is_small_on_purpose() -> None:
    half = replace(NVL72, retry=LinkRetry(round_trips=0.5))
    assert check_scale_up(lab_of(half, hosts=2)) == ()
    assert replay_window(half, TRANSACTION) == pytest.approx(needed_window(NVL72, TRANSACTION) / 2, abs=1)


def test_larger_frames_hold_the_same_bytes() -> None:
    frame = ByteCount(16 * 256)
    written = replace(NVL72, credits=Credits(limit=160), retry=LinkRetry(window=160))
    assert credit_limit(written, ByteCount(16 * 256), frame) == 10
    assert replay_window(written, frame) == 10


def test_automatic_credits_cover_their_loop() -> None:
    for scale_up in SCALE_UP_PRESETS.values():
        sizing = measure_scale_up(lab_of(scale_up))
        assert sizing.credits is not None
        held = sizing.credits * scale_up.credits.unit.bytes
        assert held >= scale_up.link_rate.bps * sizing.credit_loop.seconds / 8
        assert held < scale_up.link_rate.bps * sizing.credit_loop.seconds / 8 + scale_up.credits.unit.bytes


def test_credits_must_hold_a_frame() -> None:
    few = replace(NVL72, credits=Credits(limit=15))
    (error,) = check_scale_up(lab_of(few, hosts=2))
    assert error.code == "scale-up-credits"
    assert check_scale_up(lab_of(replace(few, coarse=15), hosts=2)) == ()
    assert check_scale_up(lab_of(replace(few, flow_control=ScaleUpFlowControl.NONE), hosts=2)) == ()
