"""The overlay's part of a plan beside what stands in tests/golden/plan/tenants.txt: VRFs, devices, what is refused."""

import pytest

from testbed.base.errors import PlanError
from testbed.daemons.keeper.entries import EntryKind
from testbed.lab.core.plan.hosts import MAIN_TABLE
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import AddRoute, CreateBridge, CreateVeth, SetSysctl, SetUp, ShapePort, place_of
from testbed.lab.core.plan.overlay_operations import CreateVxlan
from testbed.lab.core.plan.overlay_plan import VrfPlan
from testbed.lab.core.schema.load import load_topology_text
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


def test_no_two_devices_have_one_mac() -> None:
    planned = plan()
    macs = [item.mac for item in planned.operations if isinstance(item, CreateVxlan)]
    macs += [port.mac for port in planned.ports]
    assert len(set(macs)) == len(macs)


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


def test_what_evpn_must_bring_is_of_the_devices_of_its_vni() -> None:
    planned = plan()
    entries, web = planned.overlay.expected[f"{FAR}-red"], vrf(planned, f"{FAR}-red").l2[0]
    assert {entry.ifindex for entry in entries if entry.kind is EntryKind.FLOOD} == {web.vxlan_ifindex}


def test_of_ipv6_nothing_changes_what_there_was_nor_a_subnet_without_it() -> None:
    dual = plan(TOPOLOGY.replace("web: {prefix", 'web: {prefix6: "fd00:1::/64", prefix', 1))
    before = [item for item in plan().operations if not isinstance(item, SetSysctl)]
    assert [item for item in dual.operations if item in before] == before
    opened = {(item.node, item.key) for item in dual.operations if isinstance(item, SetSysctl) and item.value == "0"}
    assert {node for node, key in opened if key == "net/ipv6/conf/br50001/disable_ipv6"} == {
        f"{LEAF}-red",
        f"{FAR}-red",
    }
    nics = {(port.node, port.name): port for port in dual.ports}
    assert str(nics["p1-s1-h1", "rail1"].gateway6) == "fd00:1::1"
    assert nics["p1-s1-h2", "rail1"].address6 is None
    asked = [(nic.node, str(nic.address), str(nic.gateway)) for nic in dual.overlay.nics if nic.address.version == 6]
    assert asked == [("p1-s1-h1", "fd00:1::2", "fd00:1::1"), ("p1-s1-h2", "fd00:1::3", "fd00:1::1")]


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
