"""Sizing: ports against the radix, oversubscription, bisection bandwidth, equal-cost paths; generated and by hand."""

from dataclasses import replace

import pytest
from equal_paths import equal_cost_paths
from hand_made import by_hand

from testbed.base.units import Rate
from testbed.lab.core.fabric import (
    FabricParams,
    NicParams,
    PathCount,
    Relation,
    UplinkParams,
    check_sizing,
    generate_fabric,
    measure_bisection,
    measure_sizing,
)
from testbed.lab.core.fabric.forwarding.next_hops import find_faults
from testbed.lab.core.fabric.graph import LabGraph
from testbed.lab.core.model import End, Lab, Link, LinkKind, Node, NodeKind, Role, Routing

G = 10**9


def build(design: str, **written: object) -> Lab:
    return generate_fabric(FabricParams(design=design, **written), name="lab")  # type: ignore[arg-type]


def path_count(relation: Relation, paths: int, switches: int) -> PathCount:
    """The same number of paths between all NICs of a relation, through the same number of switches."""
    return PathCount(relation=relation, fewest=paths, most=paths, fewest_switches=switches, most_switches=switches)


BY_ONE_SWITCH_OR_THREE = PathCount(relation=Relation.HAND_WRITTEN, fewest=1, most=2, fewest_switches=1, most_switches=3)


def nic(text: str) -> End:
    node, interface = text.split(":")
    return End(node=node, interface=interface)


LEAF_SPINE = {"leaf1": Role.RAIL, "leaf2": Role.RAIL, "spine1": Role.SPINE, "spine2": Role.SPINE}


def two_leaves() -> Lab:
    return by_hand(
        [
            ("h1", "leaf1", 100),
            ("h2", "leaf1", 100),
            ("h3", "leaf2", 100),
            ("h4", "leaf2", 100),
            ("leaf1", "spine1", 100),
            ("leaf1", "spine2", 40),
            ("leaf2", "spine1", 100),
            ("leaf2", "spine2", 100),
        ],
        LEAF_SPINE,
    )


def test_the_pod_of_figure_13_8_is_non_blocking() -> None:
    """32 x 100G down and 3.2T up on each rail switch, 64 GPUs."""
    sizing = measure_sizing(build("pod"))
    rail, spine = sizing.roles
    assert (sizing.hosts, sizing.gpus, sizing.nics, sizing.links) == (8, 64, 64, 160)
    assert (sizing.host_links, sizing.rail_spine_links, sizing.spine_super_spine_links) == (128, 32, 0)
    assert (rail.switches, rail.ports, rail.downlink_bps, rail.uplink_bps) == (4, 40, 4 * 3200 * G, 4 * 3200 * G)
    assert (rail.oversubscription, spine.oversubscription) == (1.0, None)
    assert (sizing.bisection.between, sizing.bisection.share) == ("segments", 1.0)


def test_the_multi_pod_of_figure_13_9_is_non_blocking_between_pods() -> None:
    sizing = measure_sizing(build("multi-pod"))
    assert [role.oversubscription for role in sizing.roles] == [1.0, 1.0, None]
    assert (sizing.bisection.between, sizing.bisection.bandwidth_bps) == ("pods", 64 * 200 * G)


def test_oversubscription_shows_in_the_bisection() -> None:
    sizing = measure_sizing(build("rail-optimized", pods=2, hosts=64, spines=8, super_spines=8))
    assert sizing.roles[0].oversubscription == 8.0
    assert sizing.bisection.share == 1 / 8


def test_a_thin_core_is_the_bisection() -> None:
    thin = UplinkParams(rate=Rate.parse("100G"))
    sizing = measure_sizing(build("rail-optimized", pods=2, hosts=4, gpus=2, spines=4, core_uplink=thin))
    assert sizing.bisection.bandwidth_bps == 4 * 4 * 100 * G
    assert sizing.bisection.access_bps == 4 * 2 * 400 * G


def test_shared_nics_count_gpus_and_nics_apart() -> None:
    sizing = measure_sizing(build("shared-nic"))
    assert (sizing.gpus, sizing.nics) == (32, 8)


def test_rails_of_one_host_alone_have_no_bisection() -> None:
    assert measure_bisection(build("rail-only", hosts=1)) is None


def test_radix_is_checked_by_role() -> None:
    lab = build("multi-pod", switch_radix=39)
    assert [str(error) for error in check_sizing(lab)] == [
        "rail switch p1-s1-rail1a has 40 ports in use; switch_radix is 39\n"
        "  hint: fewer hosts a segment, fewer rails a switch, fewer spines or parallel uplinks, or a larger switch"
    ]
    assert check_sizing(lab)[0].field == "switch_radix"
    assert [role.fits for role in measure_sizing(lab).roles] == [False, True, True]
    assert len(check_sizing(replace(lab, switch_radix=15))) == 3
    assert check_sizing(replace(lab, switch_radix=40)) == ()
    assert check_sizing(replace(lab, switch_radix=None)) == ()
    leaf_alone = replace(lab, switch_radix=None, tier_radix={"rail": 39})
    assert [fault.message for fault in check_sizing(leaf_alone)] == [
        "rail switch p1-s1-rail1a has 40 ports in use; switch_radix is 39"
    ]
    assert check_sizing(replace(lab, switch_radix=39, tier_radix={"rail": 40})) == ()


@pytest.mark.parametrize(
    ("a", "b", "paths"),
    [
        ("p1-s1-h1:rail1", "p1-s1-h2:rail1", 1),
        ("p1-s1-h1:rail1", "p1-s1-h2:rail2", 8),
        ("p1-s1-h1:rail1", "p1-s2-h2:rail1", 8),
        ("p1-s1-h1:rail1", "p2-s2-h2:rail2", 8 * 6 * 8),
    ],
)
def test_paths_between_two_gpus(a: str, b: str, paths: int) -> None:
    lab = build("rail-optimized", pods=2, segments=2, hosts=2, gpus=2, spines=8, super_spines=6)
    assert equal_cost_paths(lab, nic(a), nic(b)) == paths
    assert equal_cost_paths(lab, nic(b), nic(a)) == paths


def test_parallel_links_are_paths_of_their_own() -> None:
    lab = build("six-by-four")
    assert equal_cost_paths(lab, nic("p1-s1-h1:rail1"), nic("p1-s1-h2:rail3")) == 2 * 3 * 3


@pytest.mark.parametrize(
    ("spines", "links", "ecmp", "paths"),
    [(66, 1, 64, 64), (66, 1, 66, 66), (22, 3, 64, 64 * 3), (66, 1, 224, 66), (2, 2, 1, 1)],
)
def test_paths_are_those_that_routing_installs(spines: int, links: int, ecmp: int, paths: int) -> None:
    """A switch installs `ecmp` next hops. Of three links down from each spine, a spine uses all."""
    params = {"spines": spines, "uplink": UplinkParams(count=links), "routing": Routing(ecmp=ecmp)}
    lab = build("rail-optimized", segments=2, hosts=1, gpus=1, **params)
    assert equal_cost_paths(lab, nic("p1-s1-h1:rail1"), nic("p1-s2-h1:rail1")) == paths
    assert measure_sizing(lab).paths == (path_count(Relation.INTER_SEGMENT, paths, 3),)


def test_paths_through_super_spines_are_limited_at_each_tier() -> None:
    """A leaf installs 3 of its 4 spines, a spine 3 of its 8 links up, a super-spine 2 links to a spine of the pod."""
    core = UplinkParams(count=2)
    routing = Routing(ecmp=3)
    shape = {"pods": 2, "segments": 1, "hosts": 1, "gpus": 1, "spines": 4, "super_spines": 4, "super_spine_groups": 4}
    lab = build("rail-optimized", core_uplink=core, routing=routing, **shape)
    assert equal_cost_paths(lab, nic("p1-s1-h1:rail1"), nic("p2-s1-h1:rail1")) == 3 * 2 * 2
    wide = build("rail-optimized", core_uplink=UplinkParams(count=4), routing=routing, **shape)
    assert equal_cost_paths(wide, nic("p1-s1-h1:rail1"), nic("p2-s1-h1:rail1")) == 3 * 3 * 3


def test_what_is_wider_than_ecmp_carries_less() -> None:
    """8 hosts of 100G under 8 spines of 100G, and ECMP of 6."""
    rate = Rate.parse("100G")
    shape = {"segments": 2, "hosts": 8, "gpus": 1, "spines": 8, "uplink": UplinkParams(rate=rate)}
    lab = build("rail-optimized", nic=NicParams(rate=rate), routing=Routing(ecmp=6), **shape)
    bisection = measure_bisection(lab)
    assert (bisection.bandwidth_bps, bisection.ecmp_bps) == (800 * G, 600 * G)


@pytest.mark.parametrize(
    ("uplinks", "downlinks", "evenly"),
    [
        ((300, 100), (300, 300), 200),  # the link of a group itself
        ((300, 300), (300, 100), 200),  # the way behind one
        ((200, 200), (200, 200), 400),
        ((150, 150), (150, 150), 300),  # too few, but even
    ],
)
def test_plain_ecmp_gives_every_next_hop_an_equal_share(
    uplinks: tuple[int, int], downlinks: tuple[int, int], evenly: int
) -> None:
    lab = by_hand(
        [
            ("h1", "leaf1", 400),
            ("h2", "leaf2", 400),
            ("leaf1", "spine1", uplinks[0]),
            ("leaf1", "spine2", uplinks[1]),
            ("leaf2", "spine1", downlinks[0]),
            ("leaf2", "spine2", downlinks[1]),
        ],
        LEAF_SPINE,
    )
    bisection = measure_bisection(lab)
    ideal = min(400, min(uplinks[0], downlinks[0]) + min(uplinks[1], downlinks[1]))
    assert (bisection.bandwidth_bps, bisection.ecmp_bps) == (ideal * G, evenly * G)
    graph = LabGraph(lab)
    faults = find_faults(graph.switches, graph.nics, 64)
    assert bool(faults.uneven) is (evenly < ideal)
    for hops in faults.uneven.values():
        assert (hops.evenly_bps, hops.all_bps) == (evenly * G, ideal * G)
        assert hops.slowest.rate.bps == 100 * G


def test_path_summary_by_relation() -> None:
    lab = build("rail-optimized", pods=2, segments=2, hosts=2, gpus=2, spines=4, super_spines=4, super_spine_groups=2)
    assert measure_sizing(lab).paths == (
        path_count(Relation.SAME_RAIL, 1, 1),
        path_count(Relation.CROSS_RAIL, 4, 3),
        path_count(Relation.INTER_SEGMENT, 4, 3),
        path_count(Relation.INTER_POD, 16, 5),
    )


def test_isolated_rails_have_no_path() -> None:
    lab = build("rail-only")
    assert equal_cost_paths(lab, nic("p1-s1-h1:rail1"), nic("p1-s1-h2:rail2")) == 0
    assert path_count(Relation.CROSS_RAIL, 0, 0) in measure_sizing(lab).paths


def test_planes_are_not_compared() -> None:
    lab = build("rail-optimized", gpus=1, hosts=2, spines=2, nic=NicParams(ports=2))
    assert [path.relation for path in measure_sizing(lab).paths] == [Relation.SAME_RAIL]
    assert equal_cost_paths(lab, nic("p1-s1-h1:rail1a"), nic("p1-s1-h2:rail1b")) == 2


def test_a_hand_written_graph() -> None:
    """Not symmetric: leaf1 has 140G up for 200G down, so the halves get 140G of 200G."""
    sizing = measure_sizing(two_leaves())
    assert (sizing.hosts, sizing.gpus, sizing.nics, sizing.switches) == (4, 4, 4, 4)
    assert (sizing.links, sizing.host_links, sizing.rail_spine_links, sizing.fabric_links) == (8, 4, 4, 4)
    assert [role.oversubscription for role in sizing.roles] == [pytest.approx(200 / 140), None]
    assert (sizing.bisection.between, sizing.bisection.bandwidth_bps) == ("hosts", 140 * G)
    assert sizing.bisection.ecmp_bps == 80 * G
    assert sizing.paths == (BY_ONE_SWITCH_OR_THREE,)
    assert equal_cost_paths(two_leaves(), nic("h1:eth1"), nic("h4:eth1")) == 2
    assert equal_cost_paths(two_leaves(), nic("h1:eth1"), nic("h2:eth1")) == 1


def test_bisection_takes_turns_where_the_shortest_path_is_not_enough() -> None:
    """A ring of four switches: flow goes both ways round, the longer one too."""
    ring = dict.fromkeys(("s1", "s2", "s3", "s4"), Role.RAIL)
    lab = by_hand(
        [("h1", "s1", 100), ("h2", "s2", 100), ("s1", "s2", 30), ("s2", "s3", 50), ("s3", "s4", 20), ("s4", "s1", 50)],
        ring,
    )
    bisection = measure_bisection(lab)
    assert bisection.bandwidth_bps == 50 * G


def test_disconnected_hosts() -> None:
    lab = by_hand([("h1", "leaf1", 100), ("h2", "leaf2", 100)], LEAF_SPINE)
    sizing = measure_sizing(lab)
    assert sizing.bisection.bandwidth_bps == 0
    assert equal_cost_paths(lab, nic("h1:eth1"), nic("h2:eth1")) == 0
    assert sizing.paths == (path_count(Relation.HAND_WRITTEN, 0, 0),)


def test_hosts_linked_back_to_back() -> None:
    lab = by_hand([("h1", "h2", 100), ("h3", "leaf1", 100)], LEAF_SPINE)
    assert equal_cost_paths(lab, nic("h1:eth1"), nic("h2:eth1")) == 1
    assert equal_cost_paths(lab, nic("h1:eth1"), nic("h3:eth1")) == 0
    assert measure_bisection(lab) is None


def test_a_probe_beside_a_generated_fabric() -> None:
    """It is counted and sized, and it does not move the halves of the bisection."""
    fabric = build("rail-optimized", hosts=2, gpus=2, spines=2)
    probe = Node(name="probe1", kind=NodeKind.HOST)
    link = Link(
        a=nic("probe1:eth1"), b=nic("p1-s1-rail1:extra1"), kind=LinkKind.ROUTED, rate=Rate.parse("100G"), mtu_bytes=1500
    )
    mixed = replace(fabric, nodes=(*fabric.nodes, probe), links=(*fabric.links, link))
    before, after = measure_sizing(fabric), measure_sizing(mixed)
    assert (after.hosts, after.gpus, after.roles[0].ports) == (before.hosts + 1, before.gpus, before.roles[0].ports + 1)
    assert after.bisection == before.bisection
    assert after.paths == (*before.paths, BY_ONE_SWITCH_OR_THREE)
    assert equal_cost_paths(mixed, nic("probe1:eth1"), nic("p1-s1-h1:rail2")) == 2


@pytest.mark.parametrize(
    ("spines", "links", "ecmp", "leaf"), [(8, 1, 64, (8, 8)), (66, 1, 64, (66, 64)), (22, 3, 66, (66, 66))]
)
def test_the_width_of_ecmp_by_tier(spines: int, links: int, ecmp: int, leaf: tuple[int, int]) -> None:
    """A leaf has so many ways up, and installs some; a spine has its links to a leaf."""
    params = {"spines": spines, "uplink": UplinkParams(count=links), "routing": Routing(ecmp=ecmp)}
    widths = measure_sizing(build("rail-optimized", segments=2, hosts=1, gpus=1, **params)).widths
    assert [(one.role, one.ways, one.installed) for one in widths] == [(Role.RAIL, *leaf), (Role.SPINE, links, links)]


def test_switches_without_ways_have_no_width() -> None:
    assert measure_sizing(build("rail-only")).widths == ()
