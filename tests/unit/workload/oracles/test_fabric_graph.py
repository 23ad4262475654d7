"""The graph of a fabric: next hops, paths, even splits, links that are slow or gone."""

import pytest
from clos_graphs import RATE_BPS, leaf_spine

from testbed.workload.oracles.fabric_graph import DirectedLink, NoPath, shortest_path_graph


def test_equal_cost_paths_of_a_leaf_spine() -> None:
    graph = leaf_spine(2, 2, 4)
    assert len(graph.paths("h0.0", "h1.0")) == 4
    assert len(graph.paths("h0.0", "h0.1")) == 1
    assert len(graph.next_hops("leaf0", "h1.1")) == 4
    assert sum(link.tier == "uplink" for link in graph.links) == 8
    assert graph.access_bps("h0.0", "h1.0") == RATE_BPS
    assert {len(path) for path in graph.paths("h0.0", "h1.0")} == {4}


def test_a_path_is_what_the_hash_chooses() -> None:
    graph = leaf_spine(2, 1, 4)
    asked = []

    def third(node: str, links: int) -> int:
        asked.append((node, links))
        return 2

    path = graph.path("h0.0", "h1.0", third)
    assert [graph.links[number].destination for number in path] == ["leaf0", "spine2", "leaf1", "h1.0"]
    assert asked == [("leaf0", 4)]


def test_a_split_is_even_at_each_hop() -> None:
    graph = leaf_spine(2, 1, 4)
    split = {graph.links[number].name: share for number, share in graph.split("h0.0", "h1.0").items()}
    assert split["h0.0:leaf0"] == split["leaf1:h1.0"] == 1
    assert [split[f"leaf0:spine{n}"] for n in range(4)] == [0.25] * 4
    assert len(split) == 10


def test_parallel_links_are_links_of_their_own() -> None:
    links = [
        DirectedLink(source=a, destination=b, capacity_bps=1, name=f"{a}{b}{n}")
        for a, b in (("h1", "s"), ("s", "t"), ("t", "h2"))
        for n in range(2 if (a, b) == ("s", "t") else 1)
    ]
    graph = shortest_path_graph(links, ["h1", "h2"])
    assert len(graph.paths("h1", "h2")) == 2
    with pytest.raises(NoPath):
        graph.paths("h2", "h1")  # links have directions


def test_endpoints_forward_nothing() -> None:
    links = [
        DirectedLink(source=a, destination=b, capacity_bps=1)
        for x, y in (("h1", "s"), ("h2", "s"), ("h2", "t"), ("h3", "t"))
        for a, b in ((x, y), (y, x))
    ]
    graph = shortest_path_graph(links, ["h1", "h2", "h3"])
    assert len(graph.paths("h1", "h2")) == 1
    assert len(graph.paths("h2", "h3")) == 1  # by the one of its links that leads there
    with pytest.raises(NoPath):
        graph.path("h1", "h3", lambda _node, _links: 0)
    with pytest.raises(NoPath):
        graph.split("h1", "h3")


def test_two_hosts_on_a_cable() -> None:
    graph = shortest_path_graph([DirectedLink(source="a", destination="b", capacity_bps=1)], ["a", "b"])
    assert graph.paths("a", "b") == [(0,)]


@pytest.mark.parametrize(("source", "destination"), [("h0.0", "h0.0"), ("leaf0", "h0.0"), ("h0.0", "nobody")])
def test_ends_that_are_none(source: str, destination: str) -> None:
    graph = leaf_spine(2, 1, 2)
    for ask in (graph.paths, graph.split):
        with pytest.raises(NoPath):
            ask(source, destination)


def test_too_many_paths_to_list() -> None:
    with pytest.raises(ValueError, match="more than 3"):
        leaf_spine(2, 1, 4).paths("h0.0", "h1.0", limit=3)


def test_a_link_that_is_gone_is_withdrawn_upstream() -> None:
    graph = leaf_spine(3, 1, 4).without(["spine1:leaf1", "leaf1:spine1"])
    assert len(graph.paths("h0.0", "h1.0")) == 3  # spine1 has no way down to leaf1
    assert len(graph.paths("h0.0", "h2.0")) == 4
    assert len(graph.paths("h1.0", "h2.0")) == 3
    alone = leaf_spine(2, 1, 1).without(["spine0:leaf1"])
    with pytest.raises(NoPath):
        alone.paths("h0.0", "h1.0")
    assert len(alone.paths("h1.0", "h0.0")) == 1


def test_a_circle_of_routes_is_an_error() -> None:
    graph = leaf_spine(2, 1, 1)
    back = next(number for number, link in enumerate(graph.links) if link.name == "spine0:leaf0")
    circle = {group: {**table, "spine0": (back,)} for group, table in graph.routes.items()}
    twisted = type(graph)(links=graph.links, routes=circle, group_of=graph.group_of)
    with pytest.raises(NoPath):
        twisted.path("h0.0", "h1.0", lambda _node, _links: 0)
    with pytest.raises(NoPath, match="circle"):
        twisted.split("h0.0", "h1.0")
    with pytest.raises(NoPath, match="circle"):
        twisted.paths("h0.0", "h1.0")
