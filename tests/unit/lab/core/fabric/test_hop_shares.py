"""Weighted ECMP in what is known of links alone: the weights of a plan, and the bisection and loads that they make."""

from dataclasses import replace
from pathlib import Path

import pytest
from hand_made import by_hand

from testbed.base.units import Rate
from testbed.lab.core.fabric import FabricParams, UplinkParams, generate_fabric, measure_bisection, measure_sizing
from testbed.lab.core.fabric.forwarding.hop_shares import HopShares, told_bandwidths, weights_differ
from testbed.lab.core.fabric.graph import LabGraph
from testbed.lab.core.model import Lab, LinkKind, Protocol, Role, Routing
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology, load_topology_text

G = 10**9
TOPOLOGY = Path(__file__).parents[5] / "topologies" / "uneven-bundle.yml"
BY_HAND = """
name: weighted
fabric: {{routing: {{weighted: true}}}}
topology:
  nodes:
    leaf1: {{kind: switch, role: rail}}
    leaf2: {{kind: switch, role: rail}}
    spine1: {{kind: switch, role: spine}}
    spine2: {{kind: switch, role: spine}}
    h1: {{kind: host}}
    h2: {{kind: host}}
  links:
    - {{endpoints: ["leaf1:eth1", "spine1:eth1"], rate: {0}G}}
    - {{endpoints: ["leaf1:eth2", "spine2:eth1"], rate: {1}G}}
    - {{endpoints: ["leaf2:eth1", "spine1:eth2"], rate: {2}G}}
    - {{endpoints: ["leaf2:eth2", "spine2:eth2"], rate: {3}G}}
    - {{endpoints: ["h1:eth1", "leaf1:eth3"], rate: 400G}}
    - {{endpoints: ["h2:eth1", "leaf2:eth3"], rate: 400G}}
"""


def by_rates(*gigabits: int) -> Lab:
    return load_topology_text(BY_HAND.format(*gigabits), file="t.yml")


def super_spines() -> Lab:
    """Two pods, one of whose spines has lost one of its links up: weights are handed on over two tiers."""
    shape = {"pods": 2, "segments": 2, "hosts": 1, "gpus": 1, "spines": 2, "super_spines": 2}
    params = FabricParams(
        design="rail-optimized",
        core_uplink=UplinkParams(count=2),
        routing=Routing(weighted=True),
        **shape,  # type: ignore[arg-type]
    )
    lab = generate_fabric(params, name="lab")
    lost = next(link for link in lab.links if link.a.node == "p2-spine1")
    return replace(lab, links=tuple(link for link in lab.links if link is not lost))


def weights(lab: Lab, destination: str) -> dict[str, dict[str, int]]:
    """The weights of the interfaces of each switch that divides unevenly."""
    found = {}
    shares = HopShares(told_bandwidths(lab), lab.routing.ecmp)
    for wave in LabGraph(lab).switches.waves(destination):
        for switch, arrivals in wave.items():
            each = {
                (link.a if link.a.node == switch else link.b).interface: weight
                for (_, link), weight in shares.add(switch, arrivals)
            }
            if len(set(each.values())) > 1:
                found[switch] = each
    return found


LABS = {
    "bundle": lambda: load_topology(TOPOLOGY),
    "own links": lambda: by_rates(400, 100, 400, 400),
    "both": lambda: by_rates(400, 100, 400, 100),
    "alike": lambda: by_rates(200, 200, 200, 200),
    "two tiers": super_spines,
}


@pytest.mark.parametrize("name", LABS)
def test_shares_are_the_weights_of_the_plan(name: str) -> None:
    lab = LABS[name]()
    plan = plan_lab(lab, k=1)
    differ = False
    for host in plan.hosts:
        (nic,) = host.nics
        assert nic.address is not None
        leaf = nic.peer.partition(":")[0]
        found = weights(lab, leaf)
        for switch in lab.switches:
            if switch.name == leaf:
                continue
            route = next(one for one in plan.expected_routes[switch.name] if nic.address.ip in one.prefix)
            planned = dict(zip(route.interfaces, route.weights, strict=True)) if route.weights else {}
            assert found.get(switch.name, {}) == planned, (switch.name, leaf)
            differ = differ or bool(planned)
    assert differ is (name != "alike")
    graph = LabGraph(lab)
    assert weights_differ(graph.switches, graph.nics, told_bandwidths(lab), lab.routing.ecmp) is differ


@pytest.mark.parametrize(
    ("rates", "carried"),
    [
        ((400, 100, 400, 100), 400),
        ((400, 100, 400, 400), 400),  # one leaf by its own links, the other by what spines tell
        ((300, 100, 300, 100), 400),
        ((200, 50, 200, 50), 250),  # less than the NIC, and all of it
        ((200, 200, 200, 200), 400),
    ],
)
def test_the_bisection_is_that_of_the_weights(rates: tuple[int, int, int, int], carried: int) -> None:
    lab = by_rates(*rates)
    found = measure_bisection(lab)
    assert found is not None
    assert (found.bandwidth_bps, found.ecmp_bps) == (carried * G, carried * G)
    assert found.weighted is (len(set(rates)) > 1)
    (load,) = measure_sizing(lab).traffic
    assert load.bandwidth_bps == carried * G
    plain = measure_bisection(replace(lab, routing=Routing()))
    assert plain is not None and plain.ecmp_bps == min(400, 2 * min(rates)) * G and not plain.weighted


def test_rounded_weights_leave_a_part_idle() -> None:
    """33, 33, 16 and 16 percent: the links of spine1 have 33/98 of 1.2T each, and not a third."""
    sizing = measure_sizing(load_topology(TOPOLOGY))
    carried = pytest.approx(1200 * G * (400 / (1200 * 33 / 98)), rel=1e-6)
    assert sizing.bisection is not None and sizing.bisection.ecmp_bps == carried
    (load,) = sizing.bisection_traffic
    assert load.oversubscription == pytest.approx(1200 * 33 / 98 / 400)


def test_weights_may_carry_less_than_equal_shares() -> None:
    """Links upwards that are alike get shares by what is behind them, though they could all be full."""
    lab = by_rates(200, 200, 800, 400)
    found = measure_bisection(lab)
    assert found is not None and found.weighted and found.bandwidth_bps == 400 * G
    assert found.ecmp_bps == 300 * G, "200G over the first of two, which has two thirds"
    assert measure_sizing(lab).traffic[0].oversubscription == pytest.approx(4 / 3)


def test_ibgp_weighs_nothing() -> None:
    """A plan refuses it (`link_bandwidths`), with the key; what is counted before is plain."""
    lab = by_rates(400, 100, 400, 100)
    found = measure_bisection(replace(lab, routing=replace(lab.routing, protocol=Protocol.IBGP)))
    assert found is not None and found.ecmp_bps == 200 * G and not found.weighted


def test_a_graph_of_switches_that_tell_nothing_is_even() -> None:
    """Hosts on spines: those announce with no bandwidth, so nothing is weighted."""
    roles = {"a": Role.SPINE, "b": Role.SPINE, "leaf1": Role.RAIL, "leaf2": Role.RAIL}
    links = [("h1", "a", 400), ("h2", "b", 400), ("leaf1", "a", 200), ("leaf1", "b", 200)]
    lab = replace(by_hand([*links, ("leaf2", "a", 200), ("leaf2", "b", 200)], roles), routing=Routing(weighted=True))
    assert all(link.rate in (Rate(400 * G), Rate(200 * G)) for link in lab.links)
    assert {link.kind for link in lab.links} == {LinkKind.ROUTED, LinkKind.FABRIC}
    found = measure_bisection(lab)
    assert found is not None and found.ecmp_bps == 400 * G and not found.weighted
