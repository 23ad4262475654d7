"""The oracles of a subnet's tables, on subnets whose answers are known."""

from dataclasses import replace

import pytest
from fat_trees import fat_tree, ring

from testbed.protocols.infiniband.routes import is_full_fat_tree, judge_routes, order_hcas
from testbed.protocols.infiniband.subnet import NO_PORT


def test_d_mod_k_on_a_full_tree_is_free_of_contention_in_every_shift() -> None:
    report = judge_routes(fat_tree(4, 4, 4))
    assert (report.hcas, report.pairs, report.broken) == (16, 240, 0)
    assert report.longest == 4, "HCA, leaf, spine, leaf"
    assert report.free_shifts == 15 == len(report.worst_flows)
    assert not report.cycle


def test_one_spine_for_all_contends() -> None:
    report = judge_routes(fat_tree(4, 4, 4, by_destination=False))
    assert report.broken == 0
    assert max(report.worst_flows) == 4, "a shift by a whole leaf has four flows on each leaf's first uplink"
    assert report.worst_flows[3] == 4
    assert report.free_shifts < 15


def test_a_missing_entry_and_a_cut_link_break_pairs() -> None:
    whole = fat_tree(2, 2, 2)
    table = bytearray(whole.lfts["leaf0"])
    table[whole.nodes["h3"].lid] = NO_PORT
    report = judge_routes(replace(whole, lfts={**whole.lfts, "leaf0": bytes(table)}))
    assert report.broken == 2
    assert set(report.broken_pairs) == {("h0", "h3"), ("h1", "h3")}
    cut = replace(whole, links=tuple(link for link in whole.links if (link.a, link.a_port) != ("h3", 1)))
    assert judge_routes(cut).broken == 6, "nobody reaches h3, and h3 reaches nobody"


def test_a_loop_of_tables_ends() -> None:
    whole = ring(3)
    away = {name: bytes([NO_PORT, 2, *table[2:]]) for name, table in whole.lfts.items()}
    report = judge_routes(replace(whole, lfts=away))
    assert report.broken == 2, "what is for h0 goes round for ever"


def test_a_ring_on_one_lane_has_a_cycle_and_lanes_break_it() -> None:
    one = ring(3)
    report = judge_routes(one)
    assert report.broken == 0
    assert report.cyclic_lane == 0
    assert {name for name, _ in report.cycle} == {"s0", "s1", "s2"}
    sls = {(one.nodes["h2"].lid, one.nodes["h1"].lid): 1}  # the one path on which s2's link waits for s0's
    sl2vl = (0, 1, *(0,) * 14)
    apart = judge_routes(replace(one, sls=sls, vls=2, sl2vl=sl2vl))
    assert (apart.lanes, apart.cyclic_lane, apart.cycle) == ((0, 1), -1, ())
    together = judge_routes(replace(one, sls=sls, vls=1))
    assert together.cyclic_lane == 0, "the same levels on one lane are no help"


@pytest.mark.parametrize(("leaves", "hosts", "spines", "full"), [(4, 4, 4, True), (4, 4, 2, False), (2, 1, 1, True)])
def test_full_trees_are_told(leaves: int, hosts: int, spines: int, full: bool) -> None:
    assert is_full_fat_tree(fat_tree(leaves, hosts, spines)) is full


def test_a_tree_without_one_uplink_is_not_full_and_a_ring_is_none() -> None:
    whole = fat_tree(4, 4, 4)
    assert not is_full_fat_tree(replace(whole, links=whole.links[:-1]))
    assert not is_full_fat_tree(ring(4))


def test_a_tree_has_its_own_order_whatever_its_hosts_are_called() -> None:
    """By GUIDs of which the next one is at another leaf, a shift would have two flows from one leaf to one spine."""
    whole = fat_tree(4, 4, 4)
    guids = [node.guid for node in whole.hcas]
    mixed = [guids[number * 7 % 16] for number in range(16)]
    nodes = {node.name: replace(node, guid=guid) for node, guid in zip(whole.hcas, mixed, strict=True)}
    renamed = replace(whole, nodes={**whole.nodes, **nodes})
    assert [node.name for node in renamed.hcas] != [node.name for node in whole.hcas]
    assert order_hcas(renamed) == order_hcas(whole) == [f"h{number}" for number in range(16)]
    assert judge_routes(renamed).free_shifts == 15
    assert order_hcas(ring(4)) == ["h0", "h1", "h2", "h3"], "no tree: by GUIDs"


def test_leaves_that_share_some_spines_and_not_all_are_promised_nothing() -> None:
    """Each leaf has two uplinks and two hosts, and each spine two leaves, but no two leaves have the same spines."""
    whole = fat_tree(4, 2, 4)
    kept = {leaf: {leaf, (leaf + 1) % 4} for leaf in range(4)}
    links = [
        link
        for link in whole.links
        if not link.b.startswith("spine") or int(link.b[5:]) in kept[int(link.a.removeprefix("leaf"))]
    ]
    assert not is_full_fat_tree(replace(whole, links=tuple(links)))
    pairs = {0: {0, 1}, 1: {0, 1}, 2: {2, 3}, 3: {2, 3}}
    apart = [
        link
        for link in whole.links
        if not link.b.startswith("spine") or int(link.b[5:]) in pairs[int(link.a.removeprefix("leaf"))]
    ]
    assert is_full_fat_tree(replace(whole, links=tuple(apart))), "two trees beside each other"
