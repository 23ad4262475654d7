"""Oversubscription of rail and all-to-all traffic: closed forms, published designs, loads counted link by link."""

from collections import defaultdict
from itertools import product

import pytest
from equal_paths import shortest_hops
from hand_made import by_hand

from testbed.base.units import Rate
from testbed.lab.core.fabric import FabricParams, NicParams, RailParams, UplinkParams, generate_fabric, measure_sizing
from testbed.lab.core.fabric.figures.traffic import TrafficLoad, TrafficPattern
from testbed.lab.core.model import Lab, LinkKind, Role, Routing

G = 10**9
RAIL, ALL = TrafficPattern.RAIL, TrafficPattern.ALL_TO_ALL


def build(design: str, **written: object) -> Lab:
    return generate_fabric(FabricParams(design=design, **written), name="lab")  # type: ignore[arg-type]


def loads(lab: Lab) -> dict[tuple[str, TrafficPattern], TrafficLoad]:
    return {(load.between, load.pattern): load for load in measure_sizing(lab).traffic}


def ratios(lab: Lab) -> dict[tuple[str, TrafficPattern], float | None]:
    return {place: load.oversubscription for place, load in loads(lab).items()}


def test_rail_traffic_stays_on_the_leaf_and_all_to_all_goes_through_the_spines() -> None:
    """One segment of 8 hosts with 4 rails under 4 uplinks of a leaf: 2:1 by tier. Of what a NIC sends to the other half
    a quarter is for its own rail, so three quarters of 8 x 400G go up 4 x 400G."""
    lab = build("rail-optimized", segments=1, hosts=8, gpus=4, spines=4)
    assert measure_sizing(lab).roles[0].oversubscription == 2.0
    assert ratios(lab) == {("hosts", RAIL): 1.0, ("hosts", ALL): 0.75 * 2}
    assert loads(lab)["hosts", ALL].fullest == "rail to spine"
    assert loads(lab)["hosts", ALL].bandwidth_bps == round(4 * 4 * 400 * G / 1.5)


def test_between_segments_both_go_through_the_spines() -> None:
    lab = build("rail-optimized", segments=2, hosts=8, gpus=4, spines=4)
    assert ratios(lab) == {("hosts", RAIL): 1.0, ("hosts", ALL): 1.5, ("segments", RAIL): 2.0, ("segments", ALL): 2.0}


def test_rails_without_spines_carry_rail_traffic_alone() -> None:
    """Seven eighths of what all send to all have no path (Wang et al., "Rail-only", arXiv 2307.12169, section 3)."""
    found = loads(build("rail-only", hosts=4, gpus=8))
    assert (found["hosts", RAIL].oversubscription, found["hosts", RAIL].joined) == (1.0, 1.0)
    assert (found["hosts", ALL].oversubscription, found["hosts", ALL].bandwidth_bps) == (None, None)
    assert found["hosts", ALL].joined == 1 / 8


@pytest.mark.parametrize("k", [4, 6, 8])
def test_a_fat_tree_is_not_oversubscribed_at_any_level(k: int) -> None:
    """Al-Fares et al., "A scalable, commodity data center network architecture" (SIGCOMM 2008)."""
    assert set(ratios(fat_tree(k)).values()) == {1.0}


def fat_tree(k: int) -> Lab:
    """k pods of k/2 edge and k/2 aggregation switches, (k/2)^2 cores, k/2 hosts of one GPU on each edge switch."""
    half = k // 2
    return build(
        "rail-optimized",
        pods=k,
        segments=half,
        hosts=half,
        gpus=1,
        spines=half,
        super_spines=half * half,
        super_spine_groups=half,
        switch_radix=k,
    )


@pytest.mark.parametrize("units", [2, 8, 16])
def test_a_superpod_is_not_oversubscribed(units: int) -> None:
    """NVIDIA's DGX SuperPOD reference architecture (B200): 1:1 at every tier."""
    lab = build("dgx-superpod", **({"segments": units} if units <= 8 else {"pods": units // 4}))
    assert set(ratios(lab).values()) == {1.0}


def hpn_plane(*, hosts: int = 128, segments: int = 15, spines: int = 60) -> Lab:
    """One plane of Alibaba's HPN (SIGCOMM 2024): 15 segments of 128 hosts, 8 ports of 200G of each in the plane; ToRs
    with 60 uplinks of 400G; 60 aggregation switches with 8 uplinks each, whose other ends are in other pods."""
    up = UplinkParams(rate=Rate.parse("400G"))
    return build(
        "rail-optimized",
        segments=segments,
        hosts=hosts,
        gpus=8,
        nic=NicParams(rate=Rate.parse("200G")),
        spines=spines,
        uplink=up,
        core_uplink=up,
        super_spines=8,
    )


def test_a_plane_of_alibabas_hpn() -> None:
    """Published: 15,360 GPUs in a pod, 1.067:1 at the ToRs, 15:1 at the aggregation switches. 128 x 200G of a ToR go up
    60 x 400G; 120 ToRs of 400G are below an aggregation switch that has 8 x 400G up."""
    lab = hpn_plane()
    sizing = measure_sizing(lab)
    assert (sizing.gpus, sizing.switches) == (15360, 8 * 15 + 60 + 8)
    leaf, spine, _ = sizing.roles
    assert (leaf.oversubscription, spine.oversubscription) == (pytest.approx(1.067, abs=5e-4), 15.0)
    found = ratios(lab)
    assert found["segments", RAIL] == found["segments", ALL] == pytest.approx(128 * 200 / (60 * 400))
    assert found["hosts", RAIL] == 1.0
    assert found["hosts", ALL] == 1.0  # seven eighths of 1.067 is less than what a NIC can send


def test_a_core_that_is_thin_is_met_between_pods_alone() -> None:
    """Meta's 24k-GPU cluster has 7:1 above its pods (SIGCOMM 2024): here a spine has 7 leaves of 400G, and 400G up."""
    lab = build("rail-optimized", pods=2, segments=7, hosts=4, gpus=1, spines=4, super_spines=4, super_spine_groups=4)
    found = ratios(lab)
    assert measure_sizing(lab).roles[1].oversubscription == 7.0
    assert found["segments", RAIL] == found["segments", ALL] == 1.0
    assert found["pods", RAIL] == found["pods", ALL] == 7.0
    assert loads(lab)["pods", ALL].fullest == "spine to super-spine"


def test_more_uplinks_than_needed_are_not_less_than_one() -> None:
    lab = build("rail-optimized", segments=2, hosts=4, gpus=1, spines=8)
    assert measure_sizing(lab).roles[0].oversubscription == 0.5
    assert set(ratios(lab).values()) == {1.0}


def test_odd_halves_send_what_the_smaller_one_takes() -> None:
    """Three pods: one against two, whose NICs together send what those of one can."""
    lab = build("rail-optimized", pods=3, segments=1, hosts=2, gpus=1, spines=2, super_spines=2)
    load = loads(lab)["pods", RAIL]
    assert (load.access_bps, load.oversubscription) == (2 * 400 * G, 1.0)


def test_both_ports_of_a_nic_count() -> None:
    lab = build("pod")
    assert loads(lab)["segments", RAIL].access_bps == measure_sizing(lab).bisection.access_bps  # type: ignore[union-attr]
    assert set(ratios(lab).values()) == {1.0}


def test_what_is_wider_than_ecmp_carries_what_is_installed() -> None:
    """8 hosts of 100G under 8 spines of 100G, and ECMP of 6: 8/6."""
    rate = Rate.parse("100G")
    shape = {"segments": 2, "hosts": 8, "gpus": 1, "spines": 8, "uplink": UplinkParams(rate=rate)}
    lab = build("rail-optimized", nic=NicParams(rate=rate), routing=Routing(ecmp=6), **shape)
    assert ratios(lab)["segments", RAIL] == pytest.approx(8 / 6)


def test_too_many_leaves_under_a_narrow_ecmp_are_not_told() -> None:
    lab = build("rail-optimized", segments=20, hosts=2, gpus=8, spines=4, routing=Routing(ecmp=2))
    load = loads(lab)["segments", RAIL]
    assert (load.oversubscription, load.is_joined) == (None, True)


def test_a_slow_link_sets_what_plain_ecmp_carries() -> None:
    """200G from each leaf, half of it over each spine: 100G over a link of 40G."""
    roles = {"leaf1": Role.RAIL, "leaf2": Role.RAIL, "spine1": Role.SPINE, "spine2": Role.SPINE}
    hosts = [(f"h{number}", f"leaf{1 + number // 2}", 100) for number in range(4)]
    ups = [("leaf1", "spine1", 100), ("leaf1", "spine2", 40), ("leaf2", "spine1", 100), ("leaf2", "spine2", 100)]
    assert ratios(by_hand(hosts + ups, roles)) == {("hosts", ALL): 2.5}


def test_planes_of_their_own_are_told_from_rails_without_spines() -> None:
    """Two hosts with a port on each of two fabrics that do not meet: nothing is lost, as each port has its plane."""
    roles = {"a1": Role.RAIL, "b1": Role.RAIL}
    dual = [("h1", "a1", 200), ("h2", "a1", 200), ("h1", "b1", 200), ("h2", "b1", 200)]
    assert ratios(by_hand(dual, roles)) == {("hosts", ALL): 1.0}
    apart = by_hand([("h1", "a1", 200), ("h2", "b1", 200)], roles)
    assert loads(apart)["hosts", ALL].joined == 0.0


def counted(lab: Lab, between: str, pattern: TrafficPattern) -> float:
    """The load of the fullest link, over its rate: every pair of NICs by itself, without any classes."""
    units = {
        host.name: getattr(host.place, {"pods": "pod", "segments": "segment", "hosts": "index"}[between])
        for host in lab.hosts
    }
    groups = {
        host.name: {"pods": (), "segments": (host.place.pod,), "hosts": (host.place.pod, host.place.segment)}[between]  # type: ignore[union-attr]
        for host in lab.hosts
    }
    first = {unit for unit in units.values() if unit <= max(units.values()) // 2}
    ports = [link for link in lab.links if link.kind is LinkKind.ACCESS]
    plane = {node.name: node.place.plane for node in lab.switches if node.place is not None}
    used: dict[tuple[int, str], float] = defaultdict(float)
    rates: dict[tuple[int, str], int] = {}
    for one in ports:
        others = [
            other
            for other in ports
            if groups[other.a.node] == groups[one.a.node]
            and (units[other.a.node] in first) != (units[one.a.node] in first)
            and plane[other.b.node] == plane[one.b.node]
            and (other.rail == one.rail or pattern is ALL)
        ]
        for other in others:
            amounts = {one.b.node: one.rate.bps / len(others)}
            for switch, hops in shortest_hops(lab, one.b.node, other.b.node):
                amount = amounts.pop(switch)
                for neighbour, link in hops:
                    used[id(link), switch] += amount / len(hops)
                    rates[id(link), switch] = link.rate.bps
                    amounts[neighbour] = amounts.get(neighbour, 0.0) + amount / len(hops)
    return max((load / rates[link] for link, load in used.items()), default=0.0)


SHAPES: list[tuple[str, dict[str, object]]] = [
    ("rail-optimized", {"pods": 2, "segments": 2, "hosts": 4, "gpus": 2, "spines": 2, "super_spines": 2}),
    (
        "rail-optimized",
        {"pods": 2, "segments": 2, "hosts": 4, "gpus": 4, "spines": 4, "super_spines": 2, "super_spine_groups": 2},
    ),
    ("multi-rail-switch", {"segments": 2, "hosts": 4, "gpus": 8, "spines": 2}),
    ("rail-optimized", {"segments": 4, "hosts": 6, "gpus": 4, "spines": 2, "rails": RailParams(per_switch=1)}),
    ("pod", {"segments": 2, "hosts": 4, "gpus": 4, "spines": 2}),
    ("shared-nic", {"segments": 2, "hosts": 6}),
]


@pytest.mark.parametrize(("design", "shape"), SHAPES)
def test_classes_of_switches_carry_what_pairs_of_nics_do(design: str, shape: dict[str, object]) -> None:
    lab = build(design, **shape)
    found = ratios(lab)
    levels = [level for level in ("hosts", "segments", "pods") if (level, ALL) in found]
    assert levels
    for level, pattern in product(levels, (RAIL, ALL)):
        assert found[level, pattern] == pytest.approx(max(1.0, counted(lab, level, pattern))), (level, pattern)


@pytest.mark.thorough
def test_a_fabric_of_32768_gpus() -> None:
    """Three tiers of switches with k ports for N GPUs: 5N/k switches and 3N links (Al-Fares et al., SIGCOMM 2008).
    Public sizing of clusters of 8-GPU nodes on 64-port switches counts the same: 2,560 for 32,768 GPUs."""
    lab = build(
        "rail-optimized",
        pods=16,
        segments=4,
        hosts=64,
        gpus=8,
        spines=32,
        uplink=UplinkParams(count=2),
        core_uplink=UplinkParams(count=1),
        super_spines=256,
        super_spine_groups=4,
        switch_radix=128,
    )
    sizing = measure_sizing(lab)
    assert (sizing.gpus, sizing.switches, sizing.links) == (32768, 5 * 32768 // 128, 3 * 32768)
    assert [role.ports for role in sizing.roles] == [128, 128, 128]
    assert {load.oversubscription for load in sizing.traffic} == {1.0}
    assert len(sizing.traffic) == 6
