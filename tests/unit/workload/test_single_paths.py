"""Single paths that are planned load no link more than ideal spraying does."""

import random
from collections import Counter
from itertools import pairwise

import pytest

from testbed.workload.oracles.fabric_graph import DirectedLink, FabricGraph, shortest_path_graph
from testbed.workload.oracles.prediction import Flow
from testbed.workload.single_paths import plan_single_paths


def pod(
    leaves: int, hosts: int, spines: int, *, parallel: int = 1, rates: dict[str, float] | None = None
) -> FabricGraph:
    links = []
    for leaf in range(leaves):
        for host in range(hosts):
            links += _both(f"h{leaf}.{host}", f"leaf{leaf}", 1.0)
        for spine in range(spines):
            for number in range(parallel):
                rate = (rates or {}).get(f"spine{spine}", 1.0)
                links += _both(f"leaf{leaf}", f"spine{spine}", rate, f"-{number}")
    return shortest_path_graph(links, [f"h{leaf}.{host}" for leaf in range(leaves) for host in range(hosts)])


def _both(one: str, other: str, rate: float, suffix: str = "") -> list[DirectedLink]:
    return [
        DirectedLink(source=a, destination=b, capacity_bps=rate, name=f"{a}>{b}{suffix}")
        for a, b in ((one, other), (other, one))
    ]


def between_leaves(leaves: int, hosts: int, seed: int) -> list[Flow]:
    """A permutation of hosts, each of whose flows goes to another leaf."""
    rng = random.Random(seed)
    ends = [(leaf, host) for leaf in range(leaves) for host in range(hosts)]
    while True:
        to = ends.copy()
        rng.shuffle(to)
        if all(a[0] != b[0] for a, b in zip(ends, to, strict=True)):
            return [
                Flow(source=f"h{a[0]}.{a[1]}", destination=f"h{b[0]}.{b[1]}", size_bytes=1000)
                for a, b in zip(ends, to, strict=True)
            ]


def shifted(leaves: int, hosts: int, shift: int) -> list[Flow]:
    return [
        Flow(source=f"h{leaf}.{host}", destination=f"h{(leaf + shift) % leaves}.{host}", size_bytes=1000)
        for leaf in range(leaves)
        for host in range(hosts)
    ]


def fullest(graph: FabricGraph, paths: list[tuple[int, ...]]) -> int:
    return max(Counter(link for path in paths for link in path[1:-1]).values())


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("leaves", "hosts", "spines", "parallel"), [(4, 4, 4, 1), (4, 8, 4, 2), (3, 6, 6, 1), (4, 16, 16, 1)]
)
def test_a_permutation_fills_each_uplink_of_a_non_blocking_pod_once(
    leaves: int, hosts: int, spines: int, parallel: int, seed: int
) -> None:
    graph = pod(leaves, hosts, spines, parallel=parallel)
    flows = between_leaves(leaves, hosts, seed) if leaves > 3 and hosts < 9 else shifted(leaves, hosts, 1 + seed % 2)
    paths = plan_single_paths(graph, flows)
    for flow, path in zip(flows, paths, strict=True):
        assert path in graph.paths(flow.source, flow.destination)
    assert fullest(graph, paths) == 1


@pytest.mark.parametrize("seed", range(5))
def test_with_fewer_spines_each_uplink_has_its_share(seed: int) -> None:
    graph = pod(4, 6, 3)
    paths = plan_single_paths(graph, between_leaves(4, 6, seed))
    assert fullest(graph, paths) == 2


def test_all_to_all_is_even_as_well() -> None:
    graph = pod(3, 2, 2)
    ends = list(graph.endpoints)
    flows = [Flow(source=a, destination=b, size_bytes=10) for a in ends for b in ends if a != b]
    paths = plan_single_paths(graph, flows)
    # 2 hosts of a leaf send to 4 elsewhere: 8 flows over 2 uplinks
    loads = Counter(link for path in paths if len(path) == 4 for link in path[1:3])
    assert set(loads.values()) == {4}


def test_flows_within_a_leaf_have_their_one_path() -> None:
    graph = pod(2, 2, 2)
    (path,) = plan_single_paths(graph, [Flow(source="h0.0", destination="h0.1", size_bytes=1)])
    assert len(path) == 2


def test_on_links_of_other_rates_the_fullest_is_as_little_full_as_can_be() -> None:
    graph = pod(2, 3, 2, rates={"spine0": 2.0})
    flows = shifted(2, 3, 1)
    paths = plan_single_paths(graph, flows)
    loads = Counter(graph.links[link].name for path in paths for link in path[1:3])
    assert {loads["leaf0>spine0-0"], loads["leaf1>spine0-0"]} == {2}
    assert {loads["leaf0>spine1-0"], loads["leaf1>spine1-0"]} == {1}


def test_large_flows_are_kept_apart() -> None:
    graph = pod(2, 4, 2)
    flows = [
        Flow(source=f"h0.{host}", destination=f"h1.{host}", size_bytes=1_000_000 if host < 2 else 1000)
        for host in range(4)
    ]
    paths = plan_single_paths(graph, flows)
    assert paths[0][1] != paths[1][1]


def test_a_nic_on_two_leaves_is_on_one_of_them_with_each_flow() -> None:
    """Its flows leave by either leaf: a path never goes on by a spine's link of the other one."""
    links = [*_both("h0", "leaf0", 1.0), *_both("h0", "leaf1", 1.0), *_both("h1", "leaf2", 1.0)]
    for leaf in range(3):
        for spine in range(2):
            links += _both(f"leaf{leaf}", f"spine{spine}", 1.0)
    graph = shortest_path_graph(links, ["h0", "h1"])
    flows = [Flow(source="h0", destination="h1", size_bytes=1000) for _ in range(4)]
    for path in plan_single_paths(graph, flows):
        ends = [graph.links[link] for link in path]
        assert all(one.destination == other.source for one, other in pairwise(ends))
