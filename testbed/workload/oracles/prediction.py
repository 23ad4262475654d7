"""Asks the oracles: flows in, metrics with their spread over seeds out, under the names of the catalogue."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from testbed.workload.metrics.flows import aggregate_share, jain_flows, slowest_share, tail_fct_ratio
from testbed.workload.metrics.links import effective_paths, jain_links, mmr_uplinks, mmr_worst_switch
from testbed.workload.oracles.fabric_graph import FabricGraph, leads_up
from testbed.workload.oracles.max_min import Floats, LinkUsage
from testbed.workload.oracles.serialisation import UNFRAMED, pattern_ideal_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A flow from one endpoint to another. `size_bytes` (with headers) None: it sends as long as is measured."""

    source: str
    destination: str
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A metric over seeds."""

    mean: float
    stdev: float
    """The standard deviation of the sample; 0 with one value."""
    minimum: float
    median: float
    maximum: float
    seeds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """`metrics` by their name in the catalogue; a metric that has no meaning is missing."""

    oracle: str
    """The way in which it was computed, for the report."""
    metrics: Mapping[str, Spread]


def spread(values: Sequence[float]) -> Spread:
    return Spread(
        mean=statistics.fmean(values),
        stdev=statistics.stdev(values) if len(values) > 1 else 0.0,
        minimum=min(values),
        median=statistics.median(values),
        maximum=max(values),
        seeds=len(values),
    )


def predict(oracle: str, runs: Sequence[Mapping[str, float | None]]) -> Prediction:
    """One prediction of the metrics of many seeds."""
    values: defaultdict[str, list[float]] = defaultdict(list)
    for run in runs:
        for name, value in run.items():
            if value is not None:
                values[name].append(value)
    return Prediction(oracle=oracle, metrics={name: spread(each) for name, each in values.items()})


def has_sizes(flows: Sequence[Flow]) -> bool:
    """Tell whether flows end. Raises `ValueError` where some do and some do not."""
    sized = {flow.size_bytes is not None for flow in flows}
    if len(sized) > 1:
        raise ValueError("either all flows have a size or none has")
    return sized == {True}


def sizes_bits(flows: Sequence[Flow]) -> Floats:
    return np.array([8.0 * (flow.size_bytes or 0) for flow in flows])


def flow_metrics(
    graph: FabricGraph, flows: Sequence[Flow], rates_bps: Floats, completed_s: Floats | None, base_rtt_s: float
) -> dict[str, float | None]:
    """Shares, Jain and, where all flows come to an end, the tail over the ideal serialisation."""
    ideal = [graph.access_bps(flow.source, flow.destination) for flow in flows]
    rates = rates_bps.tolist()
    found: dict[str, float | None] = {
        "aggregate_share": aggregate_share(rates, ideal),
        "slowest_share": slowest_share(rates, ideal),
        "jain_flows": jain_flows(rates),
    }
    if completed_s is not None and np.isfinite(completed_s).all():
        pattern = [(("out", flow.source), ("in", flow.destination), flow.size_bytes or 0) for flow in flows]
        nics = {("out", flow.source): graph.leaving_bps(flow.source) for flow in flows}
        nics |= {("in", flow.destination): graph.entering_bps(flow.destination) for flow in flows}
        ideal_s = pattern_ideal_s(pattern, nics, base_rtt_s=base_rtt_s, framing=UNFRAMED)
        found["tail_fct_ratio"] = tail_fct_ratio((completed_s + base_rtt_s).tolist(), ideal_s)
    return found


def link_metrics(graph: FabricGraph, usage: LinkUsage, amounts: Floats, tier: str) -> dict[str, float | None]:
    """Return how evenly the links of a tier are loaded when each flow sends `amounts`.

    The switch whose uplinks are loaded least evenly may be one of a higher tier.
    """
    loads = usage.loads(amounts, len(graph.links))
    by_switch: defaultdict[str, list[float]] = defaultdict(list)
    above: defaultdict[str, list[float]] = defaultdict(list)
    for link, load in zip(graph.links, loads, strict=True):
        if link.tier == tier:
            by_switch[link.source].append(float(load))
        elif leads_up(link.tier):
            above[link.source].append(float(load))
    every = [load for each in by_switch.values() for load in each]
    if not every:
        return {}
    return {
        "mmr_uplinks": mmr_uplinks(every),
        "mmr_worst_switch": mmr_worst_switch({**by_switch, **above}),
        "jain_links": jain_links(every),
        "effective_paths": effective_paths([loads for loads in by_switch.values() if sum(loads)]),
    }
