"""The oracles of spraying: every flow uses all its equal-cost paths at once.

Oblivious spraying divides evenly at each node whatever the links can do, so a flow is held back by its slowest share:
max-min over flows of fixed weights, exact. Adaptive spraying moves away from slow paths: at best it reaches the
max-min fair rates of splittable flows, exact by linear programmes (`linear_program`); where oblivious spraying already
gives each flow all that the NICs allow, that is the answer, and no programme is solved.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from testbed.workload.oracles.ecmp import UPLINKS, placed_metrics
from testbed.workload.oracles.fabric_graph import FabricGraph
from testbed.workload.oracles.linear_program import splittable_max_min
from testbed.workload.oracles.max_min import Floats, Usage, completion_times, fill, usage_of
from testbed.workload.oracles.prediction import Flow, Prediction, flow_metrics, has_sizes, predict, sizes_bits


def spray_flows(graph: FabricGraph, flows: Sequence[Flow]) -> Usage:
    """Each flow divided evenly over the equal-cost links of every node. Raises `NoPath`."""
    splits = [graph.split(flow.source, flow.destination) for flow in flows]
    return usage_of([list(split) for split in splits], [list(split.values()) for split in splits])


def adaptive_shares(graph: FabricGraph, flows: Sequence[Flow]) -> Floats:
    """The max-min fair rate of each flow, bit/s, if flows may divide as they like over their equal-cost paths.

    Raises `NoPath`, and `TooLarge` (a `ValueError`) for more than some hundred flows over slow links of their own.
    """
    return _adaptive(graph, flows, spray_flows(graph, flows), np.ones(len(flows), dtype=bool))


def predict_spraying(
    graph: FabricGraph, flows: Sequence[Flow], *, adaptive: bool, base_rtt_s: float = 0.0, tier: str = UPLINKS
) -> Prediction:
    """The metrics of spraying. Raises as `adaptive_shares` does.

    How adaptive spraying divides over the links is not unique, so there are no metrics of links for it.
    """
    usage = spray_flows(graph, flows)
    if not adaptive:
        metrics = placed_metrics(graph, flows, usage, base_rtt_s=base_rtt_s, tier=tier)
        return predict("max-min shares of flows divided evenly at each hop", [metrics])
    everyone = np.ones(len(flows), dtype=bool)
    rates = _adaptive(graph, flows, usage, everyone)
    completed = None
    if has_sizes(flows):
        completed = completion_times(sizes_bits(flows), lambda active: _adaptive(graph, flows, usage, active))
    metrics = flow_metrics(graph, flows, rates, completed, base_rtt_s)
    return predict("max-min shares of splittable flows (linear programme)", [metrics])


def _adaptive(graph: FabricGraph, flows: Sequence[Flow], usage: Usage, active: npt.NDArray[np.bool_]) -> Floats:
    capacity = np.array(graph.capacities)
    oblivious = fill(usage.of(active), capacity)
    access = np.array([_is_access(graph, number) for number in range(len(graph.links))])
    bound = fill(usage.of(active), np.where(access, capacity, np.inf))
    if (oblivious >= bound * (1 - 1e-9)).all():
        return oblivious
    numbers: dict[tuple[str, str], list[int]] = {}
    for number in np.flatnonzero(active).tolist():
        numbers.setdefault((flows[number].source, flows[number].destination), []).append(number)
    rates = np.zeros(len(flows))
    each = splittable_max_min(
        [graph.paths(*ends) for ends in numbers], capacity, [len(alike) for alike in numbers.values()]
    )
    for rate, alike in zip(each, numbers.values(), strict=True):
        rates[alike] = rate
    return rates


def _is_access(graph: FabricGraph, number: int) -> bool:
    link = graph.links[number]
    return link.source in graph.group_of or link.destination in graph.group_of
