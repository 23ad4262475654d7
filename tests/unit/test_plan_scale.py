"""The time scale: the reference machine, the series, what fits."""

from __future__ import annotations

import pytest

from testbed.fabric import FabricParams, generate_fabric
from testbed.model import End, Lab, Link, LinkKind, Node, NodeKind
from testbed.plan import MachineProfile, choose_scale, judge_scale
from testbed.plan.scale import round_down_125, round_up_125
from testbed.units import Rate

REFERENCE = MachineProfile(cores=2, forwarding_bps=7.8e9 * 3)


def fabric(hosts: int, gpus: int, segments: int = 2, mtu: int = 9000) -> Lab:
    params = FabricParams(design="rail-optimized", segments=segments, hosts=hosts, gpus=gpus, mtu=mtu)
    return generate_fabric(params, name="x")


@pytest.mark.parametrize(
    ("value", "rounded"), [(0.2, 1), (1, 1), (1.1, 2), (2, 2), (2.1, 5), (5.1, 10), (10, 10), (999, 1000), (1026, 2000)]
)
def test_the_1_2_5_series(value: float, rounded: float) -> None:
    assert round_up_125(value) == rounded


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


@pytest.mark.parametrize(
    ("value", "down"), [(0.3, 1), (1, 1), (1.9, 1), (2, 2), (4.9, 2), (7, 5), (10, 10), (999, 500)]
)
def test_rounding_down(value: float, down: float) -> None:
    assert round_down_125(value) == down
