"""Planes: fabrics that share no switch, of the ports of NICs or of rails, with names and numbers of their own."""

from collections import Counter
from ipaddress import IPv4Address
from typing import Any

import pytest

from testbed.base.names import plane_of_switch
from testbed.lab.core.fabric import FabricParams, NicParams, RailParams, check_params, generate_fabric, measure_sizing
from testbed.lab.core.fabric.figures.failures import find_failure_domains
from testbed.lab.core.fabric.figures.traffic import TrafficPattern
from testbed.lab.core.fabric.forwarding.links import islands, planes_apart, shared_by_planes
from testbed.lab.core.fabric.graph import LabGraph
from testbed.lab.core.model import Lab, LinkKind, Role
from testbed.lab.core.plan.addressing import loopback_addresses
from testbed.lab.core.plan.asn import as_numbers, cluster_id
from testbed.lab.core.plan.lab import plan_lab


def build(design: str = "dual-plane", **written: Any) -> Lab:
    return generate_fabric(FabricParams(design=design, **written), name="lab")


def test_the_ports_of_a_nic_are_on_planes_that_share_no_switch() -> None:
    lab = build(segments=1, hosts=2, gpus=2)
    assert lab.planes == 2
    assert [node.name for node in lab.switches] == [
        *("p1-s1-rail1a", "p1-s1-rail1b", "p1-s1-rail2a", "p1-s1-rail2b"),
        *("p1-spine1a", "p1-spine2a", "p1-spine1b", "p1-spine2b"),
    ]
    nics = {str(link.a): link.b.node for link in lab.links if link.a.node == "p1-s1-h1"}
    assert nics == {f"p1-s1-h1:rail{rail}{plane}": f"p1-s1-rail{rail}{plane}" for rail in (1, 2) for plane in "ab"}
    above = {(link.a.node, link.b.node) for link in lab.links if link.kind is LinkKind.FABRIC}
    assert above == {
        (f"p1-s1-rail{rail}{plane}", f"p1-spine{spine}{plane}") for rail in (1, 2) for spine in (1, 2) for plane in "ab"
    }


def test_the_rails_of_a_host_are_in_planes_of_their_own() -> None:
    """DeepSeek's figure 3: eight NICs of a host, eight planes, and NICs that are called as without planes."""
    lab = build("multi-plane")
    links = [link for link in lab.links if link.a.node == "p1-s1-h1"]
    assert [str(link.a) for link in links] == [f"p1-s1-h1:rail{rail}" for rail in range(1, 9)]
    assert [link.b.node for link in links] == [f"p1-s1-rail{n}{letter}" for n, letter in enumerate("abcdefgh", 1)]
    assert len(islands(LabGraph(lab))) == lab.planes == 8


def test_rails_that_are_more_than_planes_take_turns() -> None:
    lab = build("multi-plane", gpus=4, planes=2)
    assert [node.name for node in lab.switches if node.role is Role.RAIL][:4] == [
        *("p1-s1-rail1a", "p1-s1-rail2b", "p1-s1-rail3a", "p1-s1-rail4b")
    ]


@pytest.mark.parametrize(
    "lab",
    [
        build(),
        build(planes=4, nic=NicParams(ports=4)),
        build(planes=8),
        build("multi-plane", gpus=4, planes=2),
        build("multi-plane", pods=2, super_spines=2, segments=1, hosts=1),
        build("multi-rail-switch", planes=2, nic=NicParams(ports=2)),
        build("dgx-superpod", planes=8, segments=1),
        build(pods=2, super_spines=2, super_spine_groups=2),
    ],
    ids=lambda lab: f"{lab.design}-{lab.planes}-{len(lab.nodes)}",
)
def test_every_plane_is_a_fabric_by_itself(lab: Lab) -> None:
    """No link leads from plane to plane, each is joined in itself, all are alike, and each switch has its port once."""
    planes = planes_apart(lab)
    assert set(planes) == {node.name for node in lab.switches}
    assert set(planes.values()) == set(range(1, lab.planes + 1))
    graph = LabGraph(lab)
    assert len(islands(graph)) == lab.planes
    assert {len({planes[name] for name in island}) for island in islands(graph)} == {1}
    assert shared_by_planes(lab, graph) is None
    sizes = Counter(planes[link.b.node] for link in lab.links)
    assert len(set(sizes.values())) == 1
    assert {plane_of_switch(name): plane for name, plane in planes.items()} == {
        letter: number for number, letter in enumerate("abcdefgh"[: lab.planes], 1)
    }
    ends = Counter(end for link in lab.links for end in (link.a, link.b))
    assert set(ends.values()) == {1}


def test_numbers_of_planes_are_their_own() -> None:
    """Loopbacks, AS numbers and clusters: none is in two planes, and those of plane a are as without planes."""
    lab = build(pods=2, super_spines=2)
    planes = planes_apart(lab)
    loopbacks = loopback_addresses(lab.switches)
    assert len(set(loopbacks.values())) == len(lab.switches)
    assert str(IPv4Address(loopbacks["p2-spine1b"])) == "172.24.36.1"
    assert str(IPv4Address(loopbacks["ss2b"])) == "172.16.32.2"
    numbers = as_numbers(lab.switches, protocol=lab.routing.protocol)
    first = numbers["ss1a"]
    assert [numbers[name] - first for name in ("p1-spine1a", "p2-spine2a", "ss1b", "p1-spine1b", "p2-spine1b")] == [
        *(1, 2, 64, 65, 66)
    ]
    owners: dict[object, set[int]] = {}
    for node in lab.switches:
        owners.setdefault(numbers[node.name], set()).add(planes[node.name])
        if (cluster := cluster_id(node)) is not None:
            owners.setdefault(cluster, set()).add(planes[node.name])
    assert {len(found) for found in owners.values()} == {1}


def test_no_switch_of_a_plane_has_a_route_to_another_one() -> None:
    lab = build(segments=2, hosts=2, gpus=2)
    plan = plan_lab(lab, k=1000.0)
    planes = planes_apart(lab)
    subnets = {nic.address.network: planes[nic.peer.partition(":")[0]] for host in plan.hosts for nic in host.nics}
    for switch, routes in plan.expected_routes.items():
        known = {subnets[route.prefix] for route in routes if route.prefix in subnets}
        assert known == {planes[switch]}


def test_sizing_knows_planes() -> None:
    lab = build(segments=2, hosts=4, gpus=8)
    graph = LabGraph(lab)
    sizing = measure_sizing(lab, graph)
    assert (sizing.gpus, sizing.nics, sizing.host_links, sizing.switches) == (64, 64, 128, 36)
    assert sizing.bisection.share == 1.0
    assert {load.oversubscription for load in sizing.traffic} == {1.0}
    found = {one.what: one for one in find_failure_domains(lab, graph)}
    assert (found["plane"].elements, found["plane"].affected, found["plane"].share) == (2, 64, 0.5)
    assert found["spine switch"].share == pytest.approx(0.25)


def test_all_to_all_stays_in_its_plane() -> None:
    """NICs of different planes are no part of the traffic: hosts pass on to the one in the right plane."""
    sizing = measure_sizing(build("multi-plane"))
    loads = [load for load in sizing.traffic if load.pattern is TrafficPattern.ALL_TO_ALL]
    assert {(load.joined, load.oversubscription) for load in loads} == {(1.0, 1.0)}
    found = {one.what: one for one in find_failure_domains(build("multi-plane"), LabGraph(build("multi-plane")))}
    assert (found["plane"].elements, found["plane"].affected, found["plane"].share) == (8, 8, 1.0)


@pytest.mark.parametrize(
    ("design", "written", "text"),
    [
        (
            "rail-optimized",
            {"planes": 4, "nic": NicParams(ports=2)},
            "NICs have 2 ports, one for each plane, and there are 4 planes\n  hint: planes: 2, or nic: {ports: 1}",
        ),
        (
            "rail-optimized",
            {"planes": 3},
            "8 rails do not divide into 3 planes of NICs with one port\n  hint: planes: 2",
        ),
        (
            "multi-rail-switch",
            {"planes": 2},
            "1 rail switches of a segment do not divide into 2 planes of NICs with one port\n  hint: nic: {ports: 2}",
        ),
        ("rail-optimized", {"planes": 9}, "planes is 9; it goes from 1 to 8"),
        ("dual-plane", {"planes": 1}, "design dual-plane needs planes of at least 2, not 1"),
    ],
)
def test_planes_that_cannot_be(design: str, written: dict[str, Any], text: str) -> None:
    (fault,) = check_params(FabricParams(design=design, **written))
    assert (fault.field, str(fault)) == ("planes", text)


def test_planes_have_no_more_pods_than_numbers() -> None:
    written: dict[str, Any] = {"segments": 1, "hosts": 1, "gpus": 1, "spines": 1, "super_spines": 1}
    (fault,) = check_params(FabricParams(design="dual-plane", pods=32, **written))
    assert (fault.field, fault.message) == ("pods", "pods is 32; with planes it goes from 1 to 31")
    lab = build(pods=31, **written)
    loopbacks, numbers = loopback_addresses(lab.switches), as_numbers(lab.switches, protocol=lab.routing.protocol)
    assert len(set(loopbacks.values())) == len(lab.switches) == 31 * 4 + 2
    spines = {node.name: numbers[node.name] for node in lab.switches if node.role is not Role.RAIL}
    assert len(set(spines.values())) == 2 * 31 + 2


def test_three_planes_of_ports_may_be_said_by_either() -> None:
    """A NIC with three ports has three planes, and three planes have NICs of three ports."""
    by_planes = build(planes=3, segments=1, hosts=1, gpus=1, spines=1)
    by_ports = build(nic=NicParams(ports=3), segments=1, hosts=1, gpus=1, spines=1)
    assert by_planes == by_ports
    assert [str(link.a) for link in by_ports.links if link.a.node == "p1-s1-h1"] == [
        "p1-s1-h1:rail1a", "p1-s1-h1:rail1b", "p1-s1-h1:rail1c",
    ]  # fmt: skip


def test_two_planes_of_rails_on_switches_of_several_rails() -> None:
    lab = build("dual-rail-switch", planes=2, rails=RailParams(per_switch=2))
    assert Counter(link.b.node[-1] for link in lab.links if link.a.node == "p1-s1-h1") == {"a": 4, "b": 4}


def test_eight_ports_of_a_nic_have_eight_indexes() -> None:
    plan = plan_lab(build(planes=8, segments=1, hosts=1, gpus=2, spines=1), k=1000.0)
    indexes = [nic.ifindex for nic in plan.hosts[0].nics]
    assert len(indexes) == len(set(indexes)) == 16
    assert [nic.name for nic in plan.hosts[0].nics][:8] == [f"rail1{letter}" for letter in "abcdefgh"]
