"""The paths of flows: bundles divide as single links do, and an outlined lab has the routes of a planned one."""

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from testbed.base.yaml.reader import load_document
from testbed.lab.assembly.resolve import resolve_lab
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.lab import outline_lab
from testbed.run.flows.bundles import LinkBundles, even_bundles
from testbed.run.flows.paths import slowed_graph
from testbed.run.ideals.fabric_graph import fabric_graph
from testbed.run.simulated.fabric import planned_lab
from testbed.run.sweeps import read_sweep

TOPOLOGIES = Path(__file__).parents[4] / "topologies"
THREE_TIERS = """
name: three
fabric:
  design: rail-optimized
  pods: 3
  segments: 2
  hosts: 2
  gpus: 2
  spines: 4
  super_spines: 4
  super_spine_groups: 2
  uplink: {rate: 400G, count: 2}
"""


def lab(text: str) -> Lab:
    return resolve_lab(load_document(text, "<text>"))


def shipped(name: str) -> Lab:
    return lab((TOPOLOGIES / f"{name}.yml").read_text())


def pairs_of(model: Lab, most: int = 200) -> list[tuple[str, str]]:
    graph = fabric_graph(model, planned_lab(model).plan)
    ends = graph.endpoints
    every = [(a, b) for a in ends for b in ends if a.partition(":")[0] != b.partition(":")[0]]
    return every[:: max(1, len(every) // most)]


@pytest.mark.parametrize("name", ["uec-spray", "multi-rail-switch", "rail-optimized", "dual-rail-switch"])
def test_a_bundle_carries_what_each_of_its_links_would(name: str) -> None:
    check_bundles(shipped(name))


def test_spines_of_a_pod_are_alike_and_so_are_their_links() -> None:
    model = lab(THREE_TIERS)
    bundles = check_bundles(model)
    links = len(fabric_graph(model, planned_lab(model).plan).links)
    assert bundles.count < links / 2


def check_bundles(model: Lab) -> LinkBundles:
    graph = fabric_graph(model, planned_lab(model).plan)
    pairs = pairs_of(model)
    bundles, splits = even_bundles(graph, pairs)
    for pair, split in zip(pairs, splits, strict=True):
        wanted = graph.split(*pair)
        found: defaultdict[int, float] = defaultdict(float)
        for link in range(len(graph.links)):
            found[link] = split.get(int(bundles.of_link[link]), 0.0)
        assert {link: share for link, share in found.items() if share} == pytest.approx(wanted)
        pools = bundles.pools(split)
        assert set(pools.values()) == {1.0}
    return bundles


def test_a_slower_link_is_in_no_bundle_with_others() -> None:
    model = lab(THREE_TIERS)
    graph = fabric_graph(model, planned_lab(model).plan)
    slow = next(link.name for link in graph.links if link.tier == "uplink")
    slowed = slowed_graph(graph, {slow: 1_000_000_000})
    pairs = [pair for pair in pairs_of(model) if graph.links]
    bundles, splits = even_bundles(slowed, pairs)
    place = next(number for number, link in enumerate(slowed.links) if link.name == slow)
    mine = int(bundles.of_link[place])
    assert (bundles.of_link == mine).sum() == 1
    for pair, split in zip(pairs, splits, strict=True):
        assert split.get(mine, 0.0) == pytest.approx(graph.split(*pair).get(place, 0.0))


@pytest.mark.parametrize("name", ["rail-optimized", "multi-rail-switch", "uec-spray", "dual-rail-switch", "multi-pod"])
def test_an_outlined_lab_has_the_ports_and_next_hops_of_the_planned_one(name: str) -> None:
    check_outline(shipped(name))


@pytest.mark.parametrize("ecmp", [1, 3])
def test_an_outlined_lab_has_no_more_next_hops_than_its_routing_installs(ecmp: int) -> None:
    """Leaves have eight equally short ways, and spines four."""
    model = lab(f"{THREE_TIERS}  routing: {{ecmp: {ecmp}}}\n")
    check_outline(model)
    graph = fabric_graph(model, outline_lab(model, k=1.0), by_gateway=True)
    pods = [next(end for end in graph.endpoints if end.startswith(f"p{number}")) for number in (1, 2)]
    leaf = graph.group_of[pods[0]]
    assert len(graph.next_hops(leaf, pods[1])) == ecmp
    assert len(graph.next_hops(leaf, pods[0])) == 1


def test_an_outlined_lab_has_the_weights_that_bgp_tells() -> None:
    model = shipped("uneven-bundle")
    check_outline(model)
    graph = fabric_graph(model, outline_lab(model, k=1.0), by_gateway=True)
    ways = Counter(graph.links[number].name for number in graph.next_hops("leaf1", "h4:eth1"))
    assert len(set(ways.values())) > 1, ways


def check_outline(model: Lab) -> None:
    planned, outlined = planned_lab(model).plan, outline_lab(model, k=1.0)
    assert outlined.ports == planned.ports
    assert outlined.hosts == planned.hosts
    assert outlined.qos == planned.qos
    assert not outlined.operations
    ours, theirs = fabric_graph(model, outlined, by_gateway=True), fabric_graph(model, planned)
    for source, destination in pairs_of(model, 60):
        nodes = {link.source for number in theirs.split(source, destination) for link in [theirs.links[number]]}
        for node in nodes:
            mine = [ours.links[number].name for number in ours.next_hops(node, destination)]
            assert mine == [theirs.links[number].name for number in theirs.next_hops(node, destination)]


def test_a_sweep_of_an_outlined_lab_is_planned_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    from testbed.run.flows import support

    monkeypatch.setattr(support, "MOST_PLANNED_LINKS", 4)
    sweep = read_sweep(
        f"name: x\ntopology: {{file: {TOPOLOGIES / 'uec-spray.yml'}}}\nworkload: {{kind: permutation, bytes: 4bdp}}\n"
    )
    [point] = sweep.points
    assert support.flow_lab(sweep.lab_of(point), point.scenario).plan.expected_routes == {}
