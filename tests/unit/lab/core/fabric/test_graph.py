"""The graph of a fabric: waves by distance with all edges that lead there, and links by what they join."""

from pathlib import Path

from testbed.lab.core.fabric.graph import Graph, LabGraph
from testbed.lab.core.schema.load import load_topology, load_topology_text

TOPOLOGIES = Path(__file__).parents[5] / "topologies"


def test_waves_are_by_distance_and_name_every_edge_that_leads_there() -> None:
    graph: Graph[str] = Graph()
    for edge in ("ab1", "ab2", "ac1", "bd1", "cd1", "da1", "de1"):
        graph.add_edge(edge[0], edge[1], edge)
    assert list(graph.waves("a")) == [
        {"b": [("a", ["ab1", "ab2"])], "c": [("a", ["ac1"])]},
        {"d": [("b", ["bd1"]), ("c", ["cd1"])]},
        {"e": [("d", ["de1"])]},
    ]
    assert list(graph.waves("e")) == []


def test_a_node_alone_has_no_waves() -> None:
    graph: Graph[int] = Graph()
    graph.add_node("alone")
    assert list(graph.waves("alone")) == [] and graph.neighbours == {"alone": {}}


def test_links_are_told_apart_by_what_they_join() -> None:
    text = """
name: mixed-links
topology:
  nodes:
    r1: {kind: switch, role: rail}
    r2: {kind: switch, role: rail}
    s1: {kind: switch, role: spine}
    h1: {kind: host}
    h2: {kind: host}
    h3: {kind: host}
  links:
    - endpoints: ["h1:eth1", "r1:down1"]
    - endpoints: ["r1:down2", "h2:eth1"]
    - endpoints: ["r1:uplink1", "s1:down1"]
    - endpoints: ["r1:uplink2", "s1:down2"]
    - endpoints: ["h2:eth2", "h3:eth1"]
    - endpoints: ["h3:eth2", "r2:down1"]
"""
    graph = LabGraph(load_topology_text(text, file="mixed-links.yml"))
    assert {switch: [str(end) for end, _ in nics] for switch, nics in graph.nics.items()} == {
        "r1": ["h1:eth1", "h2:eth1"],
        "r2": ["h3:eth2"],
    }
    assert [(str(link.a), str(link.b)) for link in graph.direct] == [("h2:eth2", "h3:eth1")]
    parallel = {
        node: {other: len(links) for other, links in around.items()}
        for node, around in graph.switches.neighbours.items()
    }
    assert parallel == {"r1": {"s1": 2}, "r2": {}, "s1": {"r1": 2}}
    assert graph.adjacent() == {
        "r1": {"h1", "h2", "s1"},
        "s1": {"r1"},
        "h1": {"r1"},
        "h2": {"r1", "h3"},
        "h3": {"h2", "r2"},
        "r2": {"h3"},
    }


def test_every_link_of_a_shipped_topology_is_in_one_place() -> None:
    lab = load_topology(TOPOLOGIES / "mixed.yml")
    graph = LabGraph(lab)
    between = sum(len(links) for around in graph.switches.neighbours.values() for links in around.values())
    assert between % 2 == 0
    assert between // 2 + sum(map(len, graph.nics.values())) + len(graph.direct) == len(lab.links)
