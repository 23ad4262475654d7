"""Which probes run beside a scenario's traffic. Pure.

Where a fault may lose packets, streams on many source ports cover the paths between the pairs that talk, a probe at a
time, so that the time lost is known to one over their rate. Elsewhere a few streams send short trains back to back,
which is what a machine that reorders packets would reorder.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from testbed.lab.core.drivers.nodes.probe_packet import FRAME_BYTES
from testbed.lab.core.model import BalancingMode
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.faults.registry import lab_fault
from testbed.run.placed.lab import LiveLab
from testbed.run.placed.traffic import RunTraffic
from testbed.run.probes.traffic import ProbeFlow
from testbed.run.schema.model import Scenario
from testbed.run.transports.registry import SINGLE_PATH
from testbed.workload.draws import draw_below

RATE_PPS = 20.0
"""Probes a second of a stream: what a silent failure costs is known to 50 ms."""
PORTS = 8
"""Streams of a pair: with four uplinks, four pairs leave one out once in 10,000 runs."""
TRAIN = 4
"""Probes that are sent back to back where order alone is watched."""
ORDERED_PPS = 10.0
"""Probes a second of a stream where order alone is watched."""
MOST_STREAMS = 96
"""The most streams where time is measured."""
MOST_PPS_OF_CPU = 700.0
"""Probes a second of all streams together. 1280 took 9 % of a core with their four hops; under emulation far more."""
MOST_ORDERED = 16
"""The most streams where order alone is watched."""
MOST_OF_NIC = 0.005
"""The share of a NIC's rate that its probes may take; their rate is lowered to that."""
MOST_OF_BYTES = 0.01
"""The share that probes of order may add to the bytes of traffic that comes as its sources please, however little that
is: the loads of links are a result."""
LEAST_TRAINS = 2
"""So many trains of a stream are sent in any case."""
QUEUED_RTTS = 8
"""Base round trips that a packet may spend in queues: 1.5 BDP in its NIC, one at each switch, and pauses."""
SOURCE_PORTS = (32_000, 32_768)
"""Source ports of probes, between those of transfers and Linux's ephemeral range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePlan:
    """The streams of probes of a run, how many probes a second each sends, and how many of them back to back."""

    flows: tuple[ProbeFlow, ...]
    rate_pps: float
    train: int


def plan_probes(scenario: Scenario, lab: LiveLab, traffic: RunTraffic, *, cpus: int) -> ProbePlan | None:
    """The probes of a run; None where it has none: switched off, nobody to send to, or nothing to learn.

    Pairs are those of the traffic; of many, evenly chosen ones. Ports are drawn from the run's seed. `cpus` is how many
    the machine has.
    """
    wanted = scenario.probes
    timed = any(lab_fault(fault).may_lose for fault in scenario.faults)
    if not wanted.enabled or not (timed or scenario.faults or is_single_path(scenario, lab)):
        return None
    pairs = _pairs(traffic)
    if not pairs:
        return None
    most = MOST_STREAMS if timed else MOST_ORDERED
    ports = wanted.ports or max(1, min(PORTS if timed else 1, most // len(pairs)))
    chosen = _evenly(pairs, max(1, most // ports))
    flows = _flows(chosen, ports, random.Random(f"probes {traffic.seed}"))
    usual = min(RATE_PPS if timed else ORDERED_PPS, _bearable_pps(flows), MOST_PPS_OF_CPU * cpus / len(flows))
    if not timed:
        usual = min(usual, _modest_pps(traffic, lab.plan.k, len(flows)))
    return ProbePlan(flows=flows, rate_pps=wanted.rate_pps or usual, train=1 if timed else TRAIN)


def is_single_path(scenario: Scenario, lab: LiveLab) -> bool:
    """Tell whether every flow keeps to one path, in order, during the whole run: switches hash flows, no wire's delay
    varies, and no fault moves a flow or changes a delay."""
    qos = lab.plan.qos
    modes = {buffer.mode for buffer in qos.buffers if buffer.node} if qos is not None else {BalancingMode.FLOW}
    if not modes <= SINGLE_PATH or any(port.jitter_ns for port in lab.plan.ports):
        return False
    faults = [lab_fault(fault) for fault in scenario.faults]
    return all(fault.keeps_order and not fault.may_lose for fault in faults)


def _pairs(traffic: RunTraffic) -> list[tuple[PortPlan, PortPlan]]:
    """NICs that send to each other over the fabric, in the order of the transfers."""
    found: dict[tuple[int, int], tuple[PortPlan, PortPlan]] = {}
    for step, a, b in traffic.placement.over_fabric(traffic.workload):
        found.setdefault((step.source, step.destination), (a, b))
    return list(found.values())


def _evenly(pairs: Sequence[tuple[PortPlan, PortPlan]], most: int) -> list[tuple[PortPlan, PortPlan]]:
    if len(pairs) <= most:
        return list(pairs)
    return [pairs[place * len(pairs) // most] for place in range(most)]


def _flows(pairs: Iterable[tuple[PortPlan, PortPlan]], ports: int, rng: random.Random) -> tuple[ProbeFlow, ...]:
    least, end = SOURCE_PORTS
    flows = []
    for source, destination in pairs:
        drawn: dict[int, None] = {}
        while len(drawn) < ports:
            drawn[least + draw_below(rng, end - least)] = None
        flows += [ProbeFlow(source=source, destination=destination, source_port=port) for port in drawn]
    return tuple(flows)


def _modest_pps(traffic: RunTraffic, k: float, streams: int) -> float:
    """The rate of a stream at which all add little to the bytes of an open loop, in lab time; elsewhere any."""
    sent = [step for step, _, _ in traffic.placement.over_fabric(traffic.workload)]
    lasts_s = max((step.start_ns for step in sent), default=0) * k / 1e9
    if not lasts_s:
        return math.inf
    probes = MOST_OF_BYTES * sum(step.size_bytes for step in sent) / FRAME_BYTES / streams
    return max(probes, LEAST_TRAINS * TRAIN) / lasts_s


def _bearable_pps(flows: Sequence[ProbeFlow]) -> float:
    """The rate of a stream at which no NIC has more than its share to carry, either way."""
    load: Counter[tuple[str, str, str]] = Counter()
    rates: dict[tuple[str, str, str], int] = {}
    for flow in flows:
        for way, nic in (("out", flow.source), ("in", flow.destination)):
            key = nic.node, nic.name, way
            load[key] += 1
            rates[key] = nic.rate_bps
    return min(MOST_OF_NIC * rates[key] / (8 * FRAME_BYTES * count) for key, count in load.items())
