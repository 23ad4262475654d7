"""Small leaf-spine graphs with links of 100 Gbit/s, and permutations over them."""

import random

from testbed.workload.oracles.fabric_graph import DirectedLink, FabricGraph, shortest_path_graph
from testbed.workload.oracles.prediction import Flow

RATE_BPS = 100e9


def leaf_spine(
    leaves: int, hosts: int, spines: int, *, slow: dict[tuple[int, int], float] | None = None
) -> FabricGraph:
    """`slow` has the rates of cables between leaf and spine that are not like the others."""
    links, endpoints = [], []
    for leaf in range(leaves):
        for host in range(hosts):
            end = f"h{leaf}.{host}"
            endpoints.append(end)
            links += _cable(end, f"leaf{leaf}", RATE_BPS, "access", "delivery")
        for spine in range(spines):
            rate = (slow or {}).get((leaf, spine), RATE_BPS)
            links += _cable(f"leaf{leaf}", f"spine{spine}", rate, "uplink", "downlink")
    return shortest_path_graph(links, endpoints)


def _cable(low: str, high: str, rate_bps: float, up: str, down: str) -> list[DirectedLink]:
    return [
        DirectedLink(source=low, destination=high, capacity_bps=rate_bps, name=f"{low}:{high}", tier=up),
        DirectedLink(source=high, destination=low, capacity_bps=rate_bps, name=f"{high}:{low}", tier=down),
    ]


def shifted(leaves: int, hosts: int, size_bytes: int | None = 1_000_000) -> list[Flow]:
    """Each host sends to the host of the same number on the next leaf."""
    return [
        Flow(source=f"h{leaf}.{host}", destination=f"h{(leaf + 1) % leaves}.{host}", size_bytes=size_bytes)
        for leaf in range(leaves)
        for host in range(hosts)
    ]


def permutation(leaves: int, hosts: int, seed: int, size_bytes: int | None = 1_000_000) -> list[Flow]:
    """A random permutation in which nobody sends within a leaf."""
    rng = random.Random(seed)
    count = leaves * hosts
    targets = list(range(count))
    rng.shuffle(targets)
    while stay := [i for i in range(count) if targets[i] // hosts == i // hosts]:
        for i in stay:
            j = rng.randrange(count)
            targets[i], targets[j] = targets[j], targets[i]
    return [
        Flow(source=f"h{i // hosts}.{i % hosts}", destination=f"h{t // hosts}.{t % hosts}", size_bytes=size_bytes)
        for i, t in enumerate(targets)
    ]
