"""Link groups to pairs of leaves: what of them is planned when the pair is one VTEP of tenants."""

from ipaddress import IPv4Address, IPv4Interface, IPv4Network

import pytest

from testbed.base.errors import PlanError, SpecError
from testbed.daemons.keeper.entries import EntryKind
from testbed.daemons.lag.groups import PairedLeafPlan
from testbed.lab.core.model import Network, Node, NodeKind, Place, Role
from testbed.lab.core.plan.addressing import pair_vteps
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import AddAddress, AddRoute, CreateVeth, InstallPort, SetNeighbour
from testbed.lab.core.plan.qos.planner import QUEUE_PACKETS
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.mlag.plan.planner import BRIDGE_IFINDEX
from testbed.run.ideals.fabric_graph import fabric_graph

K = 100
TEXT = """
name: pairs
fabric: {design: rail-optimized, segments: 1, hosts: 6, gpus: 1, spines: 1}
networks:
  frontend: {homing: mlag, nic: {ports: 2}, leaves: 4, overlay: evpn}
tenants:
  red:
    subnets:
      web: {prefix: 10.200.0.0/24, nics: ["p1-s1-h1:fe0", "p1-s1-h4:fe0"]}
      db: {prefix: 10.200.1.0/24, nics: ["p1-s1-h5:fe0"]}
  blue:
    subnets:
      web: {prefix: 10.200.0.0/24, nics: ["p1-s1-h2:fe0"]}
"""
VTEP, FAR_VTEP = IPv4Address("192.168.0.190"), IPv4Address("192.168.0.189")


def _leaf(plan: LabPlan, name: str) -> PairedLeafPlan:
    assert plan.link_groups is not None
    return next(leaf for leaf in plan.link_groups.leaves if leaf.node == name)


def test_both_leaves_of_a_pair_have_the_address_and_the_router_of_one_vtep(plan: LabPlan) -> None:
    assert plan.overlay is not None
    vrfs = {vrf.node: vrf for vrf in plan.overlay.vrfs}
    first, second, far = (vrfs[f"fe-leaf{number}-red"] for number in (1, 2, 3))
    assert (first.vtep, second.vtep, far.vtep) == (VTEP, VTEP, FAR_VTEP)
    assert first.l3.mac == second.l3.mac != far.l3.mac
    assert first.l3.rd != second.l3.rd  # one does not take the other's routes for its own
    assert first.router_id != second.router_id
    loopbacks = {item.node for item in plan.operations if isinstance(item, AddAddress) and item.address.ip == VTEP}
    assert loopbacks == {"fe-leaf1", "fe-leaf2"}
    announced = {switch.node for switch in plan.switches if IPv4Network(VTEP) in switch.networks}
    assert announced == {"fe-leaf1", "fe-leaf2"}
    routes = {route.prefix: route for route in plan.expected_routes["fe-spine1"]}
    assert len(routes[IPv4Network(VTEP)].interfaces) == 2


def test_evpn_brings_nothing_of_the_own_pair_and_of_another_what_either_leaf_announces(plan: LabPlan) -> None:
    entries = plan.overlay.expected["fe-leaf1-red"]
    assert {vtep for entry in entries for vtep in entry.vteps} == {FAR_VTEP}
    (flood,) = (entry for entry in entries if entry.kind is EntryKind.FLOOD)
    assert {route.rd.partition(":")[0] for route in flood.routes} == {"192.168.0.3", "192.168.0.4"}
    heard = [entry.of for entry in entries if entry.kind is EntryKind.HEARD]
    assert heard == [entry.of for entry in plan.overlay.expected["fe-leaf2-red"] if entry.kind is EntryKind.HEARD]
    assert heard == ["p1-s1-h1:fe0"]


def test_a_subnet_is_one_vlan_of_the_peer_link_on_both_leaves_and_others_stay_untagged(plan: LabPlan) -> None:
    first, second = (_leaf(plan, f"fe-leaf{number}") for number in (1, 2))
    assert first.vtep == second.vtep == VTEP
    found = {bridge.node.partition("-leaf1")[2]: bridge for bridge in first.bridges}
    assert [bridge.vlan for bridge in first.bridges] == [bridge.vlan for bridge in second.bridges]
    assert len({bridge.vlan for bridge in first.bridges}) == len(first.bridges) == 3
    assert {name: [member.group for member in bridge.members] for name, bridge in found.items()} == {
        "": ["p1-s1-h3"],
        "-red": ["p1-s1-h1"],
        "-blue": ["p1-s1-h2"],
    }
    assert (found[""].vlan, found[""].ifindex, found[""].peer_ifindex) == (0, BRIDGE_IFINDEX, first.peer_ifindex)
    assert 1 <= found["-red"].vlan <= 4094
    # db is not on this pair: it comes as a prefix, and web as a flood list
    assert (found["-red"].entries, found["-blue"].entries) == (2, 0)
    assert [member.group for member in first.members] == ["p1-s1-h1", "p1-s1-h2", "p1-s1-h3"]
    wires = [item for item in plan.operations if isinstance(item, CreateVeth) and item.a.node == "fe-leaf1-red"]
    assert [(wire.a.master, wire.a.ifindex, wire.b.node, wire.b.ifindex) for wire in wires] == [
        (found["-red"].ifindex, found["-red"].peer_ifindex, "fe-leaf1", found["-red"].tail_ifindex)
    ]


def test_the_nic_of_a_tenant_is_the_aggregate_and_its_ports_lie_in_the_vrf_of_either_leaf(plan: LabPlan) -> None:
    nics = {(nic.node, nic.name): nic for host in plan.hosts for nic in host.nics}
    nic, other = nics["p1-s1-h4", "fe0"], nics["p1-s1-h3", "fe0"]
    assert (nic.tenant, nic.address, nic.gateway) == ("red", IPv4Interface("10.200.0.3/24"), IPv4Address("10.200.0.1"))
    assert (other.tenant, other.address) == ("", IPv4Interface("192.168.1.4/24"))
    assert nic.mtu_bytes == 1450
    ports = {(port.node, port.name): port.vrf for port in plan.ports}
    assert ports["fe-leaf3", "down1"] == "fe-leaf3-red"
    assert ports["fe-leaf4", "down1"] == "fe-leaf4-red"
    assert ports["fe-leaf1", "down3"] == ""


def test_a_router_outside_on_one_leaf_is_reached_by_the_other_over_the_peer_link() -> None:
    outside = IPv4Network("198.51.100.0/24")
    external = f"external: {{leaf: fe-leaf1, asn: 64999, prefixes: [{outside}], rate: 10G}}"
    text = TEXT.replace("  red:\n", f"  red:\n    {external}\n")
    planned = plan_lab(load_topology_text(text, file="pairs.yml"), k=100)
    assert planned.overlay is not None
    wires = {
        item.a.node: item.a for item in planned.operations if isinstance(item, CreateVeth) and "red" in item.a.node
    }
    (neighbour,) = (item for item in planned.operations if isinstance(item, SetNeighbour))
    routes = [item for item in planned.operations if isinstance(item, AddRoute) and item.destination == outside]
    (route,) = (item for item in routes if "leaf" in item.node)  # hosts of the tenant have one, too
    assert neighbour.node == route.node == "fe-leaf2-red"
    assert neighbour.ifindex == route.ifindex == wires["fe-leaf2-red"].ifindex
    assert neighbour.mac == wires["fe-leaf1-red"].mac and route.onlink and route.gateway == neighbour.address
    (far,) = (entry for entry in planned.overlay.expected["fe-leaf3-red"] if entry.prefix == outside)
    assert far.vteps == (VTEP,)
    assert [announced.rd.partition(":")[0] for announced in far.routes] == ["192.168.0.1"], (
        "one leaf alone announces it"
    )
    assert not any(entry.prefix == outside for entry in planned.overlay.expected["fe-leaf2-red"])


@pytest.mark.parametrize("protocol", ["ebgp", "ibgp"])
def test_spines_send_to_both_leaves_of_a_pair_whatever_bgp_it_is(protocol: str) -> None:
    text = TEXT.replace("overlay: evpn}", f"overlay: evpn, routing: {{protocol: {protocol}}}}}")
    planned = plan_lab(load_topology_text(text, file="pairs.yml"), k=100)
    subnet = IPv4Network("192.168.1.0/24")
    for node, interfaces in (("fe-spine1", ("down1", "down2")), ("fe-leaf3", ("uplink1", "uplink2"))):
        routes = {route.prefix: route.interfaces for route in planned.expected_routes[node]}
        assert routes[subnet] == routes[IPv4Network(VTEP)] == interfaces
    assert subnet not in {route.prefix for route in planned.expected_routes["fe-leaf2"]}


def test_queues_are_of_member_ports_and_leave_room_for_the_programs_of_their_groups() -> None:
    qos = "qos: {classes: {control: {dscp: [48], strict: true}, bulk: {default: true, weight: 100}}}"
    text = TEXT.replace("overlay: evpn}", f"overlay: evpn, {qos}}}").replace("  blue:\n", "  blue:\n    cap: 10G\n")
    planned = plan_lab(load_topology_text(text, file="pairs.yml"), k=100)
    installed = {(item.node, item.name): item for item in planned.operations if isinstance(item, InstallPort)}
    of_hosts = {key for key in installed if key[1] in ("fe1", "fe2")}
    of_leaves = {key for key in installed if "leaf" in key[0] and key[1].startswith(("down", "peer"))}
    assert {key for key, item in installed.items() if item.grouped} == of_hosts | of_leaves
    assert len(of_hosts) == 12 and len(of_leaves) == 16
    assert not any(name == "fe0" for _, name in installed)
    capped = [key for key, item in installed.items() if item.cap_bps]
    assert capped == [("fe-leaf1", "down2"), ("fe-leaf2", "down2")]
    assert {installed[key].vrf for key in capped} == {"fe-leaf1-blue", "fe-leaf2-blue"}
    assert {installed["p1-s1-h2", member].rate_bps for member in ("fe1", "fe2")} == {10**8}
    queues = {
        item.queue_packets for item in planned.operations if isinstance(item, CreateVeth) and item.a.name == "fe1"
    }
    assert queues == {QUEUE_PACKETS}


def test_vteps_of_pairs_must_fit_beside_the_loopbacks() -> None:
    network = Network(name="frontend", number=1, prefix=IPv4Network("192.168.0.0/16"), design="leaf-spine")
    nodes = [
        Node(name=f"leaf{n}", kind=NodeKind.SWITCH, role=Role.LEAF, place=Place(index=n), network="frontend")
        for n in range(1, 129)
    ]
    pairs = list(zip(nodes[::2], nodes[1::2], strict=True))
    found = pair_vteps(network, pairs[:63])
    assert len(set(found.values())) == 63
    assert min(found.values()) - int(network.prefix.network_address) > 126
    with pytest.raises(PlanError, match="128 leaves in pairs have more loopbacks"):
        pair_vteps(network, pairs)


RAILS = """
name: rails
fabric:
  {design: rail-optimized, segments: 1, hosts: 2, gpus: 2, spines: 1, nic: {ports: 2, multihoming: mlag}}
"""


def test_every_nic_of_the_back_end_has_a_link_group_to_the_two_switches_of_its_rail() -> None:
    lab = load_topology_text(RAILS, file="rails.yml")
    plan = plan_lab(lab, k=100)
    groups = plan.link_groups
    assert [(one.node, one.nic, [member.name for member in one.members]) for one in groups.hosts] == [
        (f"p1-s1-h{host}", f"rail{rail}", [f"rail{rail}a", f"rail{rail}b"]) for rail in (1, 2) for host in (1, 2)
    ]
    assert [(leaf.node, leaf.peer, leaf.primary) for leaf in groups.leaves][:2] == [
        ("p1-s1-rail1a", "p1-s1-rail1b", True),
        ("p1-s1-rail1b", "p1-s1-rail1a", False),
    ]
    assert groups.nodes[:2] == ("p1-s1-h1", "p1-s1-h2")
    assert len(groups.nodes) == len(set(groups.nodes)) == 6
    nics = {nic.name: nic for nic in plan.hosts[0].nics if nic.address is not None}
    assert {name: (str(nic.address), nic.rail, nic.nic_ports) for name, nic in nics.items()} == {
        "rail1": ("10.0.1.2/24", 1, 2),
        "rail2": ("10.0.2.2/24", 2, 2),
    }
    subnet = IPv4Network("10.0.1.0/24")
    assert {switch.node for switch in plan.switches if subnet in switch.networks} == {"p1-s1-rail1a", "p1-s1-rail1b"}
    (route,) = (route for route in plan.expected_routes["p1-spine1"] if route.prefix == subnet)
    assert len(route.interfaces) == 2


def test_the_graph_has_each_nic_of_a_host_as_an_endpoint_with_two_links() -> None:
    lab = load_topology_text(RAILS, file="rails.yml")
    graph = fabric_graph(lab, plan_lab(lab, k=100))
    ends = [link for link in graph.links if link.source == "p1-s1-h1:rail2"]
    assert {link.destination for link in ends} == {"p1-s1-rail2a", "p1-s1-rail2b"}


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (("ports: 2", "ports: 1"), "contradiction", "link groups have two ports"),
        (("ports: 2", "ports: 4"), "contradiction", "link groups have two ports"),
        (("spines: 1", "planes: 2, spines: 1"), "contradiction", "planes have none"),
        (("gpus: 2", "gpus: 2, overlay: evpn"), "not-built", "overlay of a back end with link groups"),
        (("gpus: 2", "gpus: 2, targets: {disk: {}}"), "not-built", "link groups"),
        (("design: rail-optimized", "design: dual-rail-switch"), "not-built", "several rails"),
    ],
)
def test_link_groups_that_are_not_built(change: tuple[str, str], code: str, words: str) -> None:
    with pytest.raises(SpecError, match=words) as caught:
        load_topology_text(RAILS.replace(*change), file="rails.yml")
    assert {problem.code for problem in caught.value.problems} == {code}
