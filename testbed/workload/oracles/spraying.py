"""The oracles of spraying: every flow uses all its equal-cost paths at once.

Oblivious spraying divides evenly at each node whatever the links can do, so a flow is held back by its slowest share:
max-min over flows of fixed weights, exact. Adaptive spraying moves away from slow paths: at best it reaches the
max-min fair rates of splittable flows, exact by linear programmes (`linear_program`); where oblivious spraying already
gives each flow all that a more capable fabric would, that is the answer, and no programme is solved.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from testbed.workload.oracles.ecmp import placed_metrics
from testbed.workload.oracles.fabric_graph import FabricGraph
from testbed.workload.oracles.linear_program import splittable_max_min
from testbed.workload.oracles.max_min import Floats, LinkUsage, completion_times, fill, usage_of
from testbed.workload.oracles.prediction import Flow, Prediction, flow_metrics, has_sizes, predict, sizes_bits


def spray_flows(graph: FabricGraph, flows: Sequence[Flow]) -> LinkUsage:
    """Each flow divided evenly over the equal-cost links of every node. Raises `NoPath`."""
    splits = [graph.split(flow.source, flow.destination) for flow in flows]
    return usage_of([list(split) for split in splits], [list(split.values()) for split in splits])


def adaptive_shares(graph: FabricGraph, flows: Sequence[Flow]) -> Floats:
    """The max-min fair rate of each flow, bit/s, if flows may divide as they like over their equal-cost paths.

    Raises `NoPath`, and `TooLarge` (a `ValueError`) for much more than 64 flows of 8 paths on an uneven fabric.
    """
    return _adaptive(graph, flows, spray_flows(graph, flows), np.ones(len(flows), dtype=bool))


def predict_spraying(
    graph: FabricGraph, flows: Sequence[Flow], *, adaptive: bool, base_rtt_s: float = 0.0
) -> Prediction:
    """The metrics of spraying. Raises as `adaptive_shares` does.

    How adaptive spraying divides over the links is not unique, so there are no metrics of links for it.
    """
    usage = spray_flows(graph, flows)
    if not adaptive:
        metrics = placed_metrics(graph, flows, usage, base_rtt_s=base_rtt_s)
        return predict("max-min shares of flows divided evenly at each hop", [metrics])
    everyone = np.ones(len(flows), dtype=bool)
    rates = _adaptive(graph, flows, usage, everyone)
    completed = None
    if has_sizes(flows):
        completed = completion_times(sizes_bits(flows), lambda active: _adaptive(graph, flows, usage, active))
    metrics = flow_metrics(graph, flows, rates, completed, base_rtt_s)
    return predict("max-min shares of splittable flows (linear programme)", [metrics])


def _adaptive(graph: FabricGraph, flows: Sequence[Flow], usage: LinkUsage, active: npt.NDArray[np.bool_]) -> Floats:
    capacity = np.array(graph.capacities)
    sending = usage.of(active)
    oblivious = fill(sending, capacity)
    if (oblivious >= fill(*_relaxed(graph, sending)) * (1 - 1e-9)).all():
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


def _relaxed(graph: FabricGraph, usage: LinkUsage) -> tuple[LinkUsage, Floats]:
    """A fabric that can do more: the links of a tier out of a node are one link, and so are those into it.

    A flow uses such a link if it must, whatever path it takes. Rates that are max-min fair here and possible in the
    real fabric are so there, too.
    """
    bundles: dict[tuple[str, str], int] = {}
    capacity: list[float] = []
    members = np.empty((2, len(graph.links)), dtype=np.int64)
    for number, link in enumerate(graph.links):
        for side, name in enumerate((f"from {link.source}", f"into {link.destination}")):
            bundle = bundles.setdefault((name, link.tier), len(bundles))
            if bundle == len(capacity):
                capacity.append(0.0)
            capacity[bundle] += link.capacity_bps
            members[side, number] = bundle
    flow = np.concatenate((usage.flow, usage.flow))
    bundle_of = np.concatenate((members[0][usage.link], members[1][usage.link]))
    pairs, at = np.unique(flow * len(capacity) + bundle_of, return_inverse=True)
    share = np.bincount(at, np.concatenate((usage.weight, usage.weight)))
    certain = pairs[share >= 1 - 1e-9]
    each = np.ones(len(certain))
    return LinkUsage(certain // len(capacity), certain % len(capacity), each, usage.flows), np.array(capacity)
