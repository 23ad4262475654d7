"""Next hops weigh as much as the bandwidth behind them, as bgpd computes it."""

from fractions import Fraction
from pathlib import Path

import pytest

from testbed.base.errors import PlanError
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import ExpectedRoute, LabPlan
from testbed.lab.core.render.frr import FrrVersion, render_switch
from testbed.lab.core.schema.load import load_topology, load_topology_text
from testbed.run.ideals.fabric_graph import fabric_graph

TOPOLOGY = Path(__file__).parents[5] / "topologies" / "uneven-bundle.yml"


def planned(**keys: object) -> tuple[Lab, LabPlan]:
    lab = load_topology(TOPOLOGY, overrides={key.replace("__", "."): value for key, value in keys.items()})  # type: ignore[misc]
    return lab, plan_lab(lab, k=1)


def route_to(plan: LabPlan, node: str, host: str) -> ExpectedRoute:
    (nic,) = next(one.nics for one in plan.hosts if one.node == host)
    assert nic.address is not None
    return next(route for route in plan.expected_routes[node] if nic.address.ip in route.prefix)


def test_a_spine_with_one_link_of_two_gets_half_of_what_the_other_gets() -> None:
    _, plan = planned()
    route = route_to(plan, "leaf1", "h4")
    assert route.interfaces == ("eth1", "eth2", "eth3", "eth4")
    assert route.weights == (33, 33, 16, 16), "percent of 2 + 2 + 1 + 1 links, rounded down as bgpd does"


def test_where_all_paths_have_the_same_behind_them_there_are_no_weights() -> None:
    _, plan = planned()
    assert route_to(plan, "leaf2", "h1").weights == ()
    assert all(route.weights == () for route in plan.expected_routes["spine1"])


def test_without_the_key_nothing_is_told_and_nothing_weighs() -> None:
    _, plan = planned(fabric__routing__weighted=False)
    assert all(route.weights == () for table in plan.expected_routes.values() for route in table)
    assert all(not one.tells_bandwidth for switch in plan.switches for one in switch.neighbors)


def test_leaves_alone_tell_the_bandwidth_of_their_links() -> None:
    _, plan = planned()
    told = {switch.node: {one.tells_bandwidth for one in switch.neighbors} for switch in plan.switches}
    assert told == {"leaf1": {1}, "leaf2": {1}, "spine1": {0}, "spine2": {0}}
    leaf = next(switch for switch in plan.switches if switch.node == "leaf1")
    text = render_switch(leaf, lab="x", version=FrrVersion(8, 4, 4), log_directory="/tmp").daemons["bgpd"]
    assert "route-map bandwidth-1 permit 10\n set extcommunity bandwidth 1\nexit\n" in text
    assert text.count("route-map bandwidth-1 out") == 4 and "route-map bandwidth-1 in" not in text


MIXED = """
name: mixed
fabric: {{routing: {{bfd: "off", weighted: true, protocol: {protocol}}}}}
topology:
  nodes:
    leaf1: {{kind: switch, role: rail}}
    leaf2: {{kind: switch, role: rail}}
    spine1: {{kind: switch, role: spine}}
    spine2: {{kind: switch, role: spine}}
    h1: {{kind: host}}
    h2: {{kind: host}}
  links:
    - {{endpoints: ["leaf1:eth1", "spine1:eth1"], rate: 400G}}
    - {{endpoints: ["leaf1:eth2", "spine2:eth1"], rate: 100G}}
    - {{endpoints: ["leaf2:eth1", "spine1:eth2"], rate: 400G}}
    - {{endpoints: ["leaf2:eth2", "spine2:eth2"], rate: 400G}}
    - {{endpoints: ["h1:eth1", "leaf1:eth3"], rate: 400G}}
    - {{endpoints: ["h2:eth1", "leaf2:eth3"], rate: 400G}}
"""


def test_a_switch_whose_own_links_differ_goes_by_them() -> None:
    lab = load_topology_text(MIXED.format(protocol="ebgp"), file="t.yml")
    plan = plan_lab(lab, k=1)
    assert route_to(plan, "leaf1", "h2").weights == (80, 20)
    assert route_to(plan, "leaf2", "h1").weights == (80, 20), "spine2 tells of the link of 100G that it has to leaf1"
    leaf = next(switch for switch in plan.switches if switch.node == "leaf1")
    assert [one.takes_bandwidth for one in leaf.neighbors] == [4, 1]
    text = render_switch(leaf, lab="x", version=FrrVersion(8, 4, 4), log_directory="/tmp").daemons["bgpd"]
    assert "neighbor eth1 route-map bandwidth-4 in" in text and "neighbor eth2 route-map bandwidth-1 in" in text


def test_with_route_reflection_it_is_refused() -> None:
    with pytest.raises(PlanError, match="weighted paths are those of eBGP"):
        plan_lab(load_topology_text(MIXED.format(protocol="ibgp"), file="t.yml"), k=1)


def test_the_oracles_graph_divides_by_weight() -> None:
    lab, plan = planned()
    graph = fabric_graph(lab, plan)
    share = graph.split("h1:eth1", "h4:eth1")
    of = {graph.links[number].name: part for number, part in share.items()}
    assert of["leaf1:eth1"] == pytest.approx(float(Fraction(33, 98))) and of["leaf1:eth3"] == pytest.approx(16 / 98)
    assert of["spine2:eth3"] == pytest.approx(32 / 98) and of["spine1:eth3"] == pytest.approx(33 / 98)
    assert len(graph.paths("h1:eth1", "h4:eth1")) == 2 * 2 + 2 * 1, "each path once, whatever its weight"
