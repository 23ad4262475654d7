"""What passes between tenants, as it is planned: VRFs, wires, routes, and what may come in."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import pytest

from testbed.lab.core.model import Lab, Service, ServiceProtocol
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import AddRoute, CreateVeth, SetNeighbour, SetSysctl
from testbed.lab.core.plan.overlay_operations import PolicyPort, SetPolicy
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.overlay.plan.policies import FIRST_WIRE
from testbed.lab.features.overlay.policies_nft import policy_messages

K = 100
TEXT = """name: dc
fabric: {design: rail-optimized, hosts: 6, gpus: 2, segments: 1, spines: 1, overlay: evpn}
tenants:
  hub: {subnets: {web: {prefix: 10.10.0.0/24, nics: ["p1-s1-h1:rail1"]}}}
  red:
    talks_to: [hub]
    subnets: {web: {prefix: 10.11.0.0/24, nics: ["p1-s1-h2:rail2", "p1-s1-h3:rail1"]}}
  blue:
    talks_to: {hub: [tcp/80, icmp]}
    subnets: {web: {prefix: 10.12.0.0/24, nics: ["p1-s1-h4:rail2"]}}
"""
HTTP, ECHO = Service(protocol=ServiceProtocol.TCP, port=80), Service(protocol=ServiceProtocol.ICMP)


def policies(plan: LabPlan) -> dict[tuple[str, str], PolicyPort]:
    return {
        (item.node, port.name): port for item in plan.operations if isinstance(item, SetPolicy) for port in item.ports
    }


def test_a_switch_has_the_vrfs_of_those_that_its_tenants_talk_to(plan: LabPlan) -> None:
    assert plan.overlay is not None
    found = {(vrf.switch, vrf.tenant): len(vrf.l2) for vrf in plan.overlay.vrfs}
    rail1, rail2 = "p1-s1-rail1", "p1-s1-rail2"
    assert found == {
        (rail1, "hub"): 1,
        (rail1, "red"): 1,
        (rail1, "blue"): 0,  # for the answers of hub
        (rail2, "hub"): 0,
        (rail2, "red"): 1,
        (rail2, "blue"): 1,
    }


def test_vrfs_that_talk_are_joined_by_a_wire_and_those_that_do_not_are_not(plan: LabPlan) -> None:
    wires = {
        frozenset((item.a.node, item.b.node))
        for item in plan.operations
        if isinstance(item, CreateVeth) and item.a.name.startswith("to")
    }
    assert wires == {
        frozenset((f"{leaf}-hub", f"{leaf}-{other}"))
        for leaf in ("p1-s1-rail1", "p1-s1-rail2")
        for other in ("red", "blue")
    }


def test_routes_lead_over_the_wire_to_the_other_tenants_subnets_alone(plan: LabPlan) -> None:
    routes = {
        (item.node, item.destination): item for item in plan.operations if isinstance(item, AddRoute) and item.onlink
    }
    assert {destination for node, destination in routes if node == "p1-s1-rail2-red"} == {IPv4Network("10.10.0.0/24")}
    assert {destination for node, destination in routes if node == "p1-s1-rail2-hub"} == {
        IPv4Network("10.11.0.0/24"),
        IPv4Network("10.12.0.0/24"),
    }
    to_hub = routes["p1-s1-rail2-red", IPv4Network("10.10.0.0/24")]
    assert to_hub.ifindex == FIRST_WIRE + 50001
    veth = next(
        item
        for item in plan.operations
        if isinstance(item, CreateVeth) and {item.a.node, item.b.node} == {"p1-s1-rail2-red", "p1-s1-rail2-hub"}
    )
    far = next(end for end in (veth.a, veth.b) if end.node == "p1-s1-rail2-hub")
    known = next(item for item in plan.operations if isinstance(item, SetNeighbour) and item.node == "p1-s1-rail2-red")
    assert (known.address, known.mac) == (to_hub.gateway, far.mac)


def test_what_may_come_in_is_what_the_file_says(plan: LabPlan) -> None:
    found = policies(plan)
    hub, red, blue = IPv4Address("10.10.0.2"), IPv4Address("10.11.0.2"), IPv4Address("10.12.0.2")
    from_red, from_blue = found["p1-s1-rail2-hub", "to50002"], found["p1-s1-rail2-hub", "to50003"]
    to_red, to_blue = found["p1-s1-rail2-red", "to50001"], found["p1-s1-rail2-blue", "to50001"]
    assert from_red.everything and to_red.everything
    assert from_red.sources == to_red.targets == (red, red + 1) and from_red.targets == to_red.sources == (hub,)
    assert not from_blue.everything and not to_blue.everything
    assert (set(from_blue.services), from_blue.answers) == ({HTTP, ECHO}, ())
    assert (to_blue.services, set(to_blue.answers)) == ((), {HTTP, ECHO})
    assert (from_blue.sources, from_blue.targets) == ((blue,), (hub,))


@pytest.fixture(scope="module")
def dual() -> LabPlan:
    """Of which hub and red have IPv6, and blue has none."""
    text = TEXT.replace("prefix: 10.10.0.0/24", 'prefix: 10.10.0.0/24, prefix6: "fd00:10::/64"')
    text = text.replace("prefix: 10.11.0.0/24", 'prefix: 10.11.0.0/24, prefix6: "fd00:11::/64"')
    return plan_lab(load_topology_text(text, file="dc.yml"), k=100)


def test_wires_have_ipv6_where_both_tenants_have_some(plan: LabPlan, dual: LabPlan) -> None:
    hub, blue = "p1-s1-rail2-hub", "p1-s1-rail2-blue"
    wires = {
        (item.node, item.key.split("/")[3])
        for item in dual.operations
        if isinstance(item, SetSysctl) and item.key.endswith("/disable_ipv6") and "/to500" in item.key
    }
    leaves = ("p1-s1-rail1", "p1-s1-rail2")
    assert wires == {(f"{leaf}-{vrf}", to) for leaf in leaves for vrf, to in (("hub", "to50002"), ("red", "to50001"))}
    routes = {item.destination: item for item in dual.operations if isinstance(item, AddRoute) and item.node == hub}
    to_red = routes[IPv6Network("fd00:11::/64")]
    known = [item for item in dual.operations if isinstance(item, SetNeighbour) and item.node == hub]
    assert {(item.name, item.address) for item in known if item.address.version == 6} == {("to50002", to_red.gateway)}
    added = [item for item in dual.operations if isinstance(item, AddRoute) and item.destination.version == 6]
    assert not [item for item in added if item.node == blue or "fd00:12" in str(item.destination)]
    assert ("p1-s1-h2", IPv6Network("fd00:10::/64")) in {(item.node, item.destination) for item in added if item.source}
    assert not [item for item in plan.operations if isinstance(item, SetNeighbour) and item.address.version == 6]


def test_the_policy_has_addresses_and_rules_of_ipv6_where_the_wire_has_some(plan: LabPlan, dual: LabPlan) -> None:
    hub, red = IPv6Address("fd00:10::2"), IPv6Address("fd00:11::2")
    from_red, from_blue = (policies(dual)["p1-s1-rail2-hub", name] for name in ("to50002", "to50003"))
    assert [item for item in from_red.sources if item.version == 6] == [red, red + 1]
    assert [item for item in from_red.targets if item.version == 6] == [hub]
    assert not [item for item in (*from_blue.sources, *from_blue.targets) if item.version == 6]
    plain, both = (
        b"".join(policy_messages(item))
        for made in (plan, dual)
        for item in made.operations
        if isinstance(item, SetPolicy) and item.node == "p1-s1-rail2-hub"
    )
    assert b"wire6" in both and hub.packed in both and b"wire6" not in plain


def test_hosts_have_routes_to_those_that_their_tenant_talks_to(plan: LabPlan) -> None:
    routes = {(item.node, item.destination) for item in plan.operations if isinstance(item, AddRoute) and item.source}
    assert ("p1-s1-h2", IPv4Network("10.10.0.0/24")) in routes
    assert ("p1-s1-h1", IPv4Network("10.12.0.0/24")) in routes
    assert ("p1-s1-h2", IPv4Network("10.12.0.0/24")) not in routes


def test_who_may_ask_whom(plan: LabPlan) -> None:
    overlay = plan.overlay
    other = Service(protocol=ServiceProtocol.TCP, port=81)
    assert overlay.may_ask("red", "hub", other) and overlay.may_ask("hub", "red", other)
    assert overlay.may_ask("blue", "hub", HTTP) and overlay.may_ask("blue", "hub", ECHO)
    assert not overlay.may_ask("blue", "hub", other) and not overlay.may_ask("hub", "blue", HTTP)
    assert not overlay.may_ask("red", "blue", HTTP)


def test_tenants_that_talk_to_nobody_are_planned_as_before(lab: Lab) -> None:
    assert lab.overlay is not None
    apart = replace(
        lab, overlay=replace(lab.overlay, tenants=tuple(replace(t, talks_to=()) for t in lab.overlay.tenants))
    )
    plan = plan_lab(apart, k=100)
    assert plan.overlay is not None and not plan.overlay.passes
    assert all(vrf.l2 for vrf in plan.overlay.vrfs)
    assert not [item for item in plan.operations if isinstance(item, SetPolicy | SetNeighbour)]


def test_operations_are_described_and_messages_made(plan: LabPlan) -> None:
    for item in plan.operations:
        if isinstance(item, SetPolicy):
            assert "let pass into" in str(item)
            assert len(policy_messages(item)) > 20
        elif isinstance(item, SetNeighbour):
            assert "169.254.0.1" in str(item)


def test_spines_refuse_route_targets_that_a_leaf_has_no_part_in() -> None:
    text = """name: dc
fabric: {design: rail-optimized, hosts: 3, gpus: 2, segments: 1, spines: 1, overlay: {evpn: {rt_filter: true}}}
tenants:
  red: {subnets: {web: {prefix: 10.1.0.0/24, nics: ["p1-s1-h1:rail1", "p1-s1-h2:rail2"]}}}
  blue: {subnets: {web: {prefix: 10.1.0.0/24, nics: ["p1-s1-h3:rail1"]}}}
"""
    foreign = {
        switch.node: dict(switch.evpn.foreign)
        for switch in plan_lab(load_topology_text(text, file="dc.yml"), k=100).switches
        if switch.evpn is not None
    }
    assert foreign == {
        "p1-s1-rail1": {},
        "p1-s1-rail2": {},
        "p1-spine1": {"down1": (), "down2": ("65000:50002", "65000:10201")},
    }
    believed = plan_lab(load_topology_text(text.replace("true", "false"), file="dc.yml"), k=100)
    assert not any(switch.evpn.foreign for switch in believed.switches if switch.evpn is not None)
