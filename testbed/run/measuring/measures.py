"""From what a run left behind (transfers, channels, counters, events) to the samples that metrics are computed from.

No metric is named here: `record.catalogue` says which samples each metric needs. Pure arithmetic.

A tenant of the workload has those that its own transfers, channels, collectives and requests say something about.
Queues, links and the machine are everybody's, and so are ranks that two tenants have.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import harmonic_mean

import numpy as np

from testbed.base.metric import RunSamples
from testbed.protocols.infiniband.metrics import SubnetCarried
from testbed.record.catalogue import BY_TENANT, Selection, measure_metrics
from testbed.record.samples import Channel, NetworkLoad, PortLoad, RunEvent, ScaleUpLoad, TenantLoad, Transfers
from testbed.record.subnet_counters import SubnetLoad
from testbed.run.faults.registry import FAULTS
from testbed.run.ideals.point_ideals import PointIdeals, slowest_bps
from testbed.run.measuring.flow_rates import first_done_after, goodput_curve, rates_together
from testbed.run.measuring.measured import Measured
from testbed.run.measuring.observation import Observation
from testbed.run.placed.traffic import RunTraffic
from testbed.run.scale_up.loads import carried_samples
from testbed.workload.metrics.run_samples import (
    CheckedElements,
    CollectiveSpeed,
    CollectiveTimes,
    CompletedMessages,
    CpuShares,
    Detection,
    FabricBytes,
    FaultCurve,
    FlowRates,
    FlowTimes,
    IoJobs,
    JobBound,
    JobTime,
    LateArrivals,
    Latencies,
    LostProbes,
    MarkedPackets,
    MarkingCurves,
    NetworkCarried,
    NicPeers,
    PacketsSent,
    PatternBound,
    PauseCounts,
    ProgramBytes,
    ProgramExit,
    ProgramIdeal,
    ProgramSteps,
    QueueCounts,
    QueueDepths,
    Retransmissions,
    UplinkLoads,
    VictimRates,
)
from testbed.workload.oracles.fabric_graph import UPLINKS, leads_up
from testbed.workload.steps import READ_REQUEST_BYTES, fabric_bytes
from testbed.workload.tenants import from_its_start, part_of_ranks

DISTURBING = frozenset(FAULTS)
"""Events of these kinds are faults; others are what was seen of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunData:
    """The measurements of one run, with what follows from them and from the lab.

    `pattern_ideal_s` and `roofline_s` are the least time it could take; None: not known.
    """

    measured: Measured
    ports: Sequence[PortLoad] = ()
    nic_bps: float
    """Lab rate of a rank's NIC."""
    pattern_ideal_s: float | None = None
    """The bound of transfers that all begin at once and wait for nothing."""
    roofline_s: float | None = None
    fabric_bytes: int = 0
    """Payload that enters the fabric."""
    scale_up: Sequence[ScaleUpLoad] = ()
    subnet: SubnetLoad | None = None
    known: Collection[type] | None = None
    """The kinds of samples that the backend measures; None: all."""


def compute_metrics(run: RunData) -> dict[str, float | None]:
    """Computes every metric that the run has samples for, in the catalogue's order."""
    return measure_metrics(samples_of(run))


def samples_of(run: RunData) -> RunSamples:
    """Collects every kind of sample that the run has."""
    found = [
        *_of_transfers(run),
        *_of_channels(run),
        *_of_collectives(run),
        *_of_uplinks(run),
        *_of_queues(run),
        *_of_faults(run),
        *_of_machine(run),
        *run.measured.storage,
        *carried_samples(run.scale_up),
        *_of_subnet(run),
        *_of_requests(run),
        *_of_program(run),
    ]
    return RunSamples(*(sample for sample in found if run.known is None or type(sample) in run.known))


def _of_requests(run: RunData) -> Iterator[object]:
    if run.measured.requests is None:
        return
    yield from run.measured.requests.samples()
    again = run.measured.requests.retransmits
    if not run.measured.channels and again is not None:  # with channels, theirs are what the metric is about
        yield Retransmissions(packets=[again])


def _of_program(run: RunData) -> Iterator[object]:
    program = run.measured.program
    if program is None:
        return
    steps = program.steps
    timed = [took for took, warm in zip(steps.seconds, steps.warm_up, strict=True) if took is not None and not warm]
    if timed:
        yield ProgramSteps(step_s=timed)
        if program.ideal_step_s:
            yield ProgramIdeal(step_s=program.ideal_step_s)
    yield ProgramBytes(sent_bytes=float(program.sent_bytes))
    yield ProgramExit(code=program.exit_code)
    if program.sent_again is not None:
        yield Retransmissions(packets=[float(program.sent_again)])


def _of_subnet(run: RunData) -> Iterator[object]:
    """The counters of an InfiniBand subnet."""
    if run.subnet is not None:
        yield SubnetCarried(
            xmit_wait_share=run.subnet.xmit_wait_share,
            discards=run.subnet.discards,
            lost=sum(run.subnet.lost.values()),
            marked=run.subnet.marked,
            stuck=run.subnet.stuck,
        )


def _of_machine(run: RunData) -> Iterator[object]:
    cpu = run.measured.observation.cpu
    if cpu is not None:
        yield CpuShares(busy=cpu.busy, steal=cpu.steal)


def first_fault_s(events: Sequence[RunEvent]) -> float | None:
    """Return when the first fault of a run was done; None where none was."""
    return next((event.at_s for event in events if event.kind in DISTURBING), None)


def _of_transfers(run: RunData) -> Iterator[object]:
    table = run.measured.transfers
    ended = [
        (start, end, ideal)
        for start, end, ideal in zip(table.start_s, table.end_s, table.ideal_s, strict=True)
        if start is not None and end is not None
    ]
    if not ended and run.measured.inside_s is None and run.measured.rings_s is None:
        return
    if ended:
        yield FlowTimes(fct_s=[end - start for start, end, _ in ended], standalone_s=[ideal for _, _, ideal in ended])
    if len(ended) == len(table.start_s):  # a run that was cut short says nothing about how long it takes
        starts, ends = [start for start, _, _ in ended], [end for _, end, _ in ended]
        for span in (run.measured.inside_s, run.measured.computed_s, run.measured.rings_s):
            if span is not None:
                starts.append(span[0])
                ends.append(span[1])
        yield JobTime(start_s=starts, end_s=ends)
    if run.roofline_s:
        yield JobBound(roofline_s=run.roofline_s)
    if run.pattern_ideal_s:
        yield PatternBound(ideal_s=run.pattern_ideal_s)


def _of_channels(run: RunData) -> Iterator[object]:
    channels = run.measured.channels
    alone = [channel.latency for channel in channels if channel.latency]
    if not alone and run.measured.program is None:
        yield FabricBytes(payload_bytes=run.fabric_bytes)
    if not channels:
        return
    again = [float(channel.retransmits) for channel in channels]
    if not any(channel.inside for channel in channels):  # those are no NICs', and links send again, not their ends
        peers: dict[str, set[str]] = defaultdict(set)
        for channel in channels:
            peers[str(channel.source)].add(str(channel.destination))
        yield NicPeers(peers=[len(found) for found in peers.values()])
        yield Retransmissions(packets=again)
    if alone:  # messages sent one at a time: how fast they were sent says nothing
        yield Latencies(
            latency_s=[us / 1e6 for one in alone for us in one.samples_us],
            ideal_s=[(one.ideal_us or 0.0) / 1e6 for one in alone for _ in one.samples_us],
        )
        return
    transfers, flows = _without_requests(run.measured.transfers, channels)
    yield FlowRates(goodput_bps=rates_together(flows, transfers), ideal_bps=[flow.ideal_bps for flow in flows])
    victims = _victims(flows)
    if victims:
        yield VictimRates(
            goodput_bps=[one.goodput_bps for one in victims], ideal_bps=[one.ideal_bps for one in victims]
        )
    if all("messages" in channel.counters for channel in channels):
        yield CompletedMessages(
            completed=[float(channel.counters["messages"]) for channel in channels],
            time_s=[channel.busy_s for channel in channels],
        )
    yield from _of_fio(channels)
    packets = [channel.packets for channel in channels if channel.packets is not None]
    if len(packets) == len(channels):
        yield PacketsSent(new=sum(packets) - sum(again), again=sum(again))
    late = [channel.counters["out_of_order"] for channel in channels if "out_of_order" in channel.counters]
    if late and sum(packets):
        yield LateArrivals(late=sum(late), packets=sum(packets))


def _of_fio(channels: Sequence[Channel]) -> Iterator[object]:
    """Yield fio's reports (`endpoints.storage.fio.FioResult.counters`), where it moved the bytes of all channels."""
    if not all("fio_ios" in channel.counters for channel in channels):
        return
    counted = [channel.counters for channel in channels]
    yield IoJobs(
        ios=[float(one["fio_ios"]) for one in counted],
        io_bytes=[float(one["fio_bytes"]) for one in counted],
        bytes_per_s=[float(one["fio_bytes_per_s"]) for one in counted],
        p50_s=[one["fio_clat_p50_ns"] / 1e9 for one in counted],
        p99_s=[one["fio_clat_p99_ns"] / 1e9 for one in counted],
    )


def _victims(channels: Sequence[Channel]) -> list[Channel]:
    """The channels that have both their NICs for themselves, where others share a receiver; between GPUs, those that
    have their receiver for themselves."""
    senders = Counter(str(channel.source) for channel in channels)
    receivers = Counter(str(channel.destination) for channel in channels)
    if max(receivers.values(), default=0) < 2:
        return []
    return [
        one
        for one in channels
        if receivers[str(one.destination)] == 1 and (one.inside or senders[str(one.source)] == 1)
    ]


def _of_collectives(run: RunData) -> Iterator[object]:
    if not run.measured.collectives:
        return
    size = max(item.size_bytes for item in run.measured.collectives)
    largest = [item for item in run.measured.collectives if item.size_bytes == size]
    seconds = [item.seconds for item in largest]
    yield CollectiveTimes(seconds=seconds)
    one = largest[0]
    if all((item.kind, item.ranks) == (one.kind, one.ranks) for item in largest):
        yield CollectiveSpeed(
            kind=one.kind,
            ranks=one.ranks,
            size_bytes=size,
            mean_s=sum(seconds) / len(seconds),
            line_bps=harmonic_mean([item.line_bps or run.nic_bps for item in largest]),
        )
    checked = [item.wrong for item in run.measured.collectives if item.wrong is not None]
    if checked:
        yield CheckedElements(wrong=checked)


def _of_uplinks(run: RunData) -> Iterator[object]:
    uplinks = [port for port in run.ports if port.tier == UPLINKS]
    if not uplinks:
        return
    by_switch: dict[str, list[float]] = defaultdict(list)
    by_spine: dict[str, list[float]] = defaultdict(list)
    for port in uplinks:
        by_switch[port.node].append(float(port.tx_bytes))
    for port in run.ports:
        if leads_up(port.tier) and port.node not in by_switch:
            by_spine[port.node].append(float(port.tx_bytes))
    yield UplinkLoads(
        bytes_by_switch=by_switch, utilisation=[port.utilisation for port in uplinks], bytes_by_spine=by_spine
    )


def _of_queues(run: RunData) -> Iterator[object]:
    seen = run.measured.observation
    if seen.growth is None or seen.table is None:
        return
    queues, pauses = seen.growth.queues, seen.growth.pauses
    switches = seen.table.switch
    yield QueueCounts(
        ect_packets=float(queues["ect_packets"][switches].sum()),
        marked_packets=float(queues["ce_packets"][switches].sum()),
        dropped_packets=float(sum(port.tx_dropped for port in run.ports))
        + float(seen.growth.dropped()[switches].sum()),
        trimmed_packets=float(queues["trimmed_packets"].sum()),
        deepest_bytes=float(queues["max_bytes"][switches].max()),
    )
    paused_s = pauses["paused_ns"].astype(np.float64) / 1e9
    yield PauseCounts(
        frames=float(pauses["xoff_sent"].sum()),
        paused_s=float(paused_s.sum()),
        longest_s=float(paused_s.max()),
        elapsed_s=seen.traffic_s,
    )
    yield MarkingCurves(
        classes=[MarkedPackets(packets=one.packets, marked=one.marked, ideal=one.ideal) for one in seen.marking]
    )
    depths = seen.depths_in_traffic()
    if depths:
        deepest = max(depths.values(), key=lambda depth: (int(depth.max()), float(depth.mean())))
        yield QueueDepths(depth_bytes=deepest.astype(np.float64).tolist())


def _of_faults(run: RunData) -> Iterator[object]:
    faults = [event for event in run.measured.events if event.kind in DISTURBING]
    if not faults:
        return
    event_s = faults[0].at_s
    # A channel that has sent all it had is no dip.
    times, rates = goodput_curve(
        run.measured.channels,
        run.measured.window_s,
        first_done_after(run.measured.channels, run.measured.transfers, event_s),
    )
    if times and times[0] < event_s:
        undone = (event.at_s for event in run.measured.events if event.kind == f"undone-{faults[0].kind}")
        undone_s = min(undone, default=math.inf)
        yield FaultCurve(event_s=event_s, undone_s=undone_s, time_s=times, rate_bps=rates)
    if run.measured.probes is not None and run.measured.probes.streams:
        lost = [item.lost_since(event_s) for item in run.measured.probes.streams]
        yield LostProbes(lost=lost, rate_pps=run.measured.probes.rate_pps)
    detected = _detected_s(run, faults[0])
    if detected is not None:
        yield Detection(event_s=event_s, detected_s=[detected])


def _detected_s(run: RunData, fault: RunEvent) -> float | None:
    """Return when the last of a failed link's ends knew; of another fault, when the first neighbour did."""
    first: dict[str, float] = {}
    for event in run.measured.events:
        if event.kind == "detected" and event.at_s >= fault.at_s:
            first.setdefault(f"{event.target}:{event.detail.partition(' ')[0]}", event.at_s)
    peers = {f"{port.node}:{port.interface}": port.peer for port in run.ports}
    ends = [first[end] for end in (fault.target, peers.get(fault.target, "")) if end in first]
    if ends:
        return max(ends)
    return min(first.values(), default=None) if ":" not in fault.target else None


Figures = dict[str, float | None]
"""Metrics by name, as `record.catalogue.Selection` makes them."""


def network_metrics(networks: Sequence[NetworkLoad]) -> Figures:
    """Return the metrics of every network, and of every tenant of the topology in it."""
    found: Figures = {}
    for network in networks:
        carried = replace(
            _carried(network),
            peak_utilisation=network.peak_utilisation,
            ce_packets=network.ce_packets,
            pause_frames=network.pause_frames,
        )
        found |= _named(measure_metrics(RunSamples(carried)), Selection(network=network.name))
        for tenant in network.tenants:
            if tenant.name:
                selection = Selection(network=network.name, tenant=tenant.name)
                found |= _named(measure_metrics(RunSamples(_carried(tenant))), selection)
    return found


def _carried(load: NetworkLoad | TenantLoad) -> NetworkCarried:
    return NetworkCarried(
        entered_bytes=load.entered_bytes,
        delivered_bytes=load.delivered_bytes,
        utilisation=load.utilisation,
        busiest_utilisation=load.busiest_utilisation,
        dropped_packets=sum(load.drops.values()),
        guarded_packets=None if load.guarded is None else sum(load.guarded.values()),
        queue_max_bytes=load.queue_max_bytes,
    )


def tenant_metrics(
    measured: Measured, traffic: RunTraffic, ideals: PointIdeals, known: Collection[type] | None = None
) -> Figures:
    """Return the metrics of every tenant of the workload that shares no rank with another; `known` as in `RunData`."""
    found: Figures = {}
    starts_ns = dict(zip(traffic.workload.tenant_names, traffic.workload.tenant_starts_ns, strict=True))
    for name, ranks in traffic.workload.tenants_apart.items():
        workload = from_its_start(part_of_ranks(traffic.workload, ranks).workload, starts_ns[name])
        alone = replace(traffic, workload=workload, parts=())
        own, rest = _ideals_of(ranks, traffic, ideals), measured.tenants.get(name, Measured())
        transfers, channels = _moved_by(ranks, measured.transfers, measured.channels)
        data = RunData(
            measured=replace(
                rest,
                transfers=transfers,
                channels=channels,
                collectives=[item for item in measured.collectives if f"/{name}/" in f"/{item.label}"],
                events=[event for event in measured.events if event.kind in DISTURBING],
                observation=Observation(cpu=None),
                window_s=measured.window_s,
            ),
            nic_bps=slowest_bps(alone),
            pattern_ideal_s=own.pattern_ideal_s(alone),
            roofline_s=own.roofline_s(alone),
            fabric_bytes=fabric_bytes(alone.workload),
            known=known,
        )
        figures = {metric: value for metric, value in compute_metrics(data).items() if metric in BY_TENANT}
        found |= _named(figures, Selection(tenant=name))
    return found


def _named(figures: Figures, selection: Selection) -> Figures:
    return {selection.name(metric): value for metric, value in figures.items()}


def _ideals_of(ranks: frozenset[int], traffic: RunTraffic, ideals: PointIdeals) -> PointIdeals:
    """Return the ideals of the transport that carries what these ranks send."""
    for part, (_, own) in zip(traffic.parts, ideals.parts.get(traffic.seed, ()), strict=True):
        if ranks <= part.ranks:
            return own
    return ideals


def _moved_by(
    ranks: frozenset[int], transfers: Transfers, channels: Sequence[Channel]
) -> tuple[Transfers, list[Channel]]:
    """The transfers between these ranks, and their channels."""
    return _of_some(
        [index for index, channel in enumerate(channels) if channel.source_rank in ranks], transfers, channels
    )


def _without_requests(transfers: Transfers, channels: Sequence[Channel]) -> tuple[Transfers, Sequence[Channel]]:
    """The transfers and channels of what is moved: channels that ask for reads, and carry nothing else, are no flows
    that share links with others. Where there is nothing else, all."""
    moving = {
        channel
        for channel, size in zip(transfers.channel, transfers.size_bytes, strict=True)
        if size != READ_REQUEST_BYTES
    }
    asking = set(transfers.channel) - moving
    if not moving or not asking:
        return transfers, channels
    return _of_some([index for index in range(len(channels)) if index not in asking], transfers, channels)


def _of_some(kept: Sequence[int], transfers: Transfers, channels: Sequence[Channel]) -> tuple[Transfers, list[Channel]]:
    """Some of the channels, and the transfers that they carry."""
    place = {index: position for position, index in enumerate(kept)}
    rows = [row for row, channel in enumerate(transfers.channel) if channel in place]
    mine = Transfers(
        number=[transfers.number[row] for row in rows],
        source=[transfers.source[row] for row in rows],
        destination=[transfers.destination[row] for row in rows],
        size_bytes=[transfers.size_bytes[row] for row in rows],
        channel=[place[transfers.channel[row]] for row in rows],
        start_s=[transfers.start_s[row] for row in rows],
        end_s=[transfers.end_s[row] for row in rows],
        ideal_s=[transfers.ideal_s[row] for row in rows],
    )
    return mine, [channels[index] for index in kept]
