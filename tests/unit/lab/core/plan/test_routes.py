"""Expected routes: the tables real FRR was seen to converge to, and the rules that make them."""

from ipaddress import IPv4Address, IPv4Network

from testbed.lab.core.fabric import FabricParams, UplinkParams, generate_fabric
from testbed.lab.core.model import Protocol, Routing
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import ExpectedRoute, LabPlan
from testbed.lab.core.plan.routes import PlannedSession, Speaker, expect_routes


def fabric(protocol: Protocol = Protocol.EBGP, **changes: object) -> LabPlan:
    values: dict[str, object] = {"pods": 2, "hosts": 1, "gpus": 2, "spines": 2, "super_spines": 2, **changes}
    routing = Routing(protocol=protocol)
    params = FabricParams(design="rail-optimized", routing=routing, **values)  # type: ignore[arg-type]
    return plan_lab(generate_fabric(params, name="x"), k=1000)


def widths(plan: LabPlan, node: str) -> dict[str, int]:
    return {str(route.prefix): route.next_hops for route in plan.expected_routes[node]}


def speaker(name: str, router_id: int, group: int | None) -> Speaker:
    return Speaker(name, router_id, group, (IPv4Network((router_id, 32)),))


def sessions(*pairs: str, clients: bool = False) -> list[PlannedSession]:
    """Both directions of sessions such as "a-b"; `clients`: the first of each pair is a client of the second."""
    found: list[PlannedSession] = []
    for pair in pairs:
        a, b = pair.split("-")
        found.append(PlannedSession(a, b, f"to-{a}", f"02:{a}", from_client=clients))
        found.append(PlannedSession(b, a, f"to-{b}", f"02:{b}", to_client=clients))
    return found


def table(expected: dict[str, tuple[ExpectedRoute, ...]], node: str) -> dict[int, tuple[str, ...]]:
    return {int(route.prefix.network_address): route.interfaces for route in expected[node]}


def test_three_tiers_have_the_tables_frr_was_measured_to_have() -> None:
    """2 pods of 8 rails and 8 spines, 8 super-spines: 54, 48 and 48 routes (FRR 8.4.4)."""
    plan = fabric(gpus=8, spines=8, super_spines=8)
    assert len(plan.expected_routes["p1-s1-rail1"]) == 54
    assert len(plan.expected_routes["p1-spine1"]) == 48
    assert len(plan.expected_routes["ss1"]) == 48
    assert widths(plan, "p1-s1-rail1")["10.0.2.0/24"] == 8
    assert widths(plan, "p2-spine1")["10.0.1.0/24"] == 8


def test_switches_of_one_as_do_not_learn_each_other() -> None:
    plan = fabric()
    assert "172.17.0.2/32" not in widths(plan, "p1-spine1")
    assert "172.17.4.1/32" in widths(plan, "p1-spine1")
    assert "172.16.0.2/32" not in widths(plan, "ss1")


def test_a_rail_switch_reaches_a_spine_of_its_pod_directly_only() -> None:
    assert widths(fabric(), "p1-s1-rail1")["172.17.0.1/32"] == 1


def test_parallel_links_count() -> None:
    assert widths(fabric(uplink=UplinkParams(count=2)), "p1-s1-rail1")["10.0.2.0/24"] == 4


def test_ibgp_with_reflectors_reaches_the_spines_of_the_pod_through_super_spines() -> None:
    """A spine's own routes carry no cluster yet when a super-spine reflects them (seen in FRR 8.4.4)."""
    plan = fabric(Protocol.IBGP)
    assert widths(plan, "p1-spine1")["172.17.0.2/32"] == 2
    assert widths(plan, "p1-s1-rail1")["10.8.1.0/24"] == 2
    assert "172.16.0.2/32" not in widths(plan, "ss1")


def test_an_aggregate_hides_its_rails_and_is_a_blackhole_at_home() -> None:
    plan = plan_lab(generate_fabric(FabricParams(design="multi-rail-switch"), name="x"), k=1000)
    spine = {str(route.prefix) for route in plan.expected_routes["p1-spine1"]}
    assert "10.0.1.0/24" in spine
    assert not any(prefix.endswith("/28") for prefix in spine)
    assert ExpectedRoute(prefix=IPv4Network("10.0.1.0/24"), interfaces=()) in plan.expected_routes["p1-s1-rail1"]


def test_ecmp_narrower_than_the_paths_leaves_the_choice_open() -> None:
    params = FabricParams(design="rail-optimized", gpus=2, spines=4, routing=Routing(ecmp=3))
    plan = plan_lab(generate_fabric(params, name="x"), k=1000)
    route = next(r for r in plan.expected_routes["p1-s1-rail1"] if str(r.prefix) == "10.0.2.0/24")
    assert (len(route.interfaces), route.next_hops) == (4, 3)
    assert route.matches(["uplink1", "uplink2", "uplink4"])
    assert not route.matches(["uplink1", "uplink2"])
    assert not route.matches(["uplink1", "uplink2", "down1"])


def test_a_line_of_switches_passes_routes_on_under_ebgp_and_stops_without_a_reflector() -> None:
    line = sessions("a-b", "b-c")
    far = int(IPv4Address(3))
    ebgp, _ = expect_routes([speaker(n, i, i) for i, n in enumerate("abc", 1)], line, ecmp=64, reflection=False)
    ibgp, _ = expect_routes([speaker(n, i, None) for i, n in enumerate("abc", 1)], line, ecmp=64, reflection=True)
    assert table(ebgp, "a") == {2: ("to-b",), far: ("to-b",)}
    assert table(ibgp, "a") == {2: ("to-b",)}


def test_a_reflector_does_not_pass_a_peers_route_to_a_peer() -> None:
    # c is above b, and so is d: both are no clients of b; a is.
    speakers = [speaker("a", 1, None), speaker("b", 2, 100), speaker("c", 3, 200), speaker("d", 4, 300)]
    links = sessions("a-b", clients=True) + sessions("b-c", "b-d", clients=True)
    expected, _ = expect_routes(speakers, links, ecmp=64, reflection=True)
    assert set(table(expected, "a")) == {2, 3, 4}
    assert set(table(expected, "c")) == {1, 2}


def test_a_choice_that_others_depend_on_is_pinned_to_the_lowest_router_id() -> None:
    """d hears of o through a (AS 10) and through b (AS 20), equally far; e is in AS 20 and refuses b's path."""
    speakers = [speaker("o", 1, 1), speaker("a", 2, 10), speaker("b", 3, 20), speaker("d", 4, 40), speaker("e", 5, 20)]
    links = sessions("o-a", "o-b", "a-d", "b-d", "d-e")
    expected, pinned = expect_routes(speakers, links, ecmp=64, reflection=False)
    assert table(expected, "d")[1] == ("to-a", "to-b")
    assert table(expected, "e")[1] == ("to-d",)
    assert "d" in pinned
    swapped = [speaker("a", 3, 10) if s.name == "a" else speaker("b", 2, 20) if s.name == "b" else s for s in speakers]
    expected, _ = expect_routes(swapped, links, ecmp=64, reflection=False)
    assert 1 not in table(expected, "e")


def test_generated_fabrics_need_no_pinning() -> None:
    assert not any(switch.compare_router_id for switch in fabric(super_spine_groups=2).switches)
