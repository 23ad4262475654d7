"""A planned lab as the oracles' graph: its rates, tiers, routes and hash."""

from collections import Counter
from ipaddress import IPv4Address
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from equal_paths import equal_cost_paths
from fake_lab import small_lab

from testbed.base.datapath.flow_hash import FiveTuple, port_hash
from testbed.base.errors import ScenarioError
from testbed.lab.core.model import End, Lab, LinkKind, NodeKind
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.schema.load import load_topology
from testbed.run.ideals.fabric_graph import fabric_graph
from testbed.run.ideals.switch_choices import lab_hash
from testbed.run.placed.placement import place_ranks
from testbed.run.programs.iperf3 import IperfFlow, plan_flows
from testbed.run.schema.model import Ranks
from testbed.workload.oracles.ecmp import hashed_choice, place_flows, predict_ecmp
from testbed.workload.oracles.fabric_graph import NoPath
from testbed.workload.oracles.prediction import Flow
from testbed.workload.oracles.spraying import predict_spraying
from testbed.workload.patterns import Scope, generate_permutation
from testbed.workload.tenants import Tenant, mix_tenants

TOPOLOGIES = Path(__file__).parents[3] / "topologies"


def planned(name: str, k: float = 1000, **overrides: object) -> tuple[Lab, LabPlan]:
    lab = load_topology(
        TOPOLOGIES / f"{name}.yml", overrides={key.replace("__", "."): value for key, value in overrides.items()}
    )
    return lab, plan_lab(lab, k=k)


def permutation(lab: Lab, plan: LabPlan, *, scope: Scope) -> tuple[IperfFlow, ...]:
    """Each rail's NICs among themselves."""
    placement = place_ranks(lab, plan, Ranks(), seed=1)
    tenants = [
        Tenant(
            name=f"rail{number}",
            workload=generate_permutation(
                ranks=len(ranks),
                size_bytes=1_000_000,
                rng=Random(number),
                scope=scope,
                leaf_of=[placement.leaf(rank) for rank in ranks].__getitem__,
            ),
            ranks=ranks,
        )
        for number, ranks in enumerate(placement.rails)
    ]
    return plan_flows(mix_tenants(tenants, ranks=len(placement.nics)), placement, seed=1)


def flows_of(transfers: tuple[IperfFlow, ...]) -> list[Flow]:
    return [
        Flow(
            source=f"{transfer.source.node}:{transfer.source.name}",
            destination=f"{transfer.destination.node}:{transfer.destination.name}",
            size_bytes=1_000_000,
        )
        for transfer in transfers
    ]


def end(name: str) -> End:
    node, _, interface = name.partition(":")
    return End(node=node, interface=interface)


@pytest.mark.parametrize(
    "name",
    ["demo", "rail-qos", "rail-optimized", "rail-only", "multi-pod", "hand-written", "shared-nic", "six-by-four"],
)
def test_its_paths_are_those_of_the_fabric(name: str) -> None:
    lab, plan = planned(name)
    graph = fabric_graph(lab, plan)
    for flow in flows_of(permutation(lab, plan, scope=Scope.ANY))[:12]:
        paths = graph.paths(flow.source, flow.destination)
        assert len(paths) == equal_cost_paths(lab, end(flow.source), end(flow.destination))
        for path in paths:
            assert graph.links[path[0]].source == flow.source and graph.links[path[-1]].destination == flow.destination
            assert all(graph.links[a].destination == graph.links[b].source for a, b in pairwise(path))


def test_links_have_lab_rates_and_the_names_of_their_ports() -> None:
    lab, plan = planned("rail-qos", k=2000)
    graph = fabric_graph(lab, plan)
    rates = {link.name: link.capacity_bps for link in graph.links}
    assert rates == {f"{port.node}:{port.name}": port.rate_bps for port in plan.ports}
    assert set(graph.endpoints) == {f"{nic.node}:{nic.name}" for host in plan.hosts for nic in host.nics}


def test_uplinks_are_those_of_rail_switches() -> None:
    lab, plan = planned("multi-pod")
    graph = fabric_graph(lab, plan)
    tiers = Counter(link.tier for link in graph.links)
    fabric = sum(link.kind is LinkKind.FABRIC for link in lab.links)
    assert tiers["uplink"] == tiers["downlink"] and tiers["spine-uplink"] == tiers["spine-downlink"]
    assert tiers["uplink"] + tiers["spine-uplink"] == fabric
    assert tiers["access"] == tiers["delivery"] == len(lab.links) - fabric
    roles = {node.name: node.role for node in lab.nodes if node.kind is NodeKind.SWITCH}
    assert {str(roles[link.source]) for link in graph.links if link.tier == "uplink"} == {"rail"}


def test_the_ports_of_a_host_that_speaks_bgp_are_one_endpoint() -> None:
    lab, plan = planned("routed-hosts")
    seen = plan.of_network("frontend")
    graph = fabric_graph(lab.of_network("frontend"), seen)
    assert set(graph.endpoints) == {f"p1-s1-h{number}:fe1" for number in range(1, 5)}
    near, far = "p1-s1-h1:fe1", "p1-s1-h3:fe1"
    (port,) = (port for port in seen.ports if (port.node, port.name) == ("p1-s1-h1", "fe1"))
    assert graph.access_bps(near, far) == port.nic_bps == 2 * port.rate_bps
    paths = {tuple(graph.links[link].name for link in path) for path in graph.paths(near, far)}
    assert len(paths) == 8  # two ports, two spines, two leaves of the far host
    assert {(path[0], path[-1]) for path in paths} == {
        (f"p1-s1-h1:fe{here}", f"fe-leaf{there}:down1") for here in (1, 2) for there in (3, 4)
    }
    assert {len(path) for path in graph.paths(near, "p1-s1-h2:fe1")} == {2}
    assert sum(graph.split(near, far).values()) == pytest.approx(4)  # four links, each whole
    left = graph.without(["fe-leaf3:down1"])
    assert {left.links[path[-1]].name for path in left.paths(near, far)} == {"fe-leaf4:down1"}


def test_a_tenant_behind_link_groups_is_reached_by_both_leaves_of_a_vtep() -> None:
    lab, plan = planned("mlag-tenants")
    graph = fabric_graph(lab.of_network("frontend"), plan.of_network("frontend"))
    for near, far, between in (("p1-s1-h1:fe0", "p1-s1-h5:fe0", 8), ("p1-s1-h1:fe0", "p1-s1-h2:fe0", 2)):
        paths = graph.paths(near, far)
        assert len(paths) == between  # two ports, two spines, two leaves of the far host; or its two leaves
        assert {graph.links[path[0]].source for path in paths} == {near}
        assert {graph.links[path[-1]].destination for path in paths} == {far}


def test_isolated_rails_do_not_reach_each_other() -> None:
    lab, plan = planned("rail-only")
    graph = fabric_graph(lab, plan)
    by_node: dict[str, list[str]] = {}
    for endpoint in graph.endpoints:
        by_node.setdefault(endpoint.partition(":")[0], []).append(endpoint)
    first, second, *_ = by_node.values()
    assert len(graph.paths(first[0], second[0])) == 1
    with pytest.raises(NoPath):
        graph.paths(first[0], second[1])


def test_a_narrow_ecmp_uses_as_many_paths_as_are_installed() -> None:
    lab, plan = planned("rail-qos", fabric__routing__ecmp=1)
    graph = fabric_graph(lab, plan)
    flow = flows_of(permutation(lab, plan, scope=Scope.INTER_LEAF))[0]
    assert len(graph.paths(flow.source, flow.destination)) == 1
    assert equal_cost_paths(lab, end(flow.source), end(flow.destination)) == 1
    assert equal_cost_paths(planned("rail-qos")[0], end(flow.source), end(flow.destination)) > 1


def test_a_lab_without_planned_routes_has_shortest_paths() -> None:
    lab, plan = small_lab(spines=4)
    graph = fabric_graph(lab, plan)
    flow = flows_of(permutation(lab, plan, scope=Scope.INTER_LEAF))[0]
    assert len(graph.paths(flow.source, flow.destination)) == 4


def test_a_withdrawn_link_leaves_the_planned_routes() -> None:
    lab, plan = planned("rail-qos")
    graph = fabric_graph(lab, plan)
    flow = flows_of(permutation(lab, plan, scope=Scope.INTER_LEAF))[0]
    paths = graph.paths(flow.source, flow.destination)
    into_last_switch = graph.links[paths[0][-2]]
    after = graph.without([into_last_switch.name])
    assert len(after.paths(flow.source, flow.destination)) == len(paths) - 1


def test_every_spraying_of_an_even_lab_is_ideal() -> None:
    lab, plan = planned("uec-spray")
    graph = fabric_graph(lab, plan)
    flows = flows_of(permutation(lab, plan, scope=Scope.INTER_LEAF))
    for adaptive in (False, True):
        assert predict_spraying(graph, flows, adaptive=adaptive).metrics["aggregate_share"].mean == pytest.approx(1)
    assert predict_ecmp(graph, flows, seeds=range(20)).metrics["aggregate_share"].maximum < 1


def five(source: str, destination: str, source_port: int, destination_port: int, protocol: int) -> FiveTuple:
    return FiveTuple(
        source=IPv4Address(source),
        destination=IPv4Address(destination),
        protocol=protocol,
        source_port=source_port,
        destination_port=destination_port,
    )


def test_the_hash_is_the_ports() -> None:
    # From `mix` and `balance` of datapath/programs, compiled as they are on a little-endian machine.
    assert port_hash(five("10.1.1.1", "10.2.1.1", 20000, 5201, 6), 1) == 2856518311
    assert port_hash(five("10.1.1.1", "10.2.1.1", 20001, 5201, 6), 1) == 310608596
    assert port_hash(five("10.1.1.200", "10.2.255.9", 49152, 4791, 17), 0xFEDCBA98) == 46007744


def test_the_labs_own_hash_places_flows() -> None:
    lab, plan = planned("rail-qos")
    graph = fabric_graph(lab, plan)
    transfers = permutation(lab, plan, scope=Scope.INTER_LEAF)
    tuples = [
        five(str(t.source.address.ip), str(t.destination.address.ip), t.source_port, t.destination_port, 6)
        for t in transfers
        if t.source.address is not None and t.destination.address is not None
    ]
    assert len(tuples) == len(transfers)
    hash_of = lab_hash(plan, tuples, run=1)
    placed = place_flows(graph, flows_of(transfers), hashed_choice(hash_of))
    assert placed == place_flows(graph, flows_of(transfers), hashed_choice(lab_hash(plan, tuples, run=1)))
    assert len({hash_of(0, switch.node) for switch in plan.switches}) == len(plan.switches)
    for number, path in enumerate(placed):
        assert path in graph.paths(flows_of(transfers)[number].source, flows_of(transfers)[number].destination)


@pytest.mark.parametrize(("name", "why"), [("rail-optimized", "no qos"), ("uec-spray", "balances by spray")])
def test_a_hash_that_is_not_ours_is_not_predicted(name: str, why: str) -> None:
    with pytest.raises(ScenarioError, match=why):
        lab_hash(planned(name)[1], [], run=1)


def test_next_hops_are_in_the_order_of_the_gateways_that_zebra_sorts() -> None:
    """Seen in the kernel's groups of an emulated lab: leaves 1 to 3 begin with uplink 2, leaf 4 with uplink 3."""
    lab, plan = planned("uec-spray", fabric__segments=4, fabric__gpus=1)
    graph = fabric_graph(lab, plan)
    names = [link.name for link in graph.links]
    far = {1: "p1-s4-h1:rail1", 2: "p1-s4-h1:rail1", 3: "p1-s4-h1:rail1", 4: "p1-s1-h1:rail1"}
    hops = {leaf: [names[hop] for hop in graph.next_hops(f"p1-s{leaf}-rail1", end)] for leaf, end in far.items()}
    orders = {leaf: [int(name[-1]) for name in found] for leaf, found in hops.items()}
    assert orders == {1: [2, 1, 4, 3], 2: [2, 1, 4, 3], 3: [2, 1, 4, 3], 4: [3, 4, 2, 1]}
