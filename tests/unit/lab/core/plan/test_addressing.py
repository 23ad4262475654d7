"""Addresses, AS numbers, MACs and interface indexes: the values of the documents, and every limit."""

from dataclasses import replace
from ipaddress import IPv4Interface, IPv4Network

import pytest

from testbed.base.errors import PlanError
from testbed.base.units import Rate
from testbed.lab.core.fabric import FabricParams, generate_fabric
from testbed.lab.core.model import End, Lab, Link, LinkKind, Node, NodeKind, Place, Protocol, RailSubnet, Role, Routing
from testbed.lab.core.plan.addressing import (
    Net,
    check_overlap,
    host_address,
    loopback_addresses,
    rail_block,
    rail_network,
)
from testbed.lab.core.plan.asn import (
    BLOCK_SIZE,
    HOSTS_FIRST,
    HOSTS_SIZE,
    PRIVATE_FIRST,
    PRIVATE_LAST,
    WRITTEN_OFFSET,
    as_numbers,
)
from testbed.lab.core.plan.interfaces import interface_indexes, mac_addresses, natural_key, same_names
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan, PortPlan, SwitchPlan
from testbed.lab.core.plan.stable import SLOTS, probe_numbers, slot_for, stable_hash


def rail_subnet(**changes: int) -> RailSubnet:
    values = {"rail": 1, "slot": 0, "prefix_length": 24, "aggregate_length": 24, **changes}
    return RailSubnet(switch="p1-s1-rail1", **values)


def switch(name: str, role: Role, *, asn: int | None = None, place: Place | None = None, pod: str = "") -> Node:
    labels = {"pod": pod} if pod else {}
    return Node(name=name, kind=NodeKind.SWITCH, role=role, asn=asn, place=place, labels=labels)


def ports(plan: LabPlan) -> dict[str, PortPlan]:
    return {f"{port.node}:{port.name}": port for port in plan.ports}


def switches(plan: LabPlan) -> dict[str, SwitchPlan]:
    return {entry.node: entry for entry in plan.switches}


def test_dual_rail_switches_have_the_subnets_of_figure_13_11() -> None:
    plan = plan_lab(generate_fabric(FabricParams(design="dual-rail-switch", hosts=2), name="x"), k=1000)
    assert switches(plan)["p1-s1-rail1"].networks[:2] == (IPv4Network("10.0.1.0/25"), IPv4Network("10.0.1.128/25"))


@pytest.mark.parametrize(
    ("place", "block"),
    [
        (Place(pod=1, segment=1, index=1), 1),
        (Place(pod=1, segment=1, index=32), 32),
        (Place(pod=1, segment=2, index=1), 33),
        (Place(pod=2, segment=1, index=1), 2049),
        (Place(pod=1, segment=1, index=1, plane=1), 1),
        (Place(pod=1, segment=1, index=8, plane=1), 8),
        (Place(pod=1, segment=1, index=1, plane=2), 9),
        (Place(pod=1, segment=1, index=8, plane=4), 32),
    ],
)
def test_rail_switches_are_numbered_by_place(place: Place, block: int) -> None:
    assert rail_block(place, "x") == block


@pytest.mark.parametrize(
    "place",
    [
        Place(pod=1, segment=1, index=33),
        Place(pod=1, segment=1, index=9, plane=1),
        Place(pod=1, segment=1, index=1, plane=5),
        Place(pod=1, segment=65, index=1),
        Place(pod=65, segment=1, index=1),
    ],
)
def test_a_rail_switch_outside_of_the_numbering_is_refused(place: Place) -> None:
    with pytest.raises(PlanError) as refused:
        rail_block(place, "x")
    assert refused.value.code == "address-space"


def test_the_last_rail_switch_of_10_0_0_0_8_fits_and_the_next_does_not() -> None:
    last = Place(pod=32, segment=64, index=31)
    assert rail_network(last, rail_subnet()).network() == IPv4Network("10.255.255.0/24")
    with pytest.raises(PlanError, match=r"10\.0\.0\.0/8"):
        rail_network(Place(pod=32, segment=64, index=32), rail_subnet())


def test_a_rail_outside_of_its_aggregate_is_refused() -> None:
    place = Place(pod=1, segment=1, index=1)
    assert rail_network(place, rail_subnet(slot=1, prefix_length=25)).network() == IPv4Network("10.0.1.128/25")
    with pytest.raises(PlanError, match="does not fit"):
        rail_network(place, rail_subnet(slot=2, prefix_length=25))


def test_a_rail_holds_as_many_hosts_as_its_subnet() -> None:
    net = Net(10 << 24, 28, "rail 1 of x")
    assert host_address(net, 13, "h13") == (10 << 24) + 14
    with pytest.raises(PlanError, match="holds 13 hosts"):
        host_address(net, 14, "h14")


def test_loopbacks_tell_the_tier() -> None:
    found = loopback_addresses(
        [
            switch("ss2", Role.SUPER_SPINE, place=Place(index=2)),
            switch("p2-spine3", Role.SPINE, place=Place(pod=2, index=3)),
            switch("p1-s1-rail1", Role.RAIL, place=Place(pod=1, segment=1, index=1)),
            switch("own", Role.RAIL),
        ]
    )
    assert found["ss2"] == (172 << 24) + (16 << 16) + 2
    assert found["p2-spine3"] == (172 << 24) + (17 << 16) + 1024 + 3
    assert found["p1-s1-rail1"] == (172 << 24) + (18 << 16) + 1
    assert IPv4Network("172.20.0.0/14").network_address <= IPv4Interface(found["own"]).ip


@pytest.mark.parametrize(
    "node",
    [
        switch("a", Role.SPINE, place=Place(pod=1, index=1024)),
        switch("a", Role.SPINE, place=Place(pod=65, index=1)),
        switch("a", Role.SUPER_SPINE, place=Place(index=65535)),
    ],
)
def test_a_loopback_outside_of_its_range_is_refused(node: Node) -> None:
    with pytest.raises(PlanError):
        loopback_addresses([node])


def test_overlapping_networks_are_refused_by_name() -> None:
    check_overlap([Net(0, 24, "a"), Net(256, 24, "b")])
    with pytest.raises(PlanError, match=r"b \(0\.0\.0\.128/25\) overlaps a"):
        check_overlap([Net(128, 25, "b"), Net(0, 24, "a")])


def test_as_numbers_do_not_change_with_the_name_or_the_slot_of_a_lab() -> None:
    lab = generate_fabric(FabricParams(design="rail-optimized", pods=2, gpus=2, hosts=1, spines=2), name="x")
    other = replace(lab, name="quite-another")
    first, second = plan_lab(lab, slot=3, k=1000), plan_lab(other, slot=500, k=1000)
    assert [switch.asn for switch in first.switches] == [switch.asn for switch in second.switches]


def test_hand_written_switches_join_the_plan_by_role() -> None:
    nodes = [
        switch("own", Role.RAIL, asn=65001),
        switch("leaf", Role.RAIL),
        switch("mid", Role.SPINE, pod="2"),
        switch("mid1", Role.SPINE),
        switch("top", Role.SUPER_SPINE),
    ]
    asns = as_numbers(nodes, protocol=Protocol.EBGP)
    assert asns["own"] == 65001
    assert PRIVATE_FIRST + WRITTEN_OFFSET <= asns["leaf"] < PRIVATE_FIRST + BLOCK_SIZE
    assert (asns["mid"], asns["mid1"], asns["top"]) == (PRIVATE_FIRST + 2, PRIVATE_FIRST + 1, PRIVATE_FIRST)


def test_an_explicit_as_number_is_not_given_to_another() -> None:
    leaf = as_numbers([switch("leaf", Role.RAIL)], protocol=Protocol.EBGP)["leaf"]
    asns = as_numbers([switch("leaf", Role.RAIL), switch("own", Role.RAIL, asn=leaf)], protocol=Protocol.EBGP)
    assert asns["leaf"] != asns["own"] == leaf


@pytest.mark.parametrize("label", ["x", "0", "1024", "-1"])
def test_a_pod_label_that_is_no_pod_is_refused(label: str) -> None:
    with pytest.raises(PlanError, match="label pod"):
        as_numbers([switch("mid", Role.SPINE, pod=label)], protocol=Protocol.EBGP)


def test_ibgp_is_one_as() -> None:
    nodes = [switch("a", Role.RAIL), switch("b", Role.SPINE, asn=65001)]
    assert set(as_numbers(nodes, protocol=Protocol.IBGP).values()) == {65001}
    with pytest.raises(PlanError, match="one AS"):
        as_numbers([*nodes, switch("c", Role.RAIL, asn=65002)], protocol=Protocol.IBGP)


def test_all_numbers_stay_in_the_private_range_and_a_slot_follows_from_the_name() -> None:
    assert PRIVATE_FIRST + BLOCK_SIZE <= HOSTS_FIRST
    assert HOSTS_FIRST + HOSTS_SIZE - 1 <= PRIVATE_LAST
    assert 0 <= slot_for("any") < SLOTS
    assert slot_for("any") == slot_for("any")


def test_two_neighbours_of_one_as_are_refused() -> None:
    link = Link(
        a=End(node="a", interface="e1"),
        b=End(node="b", interface="e1"),
        kind=LinkKind.FABRIC,
        rate=Rate.parse("1G"),
        mtu_bytes=1500,
    )
    nodes = (switch("a", Role.SPINE), switch("b", Role.SPINE))
    with pytest.raises(PlanError, match="no eBGP session"):
        plan_lab(Lab(name="x", nodes=nodes, links=(link,)), k=1)
    assert plan_lab(Lab(name="x", nodes=nodes, links=(link,), routing=Routing(protocol=Protocol.IBGP)), k=1)


def test_generated_names_have_indexes_of_their_own() -> None:
    names = ["rail1", "rail1a", "rail1d", "rail2", "nic1", "nic2b", "uplink1", "down1", "down1024", "eth0", "extra1"]
    indexes = interface_indexes(names, "x")
    assert len(set(indexes.values())) == len(names)
    assert indexes["uplink1"] == 1025
    assert indexes["down1024"] == 4096 + 1024
    assert indexes["eth0"] == interface_indexes(["eth0"], "y")["eth0"] >= 16384
    apart = same_names([(("x", "eth0"), ("y", "eth0")), (("x", "eth1"), ("y", "eth2"))])
    assert apart == {"y": {"eth0"}}, "one end of a link whose ends are called the same"
    other = interface_indexes(["eth0"], "y", apart["y"])["eth0"]
    assert other >= 16384 and other != indexes["eth0"]
    assert interface_indexes(["down1"], "y", {"down1"})["down1"] != interface_indexes(["down1"], "x")["down1"]


def test_macs_that_clash_are_settled_in_sorted_order(monkeypatch: pytest.MonkeyPatch) -> None:
    def narrow(text: str, bits: int = 64) -> int:
        return stable_hash(text, bits) % 4

    monkeypatch.setattr("testbed.lab.core.plan.interfaces.stable_hash", narrow)
    keys = [("n", f"e{i}") for i in range(4)]
    forwards, backwards = mac_addresses(keys, 0), mac_addresses(keys[::-1], 0)
    assert forwards == backwards
    assert len(set(forwards.values())) == 4


def test_natural_order() -> None:
    names = ["uplink10", "uplink2", "rail1b", "rail1a", "rail1", "down3"]
    assert sorted(names, key=natural_key) == ["down3", "rail1", "rail1a", "rail1b", "uplink2", "uplink10"]


def test_probing_gives_every_key_a_number_until_none_is_left() -> None:
    keys = [f"k{i}" for i in range(8)]
    assert sorted(probe_numbers(keys, size=8, what="number").values()) == list(range(8))
    assert probe_numbers(keys, size=8, what="number") == probe_numbers(keys[::-1], size=8, what="number")
    with pytest.raises(PlanError, match="no number left"):
        probe_numbers(keys, size=8, taken=[0], what="number")
