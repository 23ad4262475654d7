"""The guards of access ports as they are planned: who is expected where, and what stays out."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address

import pytest

from testbed.base.errors import PlanError
from testbed.base.units import Duration
from testbed.lab.core.model import BACKEND, Delay, DelayBy, Guard, Guards, Lab, LagBy, LinkKind
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import CreateBridge, CreateVeth, GuardSwitch, SetUp
from testbed.lab.core.schema.load import load_topology_text

TEXT = """name: dc
fabric: {design: rail-optimized, hosts: 3, gpus: 2, segments: 2, spines: 1, guards: on}
networks:
  frontend: {leaves: 2, nic: {ports: 2}, guards: {storm: false, vlan: false}}
  storage: {leaves: 2}
"""


def guarded(plan: LabPlan) -> dict[str, GuardSwitch]:
    return {item.node: item for item in plan.operations if isinstance(item, GuardSwitch)}


def test_switches_with_hosts_are_guarded_where_their_network_says_so(plan: LabPlan) -> None:
    found = guarded(plan)
    rails = {switch.node for switch in plan.switches if switch.network == BACKEND and "rail" in switch.node}
    assert set(found) == {*rails, "fe-leaf1", "fe-leaf2"}
    assert all(item.guards == Guards.all() for node, item in found.items() if node in rails)
    assert Guard.STORM not in found["fe-leaf1"].guards and Guard.MAC in found["fe-leaf1"].guards


def test_a_port_expects_the_addresses_of_its_host(plan: LabPlan) -> None:
    nics = {nic.peer: nic for host in plan.hosts for nic in host.nics}
    for node, item in guarded(plan).items():
        for port in item.ports:
            nic = nics[f"{node}:{port.name}"]
            assert (port.mac, port.addresses, port.gateway) == (nic.mac, (nic.address.ip,), nic.gateway)
            assert {port.mac, *item.stations} == set(item.stations)


def test_hosts_are_kept_from_every_address_of_a_switch_of_their_network(plan: LabPlan) -> None:
    front = guarded(plan)["fe-leaf1"]
    mine = {switch.loopback.ip for switch in plan.switches if switch.network == "frontend"}
    gateways = {nic.gateway for host in plan.hosts for nic in host.nics if nic.network == "frontend"}
    assert set(front.switches) == mine | gateways
    others = {switch.loopback.ip for switch in plan.switches if switch.network != "frontend"}
    assert not others & set(front.switches)


def test_guards_stand_before_a_port_comes_up_and_after_its_link_is_there(plan: LabPlan) -> None:
    kinds = [type(item) for item in plan.operations]
    last_link = len(kinds) - kinds[::-1].index(CreateVeth)
    assert last_link <= kinds.index(GuardSwitch) < kinds.index(SetUp)
    assert str(guarded(plan)["fe-leaf2"]) == ("guard 6 ports of fe-leaf2 by source, mac, arp, servers, control")


def test_a_lab_without_guards_is_planned_as_before(lab: Lab, plan: LabPlan) -> None:
    bare = load_topology_text(
        TEXT.replace(", guards: on", "").replace(", guards: {storm: false, vlan: false}", ""), file="dc.yml"
    )
    assert guarded(plan_lab(bare, k=1000)) == {}
    assert [item for item in plan.operations if not isinstance(item, GuardSwitch)] == list(
        plan_lab(bare, k=1000).operations
    )


def test_what_the_kernel_delays_cannot_be_guarded(lab: Lab) -> None:
    delay = Delay(value=Duration.parse("1us"), by=DelayBy.KERNEL)
    links = [replace(link, delay=delay) if link.kind is LinkKind.ACCESS else link for link in lab.links]
    with pytest.raises(PlanError, match="cannot be guarded") as caught:
        plan_lab(replace(lab, links=tuple(links)), k=1000)
    assert "by: endpoint" in (caught.value.hint or "")


def test_a_routed_link_to_a_host_is_guarded_too() -> None:
    plan = plan_lab(
        load_topology_text(
            """name: routed
fabric: {guards: on}
topology:
  nodes: {h1: {kind: host}, h2: {kind: host}, s1: {kind: switch, role: leaf}}
  links:
    - {endpoints: ["h1:eth0", "s1:p1"], rate: 100G}
    - {endpoints: ["h2:eth0", "s1:p2"], rate: 100G}
""",
            file="routed.yml",
        ),
        k=1000,
    )
    item = guarded(plan)["s1"]
    assert [port.name for port in item.ports] == ["p1", "p2"]
    assert all(isinstance(port.gateway, IPv4Address) and port.gateway in item.switches for port in item.ports)


def test_ports_of_tenants_are_guarded_in_their_vrfs_by_what_addresses_mean_there() -> None:
    text = """name: dc
fabric: {design: rail-optimized, hosts: 3, gpus: 2, segments: 1, spines: 1, guards: on, overlay: evpn}
tenants:
  red: {subnets: {web: {prefix: 10.1.0.0/24, nics: ["p1-s1-h1:rail1", "p1-s1-h2:rail2"]}}}
  blue: {subnets: {web: {prefix: 172.18.0.0/24, nics: ["p1-s1-h3:rail1"]}}}
"""
    planned = plan_lab(load_topology_text(text, file="dc.yml"), k=1000)
    found = {item.vrf: item for item in planned.operations if isinstance(item, GuardSwitch) and item.vrf}
    assert {item.node for item in found.values()} == {"p1-s1-rail1", "p1-s1-rail2"}
    red, blue = found["p1-s1-rail1-red"], found["p1-s1-rail1-blue"]
    nics = {(nic.node, nic.name): nic for host in planned.hosts for nic in host.nics}
    assert [port.addresses for port in red.ports] == [(IPv4Address("10.1.0.2"),)]
    assert nics["p1-s1-h2", "rail2"].mac in red.stations, "a NIC behind the other leaf is no stranger"
    assert nics["p1-s1-h3", "rail1"].mac not in red.stations
    loopbacks = {switch.loopback.ip for switch in planned.switches}
    inside = {address for address in loopbacks if address in IPv4Network("172.18.0.0/24")}
    assert inside == {IPv4Address("172.18.0.1"), IPv4Address("172.18.0.2")}
    assert inside.intersection(blue.switches) == {IPv4Address("172.18.0.1")}, "which is its gateway, and not a loopback"
    assert loopbacks <= set(red.switches)
    assert IPv4Address("10.1.0.1") in red.switches and IPv4Address("10.1.0.1") not in blue.switches


def test_ports_of_subnets_with_ipv6_expect_both_addresses_and_are_kept_from_both_gateways() -> None:
    text = """name: dc
fabric: {design: rail-optimized, hosts: 3, gpus: 2, segments: 1, spines: 1, guards: on, overlay: evpn}
tenants:
  red:
    subnets:
      web: {prefix: 10.1.0.0/24, prefix6: "fd00:1::/64", nics: ["p1-s1-h1:rail1", "p1-s1-h2:rail2"]}
      db: {prefix: 10.2.0.0/24, nics: ["p1-s1-h2:rail1"]}
  blue: {subnets: {web: {prefix: 10.3.0.0/24, prefix6: "fd00:3::/64", nics: ["p1-s1-h3:rail1"]}}}
"""
    planned = plan_lab(load_topology_text(text, file="dc.yml"), k=1000)
    found = {item.vrf: item for item in planned.operations if isinstance(item, GuardSwitch)}
    red = found["p1-s1-rail1-red"]
    assert [(port.addresses, port.gateway6) for port in red.ports] == [
        ((IPv4Address("10.1.0.2"), IPv6Address("fd00:1::2")), IPv6Address("fd00:1::1")),
        ((IPv4Address("10.2.0.2"),), None),
    ]
    assert {item for item in red.switches if item.version == 6} == {IPv6Address("fd00:1::1")}
    bridges = {item.mac for item in planned.operations if isinstance(item, CreateBridge) and item.node == red.vrf}
    assert len(red.routers) == 1 and bridges.issuperset(red.routers)
    assert found[""].routers == () and not any(item.version == 6 for item in found[""].switches)


@pytest.mark.parametrize("lag_by", list(LagBy))
def test_both_ports_of_a_link_group_expect_the_aggregate_and_lacp_of_its_members(lag_by: LagBy) -> None:
    text = f"""name: dc
fabric: {{design: rail-optimized, hosts: 4, gpus: 1, segments: 1, spines: 1}}
networks:
  frontend: {{homing: mlag, lag_by: {lag_by}, leaves: 2, nic: {{ports: 2}}, overlay: evpn, guards: on}}
tenants:
  red: {{subnets: {{web: {{prefix: 10.1.0.0/24, nics: ["p1-s1-h1:fe0", "p1-s1-h2:fe0"]}}}}}}
"""
    planned = plan_lab(load_topology_text(text, file="dc.yml"), k=1000)
    nics = {(nic.node, nic.name): nic for host in planned.hosts for nic in host.nics}
    peers = {(port.node, port.name): port.peer for port in planned.ports}
    found = [item for item in planned.operations if isinstance(item, GuardSwitch)]
    assert {(item.node, item.vrf) for item in found} == {
        (leaf, vrf) for leaf in ("fe-leaf1", "fe-leaf2") for vrf in (f"{leaf}-red", "")
    }
    for item in found:
        assert [port.name for port in item.ports] == (["down1", "down2"] if item.vrf else ["down3", "down4"])
        for port in item.ports:
            host, _, member = peers[item.node, port.name].partition(":")
            nic = nics[host, "fe0"]
            assert (port.mac, port.addresses, port.gateway) == (nic.mac, (nic.address.ip,), nic.gateway)
            assert port.member_mac == nics[host, member].mac != nic.mac
            assert port.gateway in item.switches and nic.mac in item.stations
        assert IPv4Address("192.168.0.190") in item.switches, "the address of both leaves as one VTEP"


def test_a_port_with_one_link_has_no_member(plan: LabPlan) -> None:
    assert not any(port.member_mac for item in guarded(plan).values() for port in item.ports)
