"""The outlook on a sweep that is simulated: each point's packets on lines, the memory of a run, and the time it takes.

How long a hop takes here is measured, by a small simulation with the transport of the point: no file can know this
machine, and whether modules are compiled on it. What is foreseen are runs in which nothing is lost and sent again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from random import Random
from typing import Any

from testbed.base.errors import ScenarioError
from testbed.lab.core.fabric import generate_fabric
from testbed.lab.core.fabric.params import FabricParams, NicParams
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.run.placed.lab import LiveLab
from testbed.run.placed.placement import RankPlacement
from testbed.run.placed.rings import transfers_of
from testbed.run.placed.traffic import RunTraffic, make_traffic
from testbed.run.schema.model import Transport
from testbed.run.schema.transports import DEFAULT_TRANSPORT, TRANSPORTS, TransportKind
from testbed.run.simulated.execution import execute
from testbed.run.simulated.fabric import planned_lab
from testbed.run.simulated.processes import cores
from testbed.run.simulated.time_scale import AUTO_SCALE, REAL_TIME, WITHOUT_LAB_TIMES, time_scale
from testbed.run.sweep.points import Point, Sweep
from testbed.run.transports.lab_transport import LabTransport
from testbed.run.transports.registry import transport_on
from testbed.workload.patterns import generate_permutation
from testbed.workload.steps import FoldedRing, payload_bytes

SMALL_NICS = 32
"""NICs of the simulation that a hop is measured by."""
SMALL_BYTES = 1 << 18
"""The bytes that each of them sends."""
PROCESS_BYTES = 90_000_000
"""The interpreter, the modules, and a small lab. This and the next four were measured in runs of 512, 1,024 and 4,096
NICs, whose memory they overstate by 3 to 6 %."""
NIC_BYTES = 50_000
"""An endpoint, its program, and its part of the lab and its plan."""
PORT_BYTES = 21_000
"""A port with its queues, its counters and what is read of them, in the fabric and in the plan."""
TRANSFER_BYTES = 3_000
"""A transfer at both of its ends, and in the record."""
PACKET_BYTES = 800
"""A packet under way, as its sender, its receiver and a queue know it."""
SET_UP_HOPS_PER_NIC = 600
"""Planning, programs, endpoints, counters, metrics, the record and its report take as long as so many hops."""
FAR_MEMORY = 0.16
"""By so much a hop becomes dearer each time that the NICs double, since less of a fabric is in the CPU's caches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedOutlook:
    """The outlook on a point, by its first run. `estimated_s` is CPU time for all of its runs, and `memory_bytes` is
    what one run takes at most."""

    index: int
    name: str
    values: Mapping[str, Any]
    lab: str
    hosts: int
    switches: int
    workload: str
    ranks: int
    transfers: int
    bytes: int
    hops: int
    """Packets on lines in one run, answers included."""
    memory_bytes: int
    runs: int
    estimated_s: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class HopCost:
    """The cost of a packet on a line of a small fabric, most of which is in the CPU's caches, in seconds of CPU time.

    `per_packet` is how many packets are on a line for each packet of data there: answers are among them.
    """

    seconds: float
    per_packet: float


def foresee_simulated(sweep: Sweep) -> list[SimulatedOutlook]:
    """Plan the lab of every point and make the traffic of its first run.

    Raises `SpecError` with the problems of all points whose lab cannot be planned or cannot carry the workload.
    """
    return sweep.prepare(sweep.points, lambda point: foresee_simulated_point(point, sweep.lab_of(point)))


def foresee_simulated_point(point: Point, model: Lab) -> SimulatedOutlook:
    """Return the outlook on a point. Raises `ScenarioError` where this lab cannot carry it."""
    scenario = point.scenario
    whole = planned_lab(model, time_scale(model, scenario))
    lab = whole.of_network(*scenario.workload.ranks.networks_in(model))
    traffic = make_traffic(scenario, lab, seed=scenario.repeat.seed, folds_large=True)
    transport = transport_on(lab, scenario.transport)
    cost = measure_hop(_measured_by(scenario.transport.kind))
    timed = scenario.workload.duration
    amount = _count_packets(traffic, transport, None if timed is None else timed.seconds)
    hops = round(amount.hops * cost.per_packet)
    nics = len(traffic.placement.nics)
    return SimulatedOutlook(
        index=point.index,
        name=point.name,
        values=dict(point.values),
        lab=model.name,
        hosts=len(model.hosts),
        switches=len(model.switches),
        workload=scenario.workload.kind,
        ranks=nics,
        transfers=amount.transfers,
        bytes=payload_bytes(traffic.workload) if timed is None else amount.bytes,
        hops=hops,
        memory_bytes=_memory_bytes(lab, traffic, transport, amount),
        runs=scenario.repeat.runs,
        estimated_s=scenario.repeat.runs * _run_s(hops, nics, cost),
    )


def together_s(points: Sequence[SimulatedOutlook], processes: int | None = None) -> float:
    """Return the wall-clock time of all points (s), whose runs are spread over so many processes, one for each core by
    default."""
    seats = max(1, min(processes or cores(), sum(one.runs for one in points)))
    longest_s = max((one.estimated_s / one.runs for one in points), default=0.0)
    return max(sum(one.estimated_s for one in points) / seats, longest_s)


def _run_s(hops: int, nics: int, cost: HopCost) -> float:
    """Return the CPU time of one run (s)."""
    doublings = max(0, (nics // SMALL_NICS).bit_length() - 1)
    moving_s = hops * cost.seconds * (1 + FAR_MEMORY * doublings)
    return moving_s + nics * SET_UP_HOPS_PER_NIC * cost.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class _Amount:
    """The packets of data of a run, on how many lines they are, and the transfers that they are of."""

    transfers: int
    streamed: int
    """The transfers among them that are not recorded one by one."""
    bytes: int
    packets: int
    hops: int


def _count_packets(traffic: RunTraffic, transport: LabTransport, duration_s: float | None = None) -> _Amount:
    """Count the packets of data. Those that are sent for a duration are as many as NICs can send in that time."""
    workload, nics = traffic.workload, traffic.placement.nics
    flows = Counter(a.wire for _, a, _ in traffic.placement.over_fabric(workload))
    alike: Counter[tuple[str, str, int]] = Counter()
    ends: dict[tuple[str, str, int], tuple[PortPlan, PortPlan]] = {}

    def add(a: PortPlan, b: PortPlan, size_bytes: int, count: int) -> None:
        if a.node != b.node:
            key = a.peer.partition(":")[0], b.peer.partition(":")[0], size_bytes
            alike[key] += count
            ends.setdefault(key, (a, b))

    for step, a, b in traffic.placement.over_fabric(workload):
        timed_bytes = round(a.nic_bps * (duration_s or 0.0) / 8 / flows[a.wire])
        add(a, b, step.size_bytes if duration_s is None else timed_bytes, 1)
    streamed = 0
    for ring in (step for step in workload.steps if isinstance(step, FoldedRing)):
        streamed += transfers_of(ring)
        for source, destination in ring.edges:
            if source not in ring.inside:
                chunk_bytes = -(-ring.size_bytes // ring.chunks)
                add(nics[source], nics[destination], chunk_bytes, ring.rounds * ring.chunks)
    for one in workload.requests:
        add(nics[one.client], nics[one.server], one.request_bytes, 1)
        add(nics[one.server], nics[one.client], one.chunk_bytes, one.output_tokens)
    packets = hops = 0
    size = sum(count * key[2] for key, count in alike.items())
    for key, count in alike.items():
        a, b = ends[key]
        each = count * transport.framing(a).packets(key[2])
        packets += each
        hops += each * (transport.path(a, b).switches + 1)
    transfers = len(workload.transfers) + streamed
    return _Amount(transfers=transfers, streamed=streamed, bytes=size, packets=packets, hops=hops)


def _memory_bytes(lab: LiveLab, traffic: RunTraffic, transport: LabTransport, amount: _Amount) -> int:
    """Return about what a run takes at most: two bandwidth-delay products of every NIC are under way, or all that there
    is."""
    nics = traffic.placement.nics
    framing = transport.framing(nics[0])
    bdp_bytes = nics[0].rate_bps * transport.base_rtt_ns // (8 * 10**9)
    under_way = min(amount.packets, len(nics) * -(-2 * bdp_bytes // (framing.payload_bytes + framing.overhead_bytes)))
    return (
        PROCESS_BYTES
        + len(nics) * NIC_BYTES
        + len(lab.plan.ports) * PORT_BYTES
        + (amount.transfers - amount.streamed) * TRANSFER_BYTES
        + under_way * PACKET_BYTES
    )


def _measured_by(kind: TransportKind) -> TransportKind:
    """Return the transport that a hop is measured with: TCP for those to storage targets, which go over it, and for
    InfiniBand's, which needs a subnet."""
    declared = TRANSPORTS[kind.value]
    return DEFAULT_TRANSPORT if declared.to_targets or declared.over_subnet else kind


@cache
def measure_hop(kind: TransportKind) -> HopCost:
    """Measure a hop of this transport on this machine, by a permutation on a small lab."""
    params = FabricParams(
        design="rail-optimized", segments=4, hosts=SMALL_NICS // 4, gpus=1, nic=NicParams(per="gpu", ports=1)
    )
    k = REAL_TIME if kind.value in WITHOUT_LAB_TIMES else AUTO_SCALE
    lab = planned_lab(generate_fabric(params, name="hop"), k)
    nics = tuple(nic for host in lab.plan.hosts for nic in host.nics)
    workload = generate_permutation(ranks=len(nics), size_bytes=SMALL_BYTES, rng=Random(1))
    traffic = RunTraffic(workload=workload, placement=RankPlacement(nics=nics, ranks_per_domain=1), seed=1)
    transport = transport_on(lab, Transport(kind=kind))
    begin_s = time.process_time()
    run = execute(lab, transport, traffic, limit_s=60.0, on_progress=lambda share: False)
    busy_s = min(run.seconds, time.process_time() - begin_s)  # a core may be shared with others
    if run.measured.failure is not None or not run.hops:
        raise run.measured.failure or ScenarioError("the simulation that a hop is measured by has moved nothing")
    return HopCost(seconds=busy_s / run.hops, per_packet=run.hops / _count_packets(traffic, transport).hops)
