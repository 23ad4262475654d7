"""The overlay's part of a plan: VRFs, devices, addresses, and what EVPN must bring."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Interface, IPv4Network

import pytest

from testbed.base.errors import PlanError
from testbed.daemons.keeper.entries import EntryKind
from testbed.lab.core.plan.hosts import MAIN_TABLE
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import (
    AddAddress,
    AddRoute,
    AddRule,
    CreateBridge,
    CreateVeth,
    SetBridgePort,
    SetSysctl,
    SetUp,
    ShapePort,
    place_of,
)
from testbed.lab.core.plan.overlay_operations import CreateVrf, CreateVxlan
from testbed.lab.core.plan.overlay_plan import VrfPlan
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.overlay.plan.expectation import mapped
from testbed.lab.features.overlay.plan.planner import vrf_nodes

TOPOLOGY = """
name: pod
fabric:
  design: rail-optimized
  segments: 1
  hosts: 4
  gpus: 2
  spines: 2
  nic: {rate: 100G}
  overlay: evpn
tenants:
  red:
    subnets:
      web: {prefix: 10.1.0.0/24, nics: ["p1-s1-h1:rail1", "p1-s1-h2:rail2"]}
      db: {prefix: 10.1.1.0/24, nics: ["p1-s1-h2:rail1"]}
  blue:
    subnets:
      web: {prefix: 10.1.0.0/24, nics: ["p1-s1-h3:rail1", "p1-s1-h4:rail2"]}
"""
LEAF, FAR = "p1-s1-rail1", "p1-s1-rail2"


def plan(text: str = TOPOLOGY) -> LabPlan:
    return plan_lab(load_topology_text(text, file="pod.yml"), k=100)


def vrf(plan: LabPlan, node: str) -> VrfPlan:
    assert plan.overlay is not None
    return next(entry for entry in plan.overlay.vrfs if entry.node == node)


def test_a_switch_has_the_vrfs_and_vnis_of_the_nics_on_it() -> None:
    planned = plan()
    assert planned.overlay is not None
    found = {entry.node: [vni.subnet for vni in entry.l2] for entry in planned.overlay.vrfs}
    assert found == {
        f"{LEAF}-red": ["web", "db"],
        f"{LEAF}-blue": ["web"],
        f"{FAR}-red": ["web"],
        f"{FAR}-blue": ["web"],
    }
    assert [item.node for item in planned.operations if isinstance(item, CreateVrf)] == list(found)
    spine = next(switch for switch in planned.switches if switch.node == "p1-spine1")
    assert spine.evpn is not None and spine.evpn.vrfs == ()


def test_the_namespaces_are_known_before_the_plan() -> None:
    lab = load_topology_text(TOPOLOGY, file="pod.yml")
    assert set(vrf_nodes(lab)) == {entry.node for entry in plan().overlay.vrfs}  # type: ignore[union-attr]


def test_ports_of_tenants_lie_in_their_vrf() -> None:
    planned = plan()
    port = next(port for port in planned.ports if (port.node, port.name) == (LEAF, "down1"))
    assert (port.tenant, port.vrf, port.place, port.address) == ("red", f"{LEAF}-red", f"{LEAF}-red", None)
    veths = [item for item in planned.operations if isinstance(item, CreateVeth)]
    veth = next(item for item in veths if (item.a.node, item.a.name) == ("p1-s1-h1", "rail1"))
    web = vrf(planned, f"{LEAF}-red").l2[0]
    assert (veth.b.node, veth.b.master) == (f"{LEAF}-red", web.bridge_ifindex)
    placed = {
        (item.node, item.name): place_of(item) for item in planned.operations if isinstance(item, ShapePort | SetUp)
    }
    assert placed[LEAF, "down1"] == f"{LEAF}-red"
    assert placed[LEAF, "uplink1"] == LEAF


def test_one_router_mac_for_a_vtep_and_one_gateway_mac_for_all() -> None:
    planned = plan()
    assert planned.overlay is not None
    routers = {(entry.switch, entry.l3.mac) for entry in planned.overlay.vrfs}
    gateways = {vni.mac for entry in planned.overlay.vrfs for vni in entry.l2}
    assert len(routers) == 2 and len({mac for _, mac in routers}) == 2
    assert len(gateways) == 1
    bridges = [item for item in planned.operations if isinstance(item, CreateBridge) and item.node == f"{LEAF}-red"]
    assert {item.mac for item in bridges} == gateways | {mac for switch, mac in routers if switch == LEAF}


def test_devices_learn_nothing_and_have_room() -> None:
    planned = plan()
    vxlans = [item for item in planned.operations if isinstance(item, CreateVxlan)]
    assert {item.mtu_bytes for item in vxlans} == {4450}
    assert {(item.switch, str(item.local)) for item in vxlans} == {(LEAF, "172.18.0.1"), (FAR, "172.18.0.2")}
    ports = [item for item in planned.operations if isinstance(item, SetBridgePort)]
    assert len(ports) == len(vxlans) == 9
    assert not any(item.learning for item in ports) and all(item.neighbour_suppression for item in ports)
    macs = [item.mac for item in vxlans] + [port.mac for port in planned.ports]
    assert len(set(macs)) == len(macs)


def test_the_first_address_is_the_gateways_and_nics_follow_in_order() -> None:
    planned = plan()
    gateways = [item for item in planned.operations if isinstance(item, AddAddress) and item.node.endswith("-red")]
    assert {str(item.address) for item in gateways} == {"10.1.0.1/24", "10.1.1.1/24"}
    nics = {(nic.node, nic.name): nic for host in planned.hosts for nic in host.nics}
    second = nics["p1-s1-h2", "rail2"]
    assert (second.address, second.gateway) == (IPv4Interface("10.1.0.3/24"), IPv4Address("10.1.0.1"))
    assert nics["p1-s1-h1", "rail1"].address == nics["p1-s1-h3", "rail1"].address == IPv4Interface("10.1.0.2/24")
    assert str(nics["p1-s1-h1", "rail2"].address) == "10.0.2.2/24", "in no tenant: on its rail"


def test_route_distinguishers_tell_switches_apart_and_targets_join_them() -> None:
    planned = plan()
    near, far = vrf(planned, f"{LEAF}-red"), vrf(planned, f"{FAR}-red")
    assert (near.l3.rd, far.l3.rd) == ("172.18.0.1:50001", "172.18.0.2:50001")
    assert near.l3.exports == near.l3.imports == far.l3.imports == ("65000:50001",)
    assert near.l2[0].exports == near.l2[0].imports == far.l2[0].imports == ("65000:10101",)


def test_given_route_distinguishers_are_those_of_routes() -> None:
    planned = plan(TOPOLOGY.replace("  red:\n", f'  red:\n    rd: {{{LEAF}: "65010:7"}}\n'))
    assert planned.overlay is not None
    assert (vrf(planned, f"{LEAF}-red").l3.rd, vrf(planned, f"{FAR}-red").l3.rd) == ("65010:7", "172.18.0.2:50001")
    assert vrf(planned, f"{LEAF}-red").l2[0].rd == "172.18.0.1:10101", "those of subnets are by rule"
    routes = [route for entry in planned.overlay.expected[f"{FAR}-red"] for route in entry.routes]
    assert {route.rd for route in routes if route.prefix.startswith("[5]")} == {"65010:7"}


@pytest.mark.parametrize(
    ("rds", "code"),
    [
        ({LEAF: "172.18.0.1:50002"}, "duplicate-rd"),
        ({LEAF: "172.18.0.1:10101"}, "duplicate-rd"),
        ({LEAF: "65010:7", FAR: "65010:7"}, "duplicate-rd"),
        ({"p1-spine1": "65010:7"}, "rd-without-vrf"),
    ],
)
def test_a_route_distinguisher_is_of_one_vrf(rds: dict[str, str], code: str) -> None:
    written = ", ".join(f'{switch}: "{rd}"' for switch, rd in rds.items())
    with pytest.raises(PlanError) as caught:
        plan(TOPOLOGY.replace("  red:\n", f"  red:\n    rd: {{{written}}}\n"))
    assert caught.value.code == code
    assert caught.value.field.startswith("tenants.red.rd.p1-s")


def test_a_vni_of_more_than_16_bits_gets_a_number_in_route_distinguishers() -> None:
    text = TOPOLOGY.replace("  red:\n", "  red:\n    vni: 9000000\n")
    near = vrf(plan(text), f"{LEAF}-red")
    address, _, number = near.l3.rd.partition(":")
    assert address == "172.18.0.1" and 0 < int(number) < 65536


def test_what_evpn_must_bring_into_a_vrf() -> None:
    planned = plan()
    entries = planned.overlay.expected[f"{FAR}-red"]
    near, web = vrf(planned, f"{LEAF}-red"), vrf(planned, f"{FAR}-red").l2[0]
    vtep = IPv4Address("172.18.0.1")
    macs = {(port.node, port.name): port.mac for port in planned.ports}
    assert {(entry.ifindex, entry.vteps) for entry in entries if entry.kind is EntryKind.FLOOD} == {
        (web.vxlan_ifindex, (vtep,))
    }
    assert {entry.mac for entry in entries if entry.kind is EntryKind.MAC} == {
        near.l3.mac,
        macs["p1-s1-h1", "rail1"],
    }
    neighbours = {(entry.address, entry.mac) for entry in entries if entry.kind is EntryKind.NEIGHBOUR}
    assert neighbours == {(vtep, near.l3.mac), (IPv4Address("10.1.0.2"), macs["p1-s1-h1", "rail1"])}
    assert {entry.prefix for entry in entries if entry.kind is EntryKind.ROUTE} == {
        IPv4Network("10.1.0.2/32"),
        IPv4Network("10.1.1.2/32"),
        IPv4Network("10.1.1.0/24"),
    }
    heard = [entry for entry in entries if entry.kind is EntryKind.HEARD]
    assert [(entry.of, entry.mac) for entry in heard] == [("p1-s1-h2:rail2", macs["p1-s1-h2", "rail2"])]
    routes = {route.prefix[:3] for entry in entries for route in entry.routes}
    assert routes == {"[2]", "[3]", "[5]"}
    assert {route.rd for entry in entries for route in entry.routes} == {
        "172.18.0.1:10101",
        "172.18.0.1:10102",
        "172.18.0.1:50001",
    }


def test_ipv6_has_the_same_order_as_ipv4_and_nothing_of_a_subnet_without_it_changes() -> None:
    dual = plan(TOPOLOGY.replace("web: {prefix", 'web: {prefix6: "fd00:1::/64", prefix', 1))
    before = [item for item in plan().operations if not isinstance(item, SetSysctl)]
    assert [item for item in dual.operations if item in before] == before
    added = [item for item in dual.operations if item not in before]
    assert {str(item.address): item.node for item in added if isinstance(item, AddAddress)} == {
        "fd00:1::1/64": f"{FAR}-red",  # and on the other leaf, before it
        "fd00:1::2/64": "p1-s1-h1",
        "fd00:1::3/64": "p1-s1-h2",
    }
    ways = {
        (item.node, item.table): (str(item.gateway), str(item.source))
        for item in added
        if isinstance(item, AddRoute) and str(item.destination) == "::/0"
    }
    assert ways["p1-s1-h2", 102] == ways["p1-s1-h2", MAIN_TABLE] == ("fd00:1::1", "fd00:1::3")
    rules = {(str(item.source), item.table, item.priority) for item in added if isinstance(item, AddRule)}
    assert rules == {("fd00:1::2", 101, 1001), ("fd00:1::3", 102, 1002)}
    opened = {(item.node, item.key) for item in dual.operations if isinstance(item, SetSysctl) and item.value == "0"}
    assert {node for node, key in opened if key == "net/ipv6/conf/br50001/disable_ipv6"} == {
        f"{LEAF}-red",
        f"{FAR}-red",
    }
    nics = {(port.node, port.name): port for port in dual.ports}
    assert str(nics["p1-s1-h1", "rail1"].gateway6) == "fd00:1::1"
    assert nics["p1-s1-h2", "rail1"].address6 is None


def test_evpn_must_bring_ipv6_by_the_vteps_of_ipv4() -> None:
    dual = plan(TOPOLOGY.replace("web: {prefix", 'web: {prefix6: "fd00:1::/64", prefix', 1))
    db_alone = plan(TOPOLOGY.replace("db: {prefix", 'db: {prefix6: "fd00:2::/64", prefix', 1))
    assert dual.overlay is not None and db_alone.overlay is not None
    vtep = IPv4Address("172.18.0.1")
    v6 = [entry for entry in dual.overlay.expected[f"{FAR}-red"] if ":" in str(entry.address or entry.prefix or "")]
    assert {(entry.kind, str(entry.address or entry.prefix)) for entry in v6} == {
        (EntryKind.HEARD, "fd00:1::3"),
        (EntryKind.NEIGHBOUR, "fd00:1::2"),
        (EntryKind.NEIGHBOUR, str(mapped(vtep))),
        (EntryKind.ROUTE, "fd00:1::2/128"),
    }
    assert {entry.vteps for entry in v6} == {(), (vtep,)}
    assert any(str(entry).startswith("no neighbour ::ffff:172.18.0.1 (the router of p1-s1-rail1)") for entry in v6)
    prefixes = {route.prefix for entry in db_alone.overlay.expected[f"{FAR}-red"] for route in entry.routes}
    assert "[5]:[0]:[64]:[fd00:2::]" in prefixes
    assert any("[128]:[fd00:2::2]" in prefix for prefix in prefixes)
    asked = [(nic.node, str(nic.address), str(nic.gateway)) for nic in dual.overlay.nics if nic.address.version == 6]
    assert asked == [("p1-s1-h1", "fd00:1::2", "fd00:1::1"), ("p1-s1-h2", "fd00:1::3", "fd00:1::1")]


def test_nothing_of_one_tenant_is_expected_in_another() -> None:
    planned = plan()
    assert planned.overlay is not None
    behind = {entry.of for entry in planned.overlay.expected[f"{FAR}-blue"]}
    assert "p1-s1-h3:rail1" in behind
    assert not {of for of in behind if of.startswith(("p1-s1-h1", "p1-s1-h2"))}


def test_a_subnet_on_switches_without_a_path_is_refused() -> None:
    """Rails of rail-only have nothing above them."""
    text = TOPOLOGY.replace("design: rail-optimized", "design: rail-only").replace("  spines: 2\n", "")
    with pytest.raises(PlanError, match="have no path to each other") as caught:
        plan(text)
    assert caught.value.code == "subnet-without-path"


def test_a_tenant_on_switches_without_a_path_is_two_islands() -> None:
    text = TOPOLOGY.replace("design: rail-optimized", "design: rail-only").replace("  spines: 2\n", "")
    text = text.replace(', "p1-s1-h2:rail2"', "").replace('"p1-s1-h2:rail1"', '"p1-s1-h2:rail2"')
    text = text.replace(', "p1-s1-h4:rail2"', "")
    planned = plan(text)
    assert planned.overlay is not None
    kinds = {entry.kind for entries in planned.overlay.expected.values() for entry in entries}
    assert kinds == {EntryKind.HEARD}


def test_a_tenants_prefix_that_a_host_has_on_a_rail_is_refused() -> None:
    with pytest.raises(PlanError, match=r"p1-s1-h1:rail1 would be in 10\.0\.0\.0/16") as caught:
        plan(TOPOLOGY.replace('10.1.0.0/24, nics: ["p1-s1-h1', '10.0.0.0/16, nics: ["p1-s1-h1'))
    assert caught.value.code == "overlap"


def test_a_lab_without_an_overlay_is_as_it_was() -> None:
    text = TOPOLOGY.partition("  overlay")[0]
    planned = plan(text)
    assert planned.overlay is None
    assert all(switch.evpn is None for switch in planned.switches)
    assert not any(port.tenant or port.vrf for port in planned.ports)


def test_a_host_reaches_the_other_subnets_of_its_tenant_unbound_and_its_default_is_the_fabrics() -> None:
    planned = plan()
    main = [item for item in planned.operations if isinstance(item, AddRoute) and item.table == MAIN_TABLE]
    routes = {(item.node, str(item.destination)): str(item.gateway) for item in main}
    assert routes["p1-s1-h1", "0.0.0.0/0"] == "10.0.2.1"
    assert routes["p1-s1-h1", "10.1.1.0/24"] == "10.1.0.1"
    assert ("p1-s1-h2", "10.1.0.0/24") not in routes, "it has a NIC in both subnets"
    assert routes["p1-s1-h2", "0.0.0.0/0"] == "10.1.1.1", "all its NICs are in a tenant"
