"""The time scale: the reference machine, the series, what fits."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from testbed.base.units import Rate
from testbed.lab.core.fabric import FabricParams, generate_fabric
from testbed.lab.core.model import End, Lab, Link, LinkKind, Node, NodeKind
from testbed.lab.core.plan.scale import (
    ENDPOINT_HOPS,
    MachineLoad,
    MachineProfile,
    PacketDemand,
    beside,
    choose_packet_scale,
    choose_scale,
    judge_packet_scale,
    judge_scale,
    round_down_125,
    round_up_125,
    round_up_digit,
)

REFERENCE = MachineProfile(cores=2, forwarding_bps=7.8e9 * 3)


def fabric(hosts: int, gpus: int, segments: int = 2, mtu: int = 9000) -> Lab:
    params = FabricParams(design="rail-optimized", segments=segments, hosts=hosts, gpus=gpus, mtu=mtu)
    return generate_fabric(params, name="x")


UP = {0.2: 1, 1: 1, 1.1: 2, 2: 2, 2.1: 5, 5.1: 10, 10: 10, 999: 1000, 1026: 2000}
DOWN = {0.3: 1, 1: 1, 1.9: 1, 2: 2, 4.9: 2, 7: 5, 10: 10, 999: 500}
ONE_DIGIT = {0.2: 1, 1: 1, 1.1: 2, 3364: 4000, 9001: 10_000, 9000: 9000, 100_000: 100_000}


@pytest.mark.parametrize(
    ("rounding", "expected"), [(round_up_125, UP), (round_down_125, DOWN), (round_up_digit, ONE_DIGIT)]
)
def test_roundings(rounding: Callable[[float], float], expected: dict[float, float]) -> None:
    assert {value: rounding(value) for value in expected} == expected


def test_ten_400g_nics_at_1000_are_the_edge_of_two_cores() -> None:
    """The measurement the design quotes: 10 x 400 Mbit/s over three hops are half of 23.4 Gbit/s."""
    choice = judge_scale(fabric(hosts=5, gpus=1), REFERENCE, 1000)
    assert choice.load == pytest.approx(0.513, abs=0.001)
    assert not choice.fits
    assert choice.fitting_k == 2000
    assert "k = 2000 would" in choice.reason


def test_the_choice_fits_and_the_next_smaller_k_does_not() -> None:
    lab = fabric(hosts=4, gpus=4)
    choice = choose_scale(lab, REFERENCE)
    assert choice.fits and choice.load <= 0.5 and choice.k == choice.fitting_k
    smaller = max(k for k in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000) if k < choice.k)
    assert not judge_scale(lab, REFERENCE, smaller).fits


def test_hops_are_those_of_the_longest_path() -> None:
    machine = MachineProfile(cores=2, forwarding_bps=1e12)
    loads = {
        "one switch": judge_scale(fabric(hosts=2, gpus=1, segments=1), machine, 1).load / 2,
        "two tiers": judge_scale(fabric(hosts=2, gpus=1, segments=2), machine, 1).load / 4,
    }
    three = generate_fabric(FabricParams(design="rail-optimized", pods=2, hosts=2, gpus=1, mtu=9000), name="x")
    loads["three tiers"] = judge_scale(three, machine, 1).load / 4
    assert loads == pytest.approx({"one switch": 0.4, "two tiers": 1.2, "three tiers": 2.0})


def test_half_the_mtu_is_half_the_capacity() -> None:
    large, small = (judge_scale(fabric(4, 4, mtu=mtu), REFERENCE, 1000).load for mtu in (9000, 4500))
    assert small == pytest.approx(2 * large)


def test_hosts_back_to_back_count_one_hop_and_an_empty_lab_none() -> None:
    nodes = tuple(Node(name=name, kind=NodeKind.HOST) for name in "ab")
    link = Link(
        a=End(node="a", interface="e"),
        b=End(node="b", interface="e"),
        kind=LinkKind.ROUTED,
        rate=Rate.parse("10G"),
        mtu_bytes=9000,
    )
    assert judge_scale(Lab(name="x", nodes=nodes, links=(link,)), REFERENCE, 1).load == pytest.approx(20e9 / 23.4e9)
    assert choose_scale(Lab(name="x", nodes=nodes, links=()), REFERENCE).k == 1


def test_a_fabric_too_large_for_the_machine_keeps_a_megabit_a_port() -> None:
    params = FabricParams(design="rail-optimized", pods=2, hosts=64, gpus=8, spines=8, super_spines=8)
    choice = choose_scale(
        generate_fabric(params, name="big"), MachineProfile(cores=2, forwarding_bps=3e9, mtu_bytes=4500)
    )
    assert choice.k == 200_000
    assert not choice.fits
    assert "would stay within" in choice.reason


SHAPED = MachineProfile(cores=2, forwarding_bps=2 * 36_000 / 35e-6, mtu_bytes=4500)
"""35 us of CPU for a hop of a packet of 4500 bytes."""
LINE_RATE = 400e9 / 8 / 4194
"""Packets/s of a 400G NIC."""


def demand(mean: float, senders: int) -> PacketDemand:
    """`mean` in NICs at line rate."""
    return PacketDemand(packets_per_s=mean * LINE_RATE, burst_packets_per_s=senders * LINE_RATE, senders=senders)


def test_a_packet_costs_its_endpoints_and_its_hops() -> None:
    """16 hosts at k = 60,000: 3,200 packets/s of 280 us at the ends and 105 us of three hops, on two cores."""
    choice = judge_packet_scale(fabric(hosts=8, gpus=1, mtu=4500), SHAPED, demand(16, 16), 60_000)
    assert choice.load == pytest.approx(16 * LINE_RATE / 60_000 * (ENDPOINT_HOPS + 3) * 35e-6 / 2)
    assert not choice.fits and choice.fitting_k == 80_000
    assert "3,179 packets/s" in choice.reason and "k = 80000 would" in choice.reason


def test_a_measured_cost_counts_in_full_in_the_mean_and_by_half_at_the_beginning() -> None:
    lab = fabric(hosts=8, gpus=1, mtu=4500)
    measured = replace(demand(16, 16), endpoint_s=500e-6)
    choice = judge_packet_scale(lab, SHAPED, measured, 100_000)
    assert choice.load == pytest.approx(16 * LINE_RATE / 100_000 * (500e-6 + 35e-6) / 2), (
        "a switch is a third of the calibrated hop"
    )
    assert "packets/s of a transport in user space, 500 us each, over 3 switch hops" in choice.reason
    crowd = replace(demand(1, 64), endpoint_s=500e-6)
    burst = 64 * LINE_RATE * (250e-6 + 35e-6) / 2
    assert choose_packet_scale(lab, SHAPED, crowd).k == round_up_digit(burst / 2.0)


def test_the_packets_fit_and_at_the_next_smaller_digit_they_do_not() -> None:
    lab = fabric(hosts=4, gpus=1, mtu=4500)
    choice = choose_packet_scale(lab, SHAPED, demand(8, 8))
    assert choice.k == 40_000 and choice.fits and choice.load <= 0.5
    assert not judge_packet_scale(lab, SHAPED, demand(8, 8), 30_000).fits


def test_an_incast_is_bounded_by_its_beginning() -> None:
    """One NIC's rate in all, but eight senders begin at once."""
    lab = fabric(hosts=9, gpus=1, segments=1, mtu=4500)
    alone, incast = (choose_packet_scale(lab, SHAPED, demand(1, senders)) for senders in (1, 8))
    assert (alone.k, incast.k) == (4000, 8000)
    assert incast.load < 0.25, "the mean would let it be twice as fast"


def test_endpoints_that_hold_packets_have_a_round_trip_that_they_can_keep() -> None:
    lab = fabric(hosts=2, gpus=1, mtu=4500)
    light = replace(demand(0.01, 1), endpoint_s=50e-6)
    assert choose_packet_scale(lab, SHAPED, light).k < 2500
    assert choose_packet_scale(lab, SHAPED, replace(light, base_rtt_s=12e-6)).k == 3000, "30 ms are 2,500 times 12 us"


def test_no_port_is_made_slower_than_a_megabit_for_packets_either() -> None:
    choice = choose_packet_scale(fabric(hosts=4, gpus=1, mtu=4500), SHAPED, demand(800, 800))
    assert choice.k == 200_000 and not choice.fits


@pytest.mark.parametrize(
    ("busy", "steal", "share"),
    [
        (0.0, 0.0, 0.5),
        (0.15, 0.0, 0.5),
        (0.3, 0.0, 0.4),
        (0.5, 0.0, 0.2),
        (0.9, 0.0, 0.2),
        (0.0, 0.1, 0.45),
        (0.2, 0.1, 0.4),
    ],
)
def test_what_others_use_is_left_to_them(busy: float, steal: float, share: float) -> None:
    found = beside(SHAPED, MachineLoad(busy=busy, steal=steal))
    assert found.usable_share == pytest.approx(share)
    assert found.burst_share == pytest.approx(2.0 * share / 0.5)


def test_a_machine_that_nobody_else_uses_stays_as_it_is() -> None:
    assert beside(SHAPED, MachineLoad(busy=0.1)) is SHAPED
