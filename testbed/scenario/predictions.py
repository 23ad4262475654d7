"""What the oracles say of a point: its flows on the lab's own graph, placed by its own hash, shared max-min fairly.

Only patterns have oracles: transfers that all begin at once and wait for nothing, on a fabric that nothing befalls.
"""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Address

from testbed.errors import ScenarioError
from testbed.model import BalancingMode
from testbed.model.scenario import Scenario, TransportKind
from testbed.results import Channel, PredictedMetric
from testbed.scenario.fabric_graph import fabric_graph
from testbed.scenario.lab import LiveLab
from testbed.scenario.placement import Placement
from testbed.scenario.port_hash import FiveTuple, lab_hash
from testbed.workload.oracles.ecmp import hashed_choice, place_flows, placed_metrics, predict_ecmp
from testbed.workload.oracles.fabric_graph import FabricGraph
from testbed.workload.oracles.max_min import usage_of
from testbed.workload.oracles.prediction import Flow, Prediction, predict
from testbed.workload.oracles.serialisation import Framing
from testbed.workload.oracles.spraying import predict_spraying
from testbed.workload.steps import Transfer, Workload

SEEDS = 200
"""Of a Monte Carlo, where the hash is not ours to compute."""
MOST_FLOWS = 4096
_PROTOCOL = {TransportKind.TCP: 6, TransportKind.UET: 17, TransportKind.RDMA: 17}


def is_pattern(workload: Workload) -> bool:
    """Whether all of it is transfers over the fabric that begin at once."""
    return all(
        isinstance(step, Transfer) and not step.after and not step.start_ns and not step.scale_up
        for step in workload.steps
    )


def predict_point(
    scenario: Scenario,
    lab: LiveLab,
    runs: Sequence[tuple[Workload, Placement, Sequence[Channel]]],
    *,
    framing: Framing,
    base_rtt_s: float,
) -> list[PredictedMetric]:
    """The oracles' word on every run of a point together; nothing where no oracle knows.

    `runs` has each run's workload, its ranks and, where it has been run, its channels.
    """
    if scenario.faults or not runs:
        return []
    if not all(is_pattern(workload) and len(workload.steps) <= MOST_FLOWS for workload, _, _ in runs):
        return []
    graph = fabric_graph(lab.model, lab.plan)
    sized = scenario.workload.duration is None
    flows = [_flows(workload, placement, framing if sized else None) for workload, placement, _ in runs]
    try:
        prediction = _predict(scenario, lab, graph, flows, [channels for _, _, channels in runs], base_rtt_s)
    except (ScenarioError, ValueError):  # no path of the plan, a programme too large: the oracle is silent
        return []
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


def _predict(
    scenario: Scenario,
    lab: LiveLab,
    graph: FabricGraph,
    flows: Sequence[Sequence[Flow]],
    channels: Sequence[Sequence[Channel]],
    base_rtt_s: float,
) -> Prediction | None:
    spraying = _spraying(scenario, lab)
    if spraying is None:
        return None
    if spraying in ("oblivious", "adaptive"):
        adaptive = spraying == "adaptive"
        each = [predict_spraying(graph, some, adaptive=adaptive, base_rtt_s=base_rtt_s) for some in flows]
        metrics = [{name: said.mean for name, said in one.metrics.items()} for one in each]
        return predict(each[0].oracle, metrics)
    exact = _by_own_hash(scenario, lab, graph, flows, channels, base_rtt_s)
    if exact is not None:
        return exact
    return predict_ecmp(graph, lambda seed: flows[seed % len(flows)], seeds=range(SEEDS), base_rtt_s=base_rtt_s)


def _spraying(scenario: Scenario, lab: LiveLab) -> str | None:
    """`ecmp`, `oblivious` or `adaptive`: what packets of a flow do; None: no oracle for it."""
    modes = {buffer.mode for buffer in lab.plan.qos.buffers if buffer.node} if lab.plan.qos else {BalancingMode.FLOW}
    if modes == {BalancingMode.SPRAY}:
        return "oblivious"
    if modes != {BalancingMode.FLOW}:
        return None
    if scenario.transport.kind is TransportKind.UET:
        return {"single": "ecmp", "oblivious": "oblivious"}.get(scenario.transport.paths or "reps", "adaptive")
    return "ecmp"


def _by_own_hash(
    scenario: Scenario,
    lab: LiveLab,
    graph: FabricGraph,
    flows: Sequence[Sequence[Flow]],
    channels: Sequence[Sequence[Channel]],
    base_rtt_s: float,
) -> Prediction | None:
    """These very flows on the links that the switches' hash gives them; None where that cannot be known."""
    protocol = _PROTOCOL[scenario.transport.kind]
    found = []
    for some, own in zip(flows, channels, strict=True):
        fives = {
            (f"{item.source.node}:{item.source.interface}", f"{item.destination.node}:{item.destination.interface}"): (
                FiveTuple(
                    source=IPv4Address(item.source.address),
                    destination=IPv4Address(item.destination.address),
                    protocol=protocol,
                    source_port=item.source_port,
                    destination_port=item.destination_port,
                )
            )
            for item in own
            if item.source_port is not None and item.destination_port is not None
        }
        if len(fives) < len(some):
            return None
        try:
            hash_of = lab_hash(lab.plan, [fives[flow.source, flow.destination] for flow in some])
        except (ScenarioError, KeyError):
            return None
        usage = usage_of(place_flows(graph, some, hashed_choice(hash_of)))
        found.append(placed_metrics(graph, some, usage, base_rtt_s=base_rtt_s))
    return predict("max-min shares of these very flows, placed by the switches' own hash", found)


def _flows(workload: Workload, placement: Placement, framing: Framing | None) -> list[Flow]:
    """Without `framing`, flows that send as long as is measured."""
    return [
        Flow(
            source=f"{placement.nics[step.source].node}:{placement.nics[step.source].name}",
            destination=f"{placement.nics[step.destination].node}:{placement.nics[step.destination].name}",
            size_bytes=None if framing is None else framing.wire_bytes(step.size_bytes),
        )
        for step in workload.transfers
    ]
