"""`design: hand-written` of a network beside the back end: what its switches and links become.

What is wrong with one is in the corpus of bad files: tests/golden/bad/network-*.yml.
"""

from dataclasses import replace
from typing import Any

import pytest

from testbed.base.errors import PlanError, SpecError
from testbed.base.units import Rate
from testbed.lab.core.deploy.records.lab_record import decode_lab, encode_lab
from testbed.lab.core.fabric import measure_sizing
from testbed.lab.core.model import BACKEND, Lab, LinkKind
from testbed.lab.core.plan.asn import check_as_numbers
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology_text

BASE = """name: dc
fabric: {design: rail-optimized, hosts: 4, gpus: 1, segments: 1, spines: 1}
networks:
"""
STORAGE = """  storage:
    design: hand-written
    nic: {rate: 200G}
    uplink: {rate: 400G, delay: 500ns}
    mtu: 9000
    switches:
      stor-a: {role: leaf}
      stor-b: {role: leaf, asn: 65002, labels: {row: "2"}}
      stor-top: {role: spine}
    links:
      - {endpoints: ["p1-s1-h1:nvme0", "stor-a:eth1"]}
      - {endpoints: ["stor-b:eth1", "p1-s1-h2:nvme0"], rate: 100G, mtu: 4500}
      - {endpoints: ["stor-top:eth1", "stor-a:up1"]}
      - {endpoints: ["stor-top:eth2", "stor-b:up1"], rate: 800G, delay: 1us}
"""


def load(networks: str) -> Lab:
    return load_topology_text(BASE + networks, file="dc.yml")


def written(switches: str, links: list[str], *, more: str = "") -> str:
    lines = "".join(f"      - {{endpoints: [{', '.join(link.split())}]}}\n" for link in links)
    return f"  other:\n    design: hand-written\n{more}    switches: {{{switches}}}\n    links:\n{lines}"


def test_switches_and_links_are_as_written() -> None:
    lab = load(STORAGE)
    seen = lab.of_network("storage")
    assert (seen.design, [node.name for node in seen.hosts]) == ("hand-written", ["p1-s1-h1", "p1-s1-h2"])
    assert {node.name: str(node.role) for node in seen.switches} == {
        "stor-a": "leaf",
        "stor-b": "leaf",
        "stor-top": "spine",
    }
    assert lab.node("stor-b").labels == {"row": "2"}
    found = [(str(link.a), str(link.b), link.kind, str(link.rate), link.mtu_bytes) for link in seen.links]
    assert found == [
        ("p1-s1-h1:nvme0", "stor-a:eth1", LinkKind.ACCESS, "200 Gbit/s", 9000),
        ("p1-s1-h2:nvme0", "stor-b:eth1", LinkKind.ACCESS, "100 Gbit/s", 4500),
        ("stor-a:up1", "stor-top:eth1", LinkKind.FABRIC, "400 Gbit/s", 9000),
        ("stor-b:up1", "stor-top:eth2", LinkKind.FABRIC, "800 Gbit/s", 9000),
    ]
    delays = [None if link.delay is None else link.delay.value.ns for link in seen.links]
    assert delays == [None, None, 500, 1000]
    assert decode_lab(encode_lab(lab)) == lab


def test_the_rest_of_the_lab_is_as_without_it() -> None:
    alone = load_topology_text(BASE.removesuffix("networks:\n"), file="dc.yml")
    assert load(STORAGE).of_network(BACKEND) == alone


def test_it_is_sized_by_itself() -> None:
    sizing = measure_sizing(load(STORAGE).of_network("storage"))
    assert (sizing.hosts, sizing.nics, sizing.switches, sizing.links) == (2, 2, 3, 4)
    with pytest.raises(SpecError, match="2 ports in use; switch_radix is 1"):
        load(STORAGE + "    switch_radix: 1\n")


def test_its_plan_has_addresses_and_as_numbers_of_its_own() -> None:
    plan = plan_lab(load(STORAGE), k=1000)
    addresses = {f"{port.node}:{port.name}": str(port.address) for port in plan.ports if port.network == "storage"}
    assert addresses["p1-s1-h1:nvme0"] == "192.168.1.2/24"
    assert addresses["p1-s1-h2:nvme0"] == "192.168.2.2/24"
    switches = {switch.node: switch for switch in plan.switches if switch.network == "storage"}
    assert {name: str(switch.router_id) for name, switch in switches.items()} == {
        "stor-a": "192.168.0.1",
        "stor-b": "192.168.0.2",
        "stor-top": "192.168.0.254",
    }
    assert switches["stor-b"].asn == 65002
    assert len({switch.asn for switch in plan.switches}) == len(plan.switches)
    routes = {str(route.prefix) for route in plan.expected_routes["stor-a"]}
    assert routes == {"192.168.0.2/32", "192.168.0.254/32", "192.168.2.0/24"}


def test_what_a_design_makes_can_be_written_out() -> None:
    """A single switch, dual-homed hosts, tenants and queues come out as generated: `design` tells them apart,
    and that what a file names is not numbered."""
    hosts = [f"p1-s1-h{number}" for number in range(1, 5)]
    single = written("fe-leaf1: {role: leaf}", [f'"{h}:fe1" "fe-leaf1:down{n}"' for n, h in enumerate(hosts, 1)])
    dual = written(
        "fe-leaf1: {role: leaf}, fe-leaf2: {role: leaf}, fe-spine1: {role: spine}",
        [f'"{h}:fe{p}" "fe-leaf{p}:down{n}"' for n, h in enumerate(hosts, 1) for p in (1, 2)]
        + ['"fe-leaf1:uplink1" "fe-spine1:down1"', '"fe-leaf2:uplink1" "fe-spine1:down2"'],
    )
    overlay = (
        "tenants:\n"
        '  red: {subnets: {web: {prefix: 10.1.0.0/24, nics: ["p1-s1-h1:fe1", "p1-s1-h2:fe2"]}}}\n'
        '  blue: {subnets: {web: {prefix: 10.1.0.0/24, nics: ["p1-s1-h3:fe1"]}}}\n'
    )
    both = "overlay: evpn, qos: {preset: dcqcn}"
    above = "    overlay: evpn\n    qos: {preset: dcqcn}\n"
    for text, generated in (
        (single, "  other: {short: fe, design: single-switch}\n"),
        (dual, "  other: {short: fe, leaves: 2, spines: 1, nic: {ports: 2}}\n"),
        (dual + above + overlay, f"  other: {{short: fe, leaves: 2, spines: 1, nic: {{ports: 2}}, {both}}}\n{overlay}"),
    ):
        lab, same = load(text), load(generated)
        links = tuple(replace(link, numbered=link.numbered and link.network == "backend") for link in same.links)
        assert (lab.nodes, lab.links, lab.rail_subnets) == (same.nodes, links, same.rail_subnets)
        assert replace(lab.networks[0], design="") == replace(same.networks[0], design="")
        assert lab.overlay == same.overlay
        assert plan_lab(lab, k=1000) == plan_lab(same, k=1000)


def test_leaves_with_a_host_in_common_have_different_port_numbers() -> None:
    """A ring of four needs two numbers, its chord a third."""
    leaves = ", ".join(f"l{number}: {{role: leaf}}" for number in range(1, 5))
    ring = ["h1 l1", "h1 l2", "h2 l2", "h2 l3", "h3 l3", "h3 l4", "h4 l4", "h4 l1"]
    ends = [f'"p1-s1-{h}:{leaf}" "{leaf}:{h}"' for h, leaf in (pair.split() for pair in ring)]
    numbers = {subnet.switch: subnet.rail for subnet in load(written(leaves, ends)).rail_subnets[1:]}
    assert numbers == {"l1": 1, "l2": 2, "l3": 1, "l4": 2}
    chord = load(written(leaves, [*ends, '"p1-s1-h1:l3" "l3:h1"']))
    assert {subnet.switch: subnet.rail for subnet in chord.rail_subnets[1:]} == {"l1": 1, "l2": 2, "l3": 3, "l4": 2}
    plan_lab(chord, k=1000)


def test_three_tiers_have_an_as_for_each_pod() -> None:
    switches = (
        "l1: {role: leaf, pod: 1}, s1: {role: spine, pod: 1}, l2: {role: leaf, pod: 2}, s2: {role: spine, pod: 2},"
        " top: {role: super-spine}"
    )
    links = ['"p1-s1-h1:x1" "l1:e1"', '"p1-s1-h2:x1" "l2:e1"']
    links += ['"l1:up" "s1:e1"', '"l2:up" "s2:e1"', '"s1:up" "top:e1"', '"s2:up" "top:e2"']
    lab = load(written(switches, links))
    plan = plan_lab(lab, k=1000)
    assert len({switch.asn for switch in plan.switches}) == len(plan.switches)
    assert len({switch.router_id for switch in plan.switches}) == len(plan.switches)
    assert "192.168.2.0/24" in {str(route.prefix) for route in plan.expected_routes["l1"]}


def test_an_as_number_that_the_plan_gives_to_a_neighbour_has_a_place_in_the_file() -> None:
    """Whatever the lab is called, so that a file is valid for all or for none."""
    links = ['"p1-s1-h1:x1" "l1:e1"', '"l1:up" "s1:e1"']
    taken = plan_lab(load(written("l1: {role: leaf}, s1: {role: spine}", links)), k=1000)
    asn = next(switch.asn for switch in taken.switches if switch.node == "s1")
    lab = load(written(f"l1: {{role: leaf, asn: {asn}}}, s1: {{role: spine}}", links))
    for refuses in (check_as_numbers, lambda lab: plan_lab(lab, k=1000, slot=7)):
        with pytest.raises(PlanError, match="no eBGP session") as caught:
            refuses(lab)
        assert caught.value.field == "networks.other.switches.l1.asn"
    more = "    routing: {protocol: ibgp}\n"
    check_as_numbers(load(written(f"l1: {{role: leaf, asn: {asn}}}, s1: {{role: spine}}", links, more=more)))


def test_with_ibgp_an_as_number_is_that_of_all() -> None:
    links = ['"p1-s1-h1:x1" "l1:e1"', '"l1:up" "s1:e1"']
    more = "    routing: {protocol: ibgp}\n"
    plan = plan_lab(load(written("l1: {role: leaf, asn: 65007}, s1: {role: spine}", links, more=more)), k=1000)
    assert {switch.asn for switch in plan.switches if switch.network == "other"} == {65007}


def test_a_wire_may_lose_packets_where_the_network_has_qos() -> None:
    lossy = STORAGE.replace("rate: 800G,", "rate: 800G, loss: 1%,") + "    qos: {preset: uec}\n"
    lab = load(lossy)
    plan: Any = plan_lab(lab, k=1000)
    assert {f"{port.node}:{port.name}" for port in plan.ports if port.loss} == {"stor-b:up1", "stor-top:eth2"}
    assert lab.qos is None
    assert lab.links[-1].rate == Rate.parse("800G")


SERVER = """  storage:
    design: hand-written
    switches: {stor-a: {role: leaf}}
    links:
      - {endpoints: ["p1-s1-h1:nvme0", "stor-a:eth1"]}
      - {endpoints: ["stor-a:eth2", "srv:nvme0"]}
"""


def test_a_host_may_be_in_a_network_beside_the_back_end_alone() -> None:
    lab = load(SERVER + "topology: {nodes: {srv: {kind: host}}}\n")
    assert [node.name for node in lab.of_network("storage").hosts] == ["p1-s1-h1", "srv"]
    assert "srv" not in {node.name for node in lab.of_network(BACKEND).hosts}
    plan_lab(lab, k=1000)


def test_a_host_in_no_network_is_refused_at_its_place() -> None:
    with pytest.raises(SpecError) as caught:
        load(SERVER + "topology: {nodes: {srv: {kind: host}, lost: {kind: host}}}\n")
    (problem,) = caught.value.problems
    assert (problem.code, "lost" in problem.message, "storage" in (problem.hint or "")) == ("no-links", True, True)
    assert str(problem).startswith("dc.yml:10:39")
