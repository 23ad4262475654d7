"""Planning of scale-up domains by packets: wires, namespaces, and the operations that make them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testbed.base.errors import PlanError
from testbed.base.units import Rate
from testbed.lab.core.fabric import FabricParams, generate_fabric
from testbed.lab.core.model import SCALE_UP_PRESETS, Credits, Lab, LinkRetry, Node, NodeKind, ScaleUpBy
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.operations import CreateNode, CreateVeth, SetSysctl, SetUp
from testbed.lab.features.scale_up.plan.domains import WIRE_MTU_BYTES

K = 20_000


def packets(preset: str = "h100", *, hosts: int = 2, gpus: int = 4, segments: int = 1, gpus_per_nic: int = 1) -> Lab:
    made = generate_fabric(
        FabricParams(design="rail-optimized", segments=segments, hosts=hosts, gpus=gpus, spines=1), name="lab"
    )
    scale_up = replace(SCALE_UP_PRESETS[preset], by=ScaleUpBy.PACKETS)
    return replace(made, scale_up=scale_up, gpus_per_nic=gpus_per_nic)


def test_a_lab_by_time_has_no_wires() -> None:
    lab = packets()
    plan = plan_lab(replace(lab, scale_up=SCALE_UP_PRESETS["h100"]), k=K)
    assert plan.scale_up_domains == ()
    assert plan.operations == plan_lab(replace(lab, scale_up=replace(lab.scale_up, by=ScaleUpBy.TIME)), k=K).operations


def test_a_domain_of_hosts_numbers_its_gpus_by_host_and_rail_and_its_wires_by_plane() -> None:
    lab = packets("nvl72", gpus=2)
    (domain,) = plan_lab(lab, k=K).scale_up_domains
    assert (domain.name, domain.node, domain.gpus, domain.planes) == ("p1-s1", "scaleup-p1-s1", 4, 18)
    assert [(wire.plane, wire.gpu) for wire in domain.wires] == [(p, g) for p in range(1, 19) for g in range(4)]
    third = domain.wires_of("p1-s1-h2", 1)
    assert [wire.interface for wire in third] == [f"gpu1p{plane}" for plane in range(1, 19)]
    assert [wire.switch_interface for wire in third] == [f"g2p{plane}" for plane in range(1, 19)]
    assert domain.wires_of("p1-s1-h2", 3) == ()


def test_gpus_that_share_a_nic_have_wires_of_their_own() -> None:
    domains = plan_lab(packets(gpus=2, gpus_per_nic=2), k=K).scale_up_domains
    assert [(domain.name, domain.gpus, len(domain.wires)) for domain in domains] == [
        ("p1-s1-h1", 4, 16),
        ("p1-s1-h2", 4, 16),
    ]


def test_operations_make_both_ends_of_every_wire_without_ipv6_and_bring_them_up() -> None:
    plan = plan_lab(packets(), k=K)
    domain = plan.scale_up_domains[0]
    operations = list(plan.operations)
    made = [item for item in operations if isinstance(item, CreateVeth) and item.b.node == domain.node]
    assert len(made) == len(domain.wires) == 16
    assert {item.mtu_bytes for item in made} == {WIRE_MTU_BYTES}
    assert not any(item.a.ipv6 or item.b.ipv6 or item.a.master or item.b.master for item in made)
    created = operations.index(next(i for i in operations if isinstance(i, CreateNode) and i.node == domain.node))
    settings = [i for i in operations if isinstance(i, SetSysctl) and i.node == domain.node]
    assert [(item.key, item.value) for item in settings] == [("net/ipv6/conf/all/disable_ipv6", "1")]
    assert created < operations.index(settings[0]) < operations.index(made[0])
    opened = [i for i in operations if isinstance(i, SetSysctl) and i.key == "net/ipv6/conf/default/disable_ipv6"]
    of_hosts = [operations.index(item) for item in opened if item.node.startswith("p1-s1-h") and item.value == "0"]
    assert all(operations.index(made[-1]) < index for index in of_hosts)
    up = {(item.node, item.ifindex) for item in operations if isinstance(item, SetUp)}
    assert {(end.node, end.ifindex) for item in made for end in (item.a, item.b)} <= up


def test_interfaces_and_macs_are_unique_in_a_lab_and_between_labs() -> None:
    lab = packets("nvl72", hosts=3, gpus=8)
    plan, other = plan_lab(lab, k=K, slot=1), plan_lab(lab, k=K, slot=2)
    pairs = [item for item in plan.operations if isinstance(item, CreateVeth)]
    ends = [(end.node, end.ifindex) for item in pairs for end in (item.a, item.b)]
    assert len(set(ends)) == len(ends)
    wires = [each.scale_up_domains[0].wires for each in (plan, other)]
    macs = [{mac for wire in each for mac in (wire.mac, wire.switch_mac)} for each in wires]
    assert len(macs[0]) == 2 * len(plan.scale_up_domains[0].wires)
    assert not macs[0] & macs[1]


def test_a_node_cannot_have_the_name_of_a_switch() -> None:
    lab = packets()
    taken = Node(name="scaleup-p1-s1-h1", kind=NodeKind.HOST)
    with pytest.raises(PlanError, match="is called scaleup-p1-s1-h1, and so is a node") as caught:
        plan_lab(replace(lab, nodes=(*lab.nodes, taken)), k=K)
    assert caught.value.code == "duplicate-node"


def test_a_wire_has_the_links_of_its_plane_together() -> None:
    """5, 4, 4 and 5 links of 200 Gb/s; what a file counts of a link counts for each of them."""
    lab = packets()
    written = replace(lab.scale_up, credits=Credits(limit=100), retry=LinkRetry(window=80, timer_windows=2.0), coarse=1)
    links = plan_lab(replace(lab, scale_up=written), k=K).scale_up_domains[0].links
    assert [link.gpu_rate for link in links] == [Rate.parse(rate) for rate in ("50M", "40M", "40M", "50M")]
    assert [link.buffer_credits for link in links] == [500, 400, 400, 500]
    assert [link.window_frames for link in links] == [400, 320, 320, 400]
