"""The oracle of ECMP: each flow takes one of its equal-cost paths, and links are shared max-min fairly.

Which path is said by a hash, the lab's own say, or drawn at random. Over many seeds (Monte Carlo) this predicts what
collisions cost: aggregate share, slowest flow, Jain, tail and max / mean of the uplinks, each with its spread.
Congestion control is ideal here, and headers cost every flow the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from testbed.workload.oracles.fabric_graph import UPLINKS, FabricGraph
from testbed.workload.oracles.max_min import LinkUsage, fill, fluid_completion_times, usage_of
from testbed.workload.oracles.prediction import (
    Flow,
    Prediction,
    flow_metrics,
    has_sizes,
    link_metrics,
    predict,
    sizes_bits,
)

FlowChoice = Callable[[int, str, int], int]
"""(number of the flow, node, equal-cost links there) -> which of them, from 0."""
FlowHash = Callable[[int, str], int]
"""(number of the flow, node) -> 32 bits."""
Flows = Sequence[Flow] | Callable[[int], Sequence[Flow]]
"""Flows that are alike for each seed, or those that a seed draws."""


def random_choice(seed: int) -> FlowChoice:
    """Every flow draws anew at every node: an ideal hash with a seed of its own in each switch."""
    rng = random.Random(seed)
    return lambda _flow, _node, links: rng.randrange(links)


def hashed_choice(hash_of: FlowHash) -> FlowChoice:
    """The link whose part of the hash space the hash falls into: Linux' hash-threshold (RFC 2992)."""
    return lambda flow, node, links: (hash_of(flow, node) & 0xFFFFFFFF) * links >> 32


def place_flows(graph: FabricGraph, flows: Sequence[Flow], choose: FlowChoice) -> list[tuple[int, ...]]:
    """The links of each flow's one path. Raises `NoPath`."""
    return [graph.path(flow.source, flow.destination, partial(choose, number)) for number, flow in enumerate(flows)]


def placed_metrics(
    graph: FabricGraph, flows: Sequence[Flow], usage: LinkUsage, *, base_rtt_s: float = 0.0
) -> dict[str, float | None]:
    """The metrics of flows whose use of links is fixed, by their names in the catalogue.

    Rates are those while all flows send. Where flows have sizes there is a tail, for which rates rise whenever a flow
    ends, and links are judged by bytes; else by rates.
    """
    capacity = np.array(graph.capacities)
    sized = has_sizes(flows)
    rates = fill(usage, capacity)
    completed = fluid_completion_times(sizes_bits(flows), usage, capacity) if sized else None
    return {
        **flow_metrics(graph, flows, rates, completed, base_rtt_s),
        **link_metrics(graph, usage, sizes_bits(flows) if sized else rates, UPLINKS),
    }


def predict_ecmp(
    graph: FabricGraph,
    flows: Flows,
    *,
    seeds: Iterable[int],
    choice: Callable[[int], FlowChoice] = random_choice,
    base_rtt_s: float = 0.0,
) -> Prediction:
    """Monte Carlo over `seeds`; `choice` makes the hash of a seed. Raises `NoPath`, `ValueError` without a seed."""
    runs = []
    for seed in seeds:
        drawn = flows(seed) if callable(flows) else flows
        routes = place_flows(graph, drawn, choice(seed))
        runs.append(placed_metrics(graph, drawn, usage_of(routes), base_rtt_s=base_rtt_s))
    if not runs:
        raise ValueError("a Monte Carlo needs at least one seed")
    return predict(f"max-min shares of one path per flow, {len(runs)} seeds", runs)
