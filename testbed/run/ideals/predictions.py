"""Predictions of a point by oracles: its flows on the lab's own graph, placed by its own hash, shared max-min fairly.

Only patterns have oracles: transfers that all begin at once and wait for nothing, on a fabric that nothing befalls.
Of an open loop, whose transfers begin when they begin, oracles say how evenly the links are loaded, and no rates.
Transfers that share a channel are one flow, as they are one in what is measured: UET has one packet delivery context
for each pair, whose messages have its rate together.

Switches with `mode: static` take the path that a destination is pinned to. The hash of flows is that of our ports'
ingress program, computed as it does (`base/datapath/flow_hash.py`). Linux divides the hash space evenly over the next
hops in their order in the kernel's group (see `fabric_graph`). The order matters: where two leaves have another one,
other flows of theirs meet at a spine.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from testbed.base.datapath.flow_hash import FiveTuple
from testbed.base.errors import ScenarioError
from testbed.lab.core.model import BalancingMode
from testbed.record.catalogue import CATALOGUE
from testbed.record.record import PredictedMetric
from testbed.record.samples import Channel
from testbed.run.ideals.fabric_graph import fabric_graph
from testbed.run.ideals.switch_choices import hashes_are_known, lab_choice, tells_flows_apart
from testbed.run.placed.channels import ChannelRules
from testbed.run.placed.lab import LiveLab
from testbed.run.placed.placement import RankPlacement
from testbed.run.schema.model import Scenario
from testbed.run.transports.lab_transport import PathChoice
from testbed.run.transports.registry import path_choice, transport_on
from testbed.workload.oracles.ecmp import place_flows, placed_metrics, predict_ecmp, random_choice
from testbed.workload.oracles.fabric_graph import UPLINKS, FabricGraph
from testbed.workload.oracles.max_min import usage_of
from testbed.workload.oracles.prediction import Flow, Prediction, link_metrics, predict, sizes_bits
from testbed.workload.oracles.serialisation import Framing
from testbed.workload.oracles.spraying import predict_spraying
from testbed.workload.steps import Transfer, Workload

SEEDS = 200
"""The draws of a Monte Carlo, where the hash is not ours to compute."""
MOST_FLOWS = 4096
"""With more flows oracles say how evenly they load the links, if they know where each goes, and no rates: those take
minutes."""
MOST_PLACED = 65_536
"""With more flows they say nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """The traffic that a run was to carry, and its channels. `channel_of` has them by number of step; timed flows
    have none, and are told by their ends."""

    workload: Workload
    placement: RankPlacement
    seed: int = 1
    channels: Sequence[Channel] = ()
    channel_of: Mapping[int, Channel] = field(default_factory=dict)


def predict_point(
    scenario: Scenario,
    lab: LiveLab,
    runs: Sequence[Carried],
    *,
    framing: Framing,
    base_rtt_s: float,
) -> list[PredictedMetric]:
    """The oracles' word on every run of a point together; nothing where no oracle knows, as of several transports."""
    if scenario.faults or scenario.tenant_transports or scenario.workload.is_program or not runs:
        return []
    if scenario.transport.measures_latency:
        return _as_predicted(_predict_latency(runs))
    if int(scenario.transport.options.get("qps", 1)) > 1:
        return []  # each of a channel's queue pairs has a path of its own
    if not all(run.workload.is_open_loop and len(run.workload.steps) <= MOST_PLACED for run in runs):
        return []
    together = all(run.workload.is_pattern and len(run.workload.steps) <= MOST_FLOWS for run in runs)
    graph = fabric_graph(lab.model, lab.plan)
    sized = scenario.workload.duration is None
    try:
        rules = transport_on(lab, scenario.transport).channel_rules
        flows = [_flows(run, rules, framing if sized else None) for run in runs]
        if together:
            prediction = _predict(scenario, lab, graph, flows, runs, base_rtt_s)
        else:
            prediction = _predict_loads(scenario, lab, graph, flows, runs)
    except (ScenarioError, ValueError):  # no path of the plan, a programme too large: the oracle is silent
        return []
    return _as_predicted(prediction)


def _as_predicted(prediction: Prediction | None) -> list[PredictedMetric]:
    if prediction is None:
        return []
    return [
        PredictedMetric(
            metric=name,
            oracle=prediction.oracle,
            mean=said.mean,
            stdev=said.stdev,
            minimum=said.minimum,
            maximum=said.maximum,
            seeds=said.seeds,
        )
        for name, said in prediction.metrics.items()
    ]


def _predict_latency(runs: Sequence[Carried]) -> Prediction:
    """Predict the latency of messages that are alone, pair by pair."""
    found: list[dict[str, float | None]] = []
    for run in runs:
        ideal_s = [one.ideal_us / 1e6 for one in (each.latency for each in run.channels) if one and one.ideal_us]
        found.append({name: CATALOGUE[name].compute(ideal_s) for name in ("rdma_latency_min", "rdma_latency_p50")})
    return predict("an idle fabric: sending at every port of the way, and the delays of its links", found)


def _predict(
    scenario: Scenario,
    lab: LiveLab,
    graph: FabricGraph,
    flows: Sequence[Sequence[Flow]],
    runs: Sequence[Carried],
    base_rtt_s: float,
) -> Prediction | None:
    choice = path_choice(scenario.transport, lab)
    if choice is None:
        return None
    if choice is not PathChoice.HASHED:
        adaptive = choice is PathChoice.ADAPTIVE
        each = [predict_spraying(graph, some, adaptive=adaptive, base_rtt_s=base_rtt_s) for some in flows]
        metrics = [{name: said.mean for name, said in one.metrics.items()} for one in each]
        return predict(each[0].oracle, metrics)
    routes = _own_routes(scenario, lab, graph, flows, runs)
    if routes is not None:
        found = [
            placed_metrics(graph, some, usage_of(paths), base_rtt_s=base_rtt_s)
            for some, paths in zip(flows, routes, strict=True)
        ]
        return predict(f"max-min shares of these very flows, placed by {_placed_by(lab)}", found)
    if _pins(lab) or not tells_flows_apart(lab.plan):
        return None
    return predict_ecmp(graph, lambda seed: flows[seed % len(flows)], seeds=range(SEEDS), base_rtt_s=base_rtt_s)


def _predict_loads(
    scenario: Scenario,
    lab: LiveLab,
    graph: FabricGraph,
    flows: Sequence[Sequence[Flow]],
    runs: Sequence[Carried],
) -> Prediction | None:
    """Return how evenly hashed flows load the links by their bytes, whenever they are sent."""
    if path_choice(scenario.transport, lab) is not PathChoice.HASHED:
        return None
    routes = _own_routes(scenario, lab, graph, flows, runs)
    if routes is not None:
        found = [
            link_metrics(graph, usage_of(paths), sizes_bits(some), UPLINKS)
            for some, paths in zip(flows, routes, strict=True)
        ]
        return predict(f"the bytes of these very flows, placed by {_placed_by(lab)}", found)
    if _pins(lab) or not tells_flows_apart(lab.plan) or any(len(some) > MOST_FLOWS for some in flows):
        return None
    found = []
    for seed in range(SEEDS):
        some = flows[seed % len(flows)]
        usage = usage_of(place_flows(graph, some, random_choice(seed)))
        found.append(link_metrics(graph, usage, sizes_bits(some), UPLINKS))
    return predict(f"the bytes of these flows, hashed at random, {SEEDS} seeds", found)


def _pins(lab: LiveLab) -> bool:
    """Tell whether a switch pins destinations, which no hash drawn at random stands for."""
    return any(item.mode is BalancingMode.STATIC for item in lab.plan.qos.buffers) if lab.plan.qos else False


def _placed_by(lab: LiveLab) -> str:
    return "the pins of their destinations" if _pins(lab) else "the switches' own hash"


def _own_routes(
    scenario: Scenario, lab: LiveLab, graph: FabricGraph, flows: Sequence[Sequence[Flow]], runs: Sequence[Carried]
) -> list[list[tuple[int, ...]]] | None:
    """The links that the switches' hash gives these very flows, by run; None where that cannot be known."""
    if not all(hashes_are_known(run.placement.nics) for run in runs):
        return None
    transport = transport_on(lab, scenario.transport)
    found = []
    for some, run in zip(flows, runs, strict=True):
        carriers = _carriers(some, run, transport.channel_rules)
        if carriers is None:
            return None
        fives = [
            FiveTuple(
                source=IPv4Address(item.source.address),
                destination=IPv4Address(item.destination.address),
                protocol=transport.protocol,
                source_port=item.source_port,
                destination_port=item.destination_port,
            )
            for item in carriers
            if item.source_port is not None and item.destination_port is not None
        ]
        if len(fives) < len(some):
            return None
        try:
            choose = lab_choice(lab.plan, fives, run=run.seed)
        except ScenarioError:
            return None
        found.append(place_flows(graph, some, choose))
    return found


def _carriers(flows: Sequence[Flow], run: Carried, rules: ChannelRules) -> list[Channel] | None:
    """The channel of each flow; None where one has none."""
    if run.channel_of:
        numbers = [first.number for first, *_ in _by_channel(run.workload, rules)]
        return [run.channel_of[number] for number in numbers] if set(numbers) <= set(run.channel_of) else None
    by_ends = {(str(one.source), str(one.destination)): one for one in run.channels}
    if len(by_ends) < len(run.channels) or any((flow.source, flow.destination) not in by_ends for flow in flows):
        return None
    return [by_ends[flow.source, flow.destination] for flow in flows]


def _flows(run: Carried, rules: ChannelRules, framing: Framing | None) -> list[Flow]:
    """The flows over the fabric, one for each channel. Without `framing` they send as long as is measured."""
    nics = run.placement.nics
    return [
        Flow(
            source=f"{nics[first.source].node}:{nics[first.source].name}",
            destination=f"{nics[first.destination].node}:{nics[first.destination].name}",
            size_bytes=None if framing is None else sum(framing.wire_bytes(one.size_bytes) for one in (first, *rest)),
        )
        for first, *rest in _by_channel(run.workload, rules)
    ]


def _by_channel(workload: Workload, rules: ChannelRules) -> list[list[Transfer]]:
    """The transfers over the fabric, those of one channel together."""
    found: dict[Hashable, list[Transfer]] = {}
    for step in workload.transfers:
        if not step.scale_up:
            key = (step.source, step.destination) if rules.is_shared(step) else step.number
            found.setdefault(key, []).append(step)
    return list(found.values())
