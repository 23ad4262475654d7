"""Puts together what the workers of a run report: transfers, channels and collectives as records keep them.

Where a workload stays inside scale-up domains and its transfers are frames, flows between GPUs have the same records,
with the GPU's links as what they are compared with.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.record.samples import Channel, ChannelSamples, CollectiveResult, FlowEnd, Transfers
from testbed.run.measuring.flow_rates import union_s
from testbed.run.measuring.measured import Measured
from testbed.run.measuring.requests import RequestsMeasured, measure_requests
from testbed.run.measuring.storage import computed_s, storage_samples
from testbed.run.placed.placed_workload import PlacedWorkload, datatype_of
from testbed.run.placed.placement import flow_end
from testbed.run.scale_up.domains import DomainPackets, ScaleUpDomains
from testbed.workload.collectives.operation import CollectiveKind
from testbed.workload.metrics.collectives import algbw, busbw
from testbed.workload.oracles.roofline import NicLoad
from testbed.workload.oracles.serialisation import Framing
from testbed.workload.steps import Collective, FoldedRing, Transfer
from testbed.workload.tenants import part_of_ranks

SUMS = frozenset({CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE_SCATTER, CollectiveKind.REDUCE})
_NS = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Ideals:
    """The ideals of an idle fabric. `one_way_s(a, b, size_bytes)` is how long a transfer alone takes between NICs (s),
    and `goodput_bps(a, b)` the goodput of a flow alone."""

    framing: Callable[[PortPlan], Framing]
    goodput_bps: Callable[[PortPlan, PortPlan], float]
    one_way_s: Callable[[PortPlan, PortPlan, int], float]


_OF_ONE_NIC = frozenset({"qp_state_bytes", "token_lateness_p99_us", "token_lateness_max_us"})
"""Counters of which the largest of all hosts counts, not the sum."""


def put_together(
    placement: PlacedWorkload,
    reports: Mapping[str, Mapping[str, Any]],
    checked: Sequence[int],
    ideals: Ideals,
    measured: Measured | None = None,
) -> Measured:
    """Put the reports of all hosts together, into `measured` if it is given. Whatever a host did not report counts as
    not measured."""
    found = measured or Measured()
    started: dict[int, int] = {}
    arrived: dict[int, int] = {}
    wrong: dict[int, dict[int, int]] = defaultdict(dict)
    ends: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    samples: dict[int, Mapping[str, Any]] = {}
    counters: defaultdict[str, float] = defaultdict(float)
    rings = [step.number for step in placement.workload.steps if isinstance(step, FoldedRing)]
    for report in reports.values():
        begun, ended = (dict(zip(*report[what], strict=True)) for what in ("started", "arrived"))
        for number in rings:  # every host that has a part in it tells when its own began and ended
            _widen(begun, ended, number, started, arrived)
        started |= begun
        arrived |= ended
        for position, rank, count in report["wrong"]:
            wrong[checked[position]][rank] = count
        for end in report["channels"]:
            ends[end["channel"]].append(end)
        samples |= {int(channel): columns for channel, columns in report["samples"].items()}
        for name, value in report["counters"].items():
            counters[name] = max(counters[name], value) if name in _OF_ONE_NIC else counters[name] + value
        counters["latest_timer_us"] = max(counters["latest_timer_us"], report["latest_timer_ns"] / 1e3)
    moved = {number: size for some in ends.values() for end in some for number, size in zip(*end["moved"], strict=True)}
    inside = inside_flows(placement, started, arrived)
    transfers = _transfers(placement, started, arrived, moved, ideals) if inside is None else inside[0]
    requests = measure_requests(placement, reports)
    if requests is not None:
        counters |= requests.counters
    steps_left = {host: report["steps_left"] for host, report in reports.items()}
    complete = not any(steps_left.values())
    found.transfers = transfers
    whole = [
        (step, started[step.number] / _NS, arrived[step.number] / _NS)
        for step in (placement.workload.steps[number] for number in rings)
        if isinstance(step, FoldedRing) and step.number in started and step.number in arrived
    ]
    found.channels = _channels(placement, transfers, ends, samples, ideals, whole) if inside is None else inside[1]
    if whole and complete:
        found.rings_s = min(start_s for _, start_s, _ in whole), max(end_s for *_, end_s in whole)
    found.collectives = _collectives(placement, started, arrived, wrong, ideals)
    found.counters, found.steps_left, found.requests = dict(counters), steps_left, requests
    found.computed_s = computed_s(placement, started)
    found.inside_s = _inside_s(placement, (step.number for step in placement.workload.transfers), started, arrived)
    found.storage = tuple(storage_samples(placement, started)) if complete else ()
    found.scale_up = [report["scale_up"] for report in reports.values() if report.get("scale_up") is not None]
    found.tenants = {
        name: _of_tenant(placement, started, arrived, ranks, requests, complete=complete)
        for name, ranks in placement.workload.tenants_apart.items()
    }
    return found


def _widen(
    begun: dict[int, int], ended: dict[int, int], number: int, started: Mapping[int, int], arrived: Mapping[int, int]
) -> None:
    """Let a step last from when the first of its hosts began it until the last one had ended it."""
    if number in begun and number in started:
        begun[number] = min(begun[number], started[number])
    if number in ended and number in arrived:
        ended[number] = max(ended[number], arrived[number])


def _of_tenant(
    placement: PlacedWorkload,
    started: Mapping[int, int],
    arrived: Mapping[int, int],
    ranks: frozenset[int],
    requests: RequestsMeasured | None,
    *,
    complete: bool,
) -> Measured:
    part = part_of_ranks(placement.workload, ranks)
    alone = replace(placement, workload=part.workload)
    own = {place: started[number] for place, number in enumerate(part.steps) if number in started}
    moves = [part.steps[step.number] for step in part.workload.transfers]
    return Measured(
        requests=None if requests is None else requests.of_clients(ranks),
        computed_s=computed_s(alone, own),
        inside_s=_inside_s(placement, moves, started, arrived),
        storage=tuple(storage_samples(alone, own)) if complete else (),
    )


def settle_digests(reports: Mapping[str, dict[str, Any]]) -> dict[str, list[tuple[int, int]]]:
    """Counts the arrays that are right without looking at them: where all ranks should have the same array and one of
    them was checked, those with the same digest are right too.

    It adds to the reports' `wrong`, and returns what must still be counted: (collective, rank) by host.
    """
    counted = {(index, rank): wrong for report in reports.values() for index, rank, wrong in report["wrong"]}
    right = {
        (index, digest)
        for report in reports.values()
        for index, rank, digest in report["digests"]
        if counted.get((index, rank)) == 0
    }
    questions: dict[str, list[tuple[int, int]]] = {}
    for host, report in reports.items():
        for index, rank, digest in report["digests"]:
            if (index, rank) in counted:
                continue
            if (index, digest) in right:
                report["wrong"].append([index, rank, 0])
            else:
                questions.setdefault(host, []).append((index, rank))
    return questions


def _transfers(
    placement: PlacedWorkload,
    started: dict[int, int],
    arrived: dict[int, int],
    moved: Mapping[int, int],
    ideals: Ideals,
) -> Transfers:
    ranks, of_step = placement.ranks, placement.channels.of_step
    steps = [step for step in placement.workload.steps if isinstance(step, Transfer) and step.number in of_step]
    sizes = [moved.get(step.number, step.size_bytes) for step in steps]
    return Transfers(
        number=[step.number for step in steps],
        source=[step.source for step in steps],
        destination=[step.destination for step in steps],
        size_bytes=sizes,
        channel=[of_step[step.number] for step in steps],
        start_s=[_seconds(started.get(step.number)) for step in steps],
        end_s=[_seconds(arrived.get(step.number)) for step in steps],
        ideal_s=[
            ideals.one_way_s(ranks[step.source], ranks[step.destination], size)
            for step, size in zip(steps, sizes, strict=True)
        ],
    )


def _inside_s(
    placement: PlacedWorkload, transfers: Iterable[int], started: Mapping[int, int], arrived: Mapping[int, int]
) -> tuple[float, float] | None:
    """Return when the first of these transfers that took no channel began, and the last of those arrived."""
    inside = [number for number in transfers if number not in placement.channels.of_step and number in arrived]
    starts = [started[number] for number in inside if number in started]
    return (min(starts) / _NS, max(arrived[number] for number in inside) / _NS) if starts else None


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / _NS


def _carried(
    transfers: Transfers, behind_s: float = 0.0
) -> tuple[dict[int, list[tuple[float, float]]], dict[int, int]]:
    """Return when each channel had something to send, and the bytes that have arrived; `behind_s` is the way behind it,
    which does not count."""
    spans: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    received: defaultdict[int, int] = defaultdict(int)
    for channel, size, start_s, end_s in zip(
        transfers.channel, transfers.size_bytes, transfers.start_s, transfers.end_s, strict=True
    ):
        if start_s is not None and end_s is not None:
            spans[channel].append((start_s, max(start_s, end_s - behind_s)))
            received[channel] += size
    return spans, received


def _channels(
    placement: PlacedWorkload,
    transfers: Transfers,
    ends: Mapping[int, Sequence[Mapping[str, Any]]],
    samples: Mapping[int, Mapping[str, Any]],
    ideals: Ideals,
    rings: Sequence[tuple[FoldedRing, float, float]] = (),
) -> list[Channel]:
    """Return the channels with what they carried; `rings` are those that have ended, with when they began and ended."""
    spans, received = _carried(transfers)
    for ring, start_s, end_s in rings:
        for edge in ring.edges:
            if edge[0] not in ring.inside:
                channel = placement.channels.between[edge]
                spans[channel] = [*spans[channel], (start_s, end_s)]
                received[channel] += ring.rounds * ring.size_bytes
    found = []
    for plan in placement.channels.channels:
        a, b = placement.ranks[plan.source], placement.ranks[plan.destination]
        reported = ends.get(plan.index, ())
        mine = spans[plan.index]
        busy_s = union_s(mine)
        found.append(
            Channel(
                source_rank=plan.source,
                destination_rank=plan.destination,
                source=flow_end(a),
                destination=flow_end(b),
                rail=a.rail,
                source_port=plan.source_port or None,
                destination_port=plan.destination_port or None,
                sent_bytes=_only(reported, "sent_bytes") or 0,
                received_bytes=received[plan.index],
                seconds=max(end for _, end in mine) - min(start for start, _ in mine) if mine else 0.0,
                busy_s=busy_s,
                ideal_bps=ideals.goodput_bps(a, b),
                goodput_bps=received[plan.index] * 8 / busy_s if busy_s > 0 else 0.0,
                retransmits=_only(reported, "retransmits") or 0,
                packets=_only(reported, "packets"),
                min_rtt_us=_only(reported, "min_rtt_us"),
                samples=_samples(samples.get(plan.index)),
                counters=_sum(end["counters"] for end in reported),
            )
        )
    return found


def _only(reported: Iterable[Mapping[str, Any]], name: str) -> Any:
    return next((end[name] for end in reported if end[name] is not None), None)


def _sum(counted: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Adds the counters of both ends. What an end counts of the other's packets has a name of its own, or adds up."""
    total: Counter[str] = Counter()
    for counters in counted:
        total.update(counters)
    return dict(total)


def _samples(columns: Mapping[str, Any] | None) -> ChannelSamples:
    if columns is None:
        return ChannelSamples()
    return ChannelSamples(
        at_s=[ns / _NS for ns in columns["at_ns"]],
        acked_bytes=columns["acked_bytes"],
        cwnd_bytes=columns["cwnd_bytes"],
        rtt_us=columns["rtt_us"],
        retransmits=columns["retransmits"],
        rate_bps=columns.get("rate_bps", []),
        control=columns.get("control", {}),
    )


# --- collectives -----------------------------------------------------------------------------------------


def _collectives(
    placement: PlacedWorkload,
    started: Mapping[int, int],
    arrived: Mapping[int, int],
    wrong: Mapping[int, Mapping[int, int]],
    ideals: Ideals,
) -> list[CollectiveResult]:
    """The collectives of which every transfer has ended."""
    begun, ended = sorted(started.items()), sorted(arrived.items())
    begun_numbers, ended_numbers = [number for number, _ in begun], [number for number, _ in ended]
    found = []
    for index, collective in enumerate(placement.workload.collectives):
        span = collective.steps
        starts = [ns for _, ns in begun[bisect_left(begun_numbers, span.start) : bisect_left(begun_numbers, span.stop)]]
        ends = [ns for _, ns in ended[bisect_left(ended_numbers, span.start) : bisect_left(ended_numbers, span.stop)]]
        transfers = [
            step for number in span if isinstance(step := placement.workload.steps[number], Transfer | FoldedRing)
        ]
        if not transfers or len(ends) < len(transfers) or not starts:
            continue
        checks = wrong.get(index, {})
        found.append(
            _result(
                placement,
                collective,
                ideals,
                _Course(
                    start_ns=min(starts),
                    end_ns=max(ends),
                    wrong=sum(checks.values()) if set(checks) == set(collective.ranks) else None,
                    label=_shared_label(transfers[0].label, transfers[-1].label),
                    transfers=transfers,
                ),
            )
        )
    return found


def _shared_label(first: str, last: str) -> str:
    """The words that the labels of a collective's transfers begin with: `all_reduce[0].group1`."""
    words = takewhile(lambda pair: pair[0] == pair[1], zip(first.split("."), last.split("."), strict=False))
    return ".".join(word for word, _ in words)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Course:
    start_ns: int
    end_ns: int
    wrong: int | None
    label: str
    transfers: Sequence[Transfer | FoldedRing]


def _result(placement: PlacedWorkload, collective: Collective, ideals: Ideals, course: _Course) -> CollectiveResult:
    ranks = len(collective.ranks)
    seconds = (course.end_ns - course.start_ns) / _NS
    datatype = datatype_of(collective)
    line_bps, ideal_bps = _bounds_bps(placement, collective, course.transfers, ideals)
    return CollectiveResult(
        kind=collective.kind,
        algorithm=collective.algorithm,
        ranks=ranks,
        size_bytes=collective.size_bytes,
        elements=collective.size_bytes // datatype.size_bytes,
        datatype=datatype.value,
        redop="sum" if collective.kind in SUMS else "none",
        root=collective.root,
        start_s=course.start_ns / _NS,
        seconds=seconds,
        algbw_bps=8 * (algbw(collective.size_bytes, seconds) or 0.0),
        busbw_bps=8 * (busbw(collective.kind, ranks, collective.size_bytes, seconds) or 0.0),
        ideal_busbw_bps=ideal_bps,
        wrong=course.wrong,
        label=course.label,
        line_bps=line_bps,
    )


def _bounds_bps(
    placement: PlacedWorkload, collective: Collective, moves: Sequence[Transfer | FoldedRing], ideals: Ideals
) -> tuple[float, float]:
    """Return the line rate that a collective's bus bandwidth is a share of, and the payload that it carries at best.

    It is that of the slowest NIC, or of a GPU's links where all of it stays inside its domain. Where a part of it stays
    inside, or a switch adds up, bus bandwidth can be more: as much as keeps the busiest of all NICs and links busy.
    """
    ranks, links = placement.ranks, placement.domains.links
    nics = [ranks[rank] for rank in collective.ranks]
    transfers = [step for step in moves if isinstance(step, Transfer)]
    rings = [step for step in moves if isinstance(step, FoldedRing)]
    inside = {step.number for step in transfers if step.number not in placement.channels.of_step}
    pairs = {(step.source, step.destination) for step in transfers if step.number not in inside}
    pairs |= {ends for ring in rings for ends in ring.edges if ends[0] not in ring.inside}
    line_bps, ideal_bps = float(min(nic.nic_bps for nic in nics)), _bound_bps(ranks, nics, pairs, ideals)
    if not (inside or any(ring.inside for ring in rings)) or not links.rate_bps:
        return line_bps, ideal_bps
    inside_bps = _inside_bound_bps(placement.domains, nics)
    if not pairs:
        line_bps, ideal_bps = links.rate_bps, inside_bps
    framing = ideals.framing(nics[0])
    unframed = NicLoad(
        rate_bps=lambda rank: ranks[rank].nic_bps,
        scale_up_bps=links.rate_bps,
        in_switch_bps=links.in_switch_bps or links.rate_bps,
    )
    framed = NicLoad(
        rate_bps=lambda rank: ranks[rank].nic_bps,
        scale_up_bps=inside_bps,
        in_switch_bps=(links.in_switch_bps or links.rate_bps) * inside_bps / links.rate_bps,
        wire_bytes=framing.wire_bytes,
    )
    for step in transfers:
        for load in (unframed, framed):
            load.add(replace(step, scale_up=step.number in inside))
    for ring in rings:
        for load in (unframed, framed):
            load.add_ring(ring, 0.0, lambda a, b: 0.0)
    best_bps, best_payload_bps = (
        8 * (busbw(collective.kind, len(nics), collective.size_bytes, load.busiest_s) or 0.0)
        for load in (unframed, framed)
    )
    return max(line_bps, best_bps), max(ideal_bps, best_payload_bps)


def _inside_bound_bps(domains: ScaleUpDomains, nics: Sequence[PortPlan]) -> float:
    """Return the payload that the links of a GPU carry, each way: all that they could where transfers take time."""
    rate_bps = domains.links.rate_bps
    if domains.packets is None:
        return rate_bps
    return min(payload_bps(domains.packets, nic, rate_bps) for nic in nics)


def _bound_bps(
    ranks: Sequence[PortPlan], nics: Sequence[PortPlan], pairs: Iterable[tuple[int, int]], ideals: Ideals
) -> float:
    """Return the payload that the slowest NIC of a collective sends: of what is in a tenant, to its best peer."""
    best: dict[int, float] = {}
    for source, destination in pairs:
        if ranks[source].tenant:
            found = ideals.goodput_bps(ranks[source], ranks[destination])
            best[source] = max(found, best.get(source, 0.0))
    return min([nic.nic_bps * ideals.framing(nic).efficiency for nic in nics] + list(best.values()))


def inside_flows(
    placement: PlacedWorkload, started: Mapping[int, int], arrived: Mapping[int, int]
) -> tuple[Transfers, list[Channel]] | None:
    """Return the transfers of a workload that stays inside domains, and a channel for each pair of GPUs; None for any
    other. Times are in ns from the begin, by the number of the step."""
    packets = placement.domains.packets
    if packets is None or placement.channels.of_step or not placement.workload.transfers:
        return None
    steps = placement.workload.transfers
    pairs = {pair: index for index, pair in enumerate(dict.fromkeys((one.source, one.destination) for one in steps))}
    latency_s = placement.domains.latency_s
    rates = {rank: payload_bps(packets, nic, placement.domains.links.rate_bps) for rank, nic in _gpus(placement)}
    transfers = Transfers(
        number=[step.number for step in steps],
        source=[step.source for step in steps],
        destination=[step.destination for step in steps],
        size_bytes=[step.size_bytes for step in steps],
        channel=[pairs[step.source, step.destination] for step in steps],
        start_s=[_seconds(started.get(step.number)) for step in steps],
        end_s=[_seconds(arrived.get(step.number)) for step in steps],
        ideal_s=[8 * step.size_bytes / min(rates[step.source], rates[step.destination]) + latency_s for step in steps],
    )
    spans, received = _carried(transfers, behind_s=latency_s)
    channels = []
    for (source, destination), index in pairs.items():
        mine, busy_s = spans[index], union_s(spans[index])
        a, b = placement.ranks[source], placement.ranks[destination]
        channels.append(
            Channel(
                source_rank=source,
                destination_rank=destination,
                source=_end(packets, a),
                destination=_end(packets, b),
                rail=a.rail,
                source_port=None,
                destination_port=None,
                sent_bytes=received[index],
                received_bytes=received[index],
                seconds=max(end for _, end in mine) - min(start for start, _ in mine) if mine else 0.0,
                busy_s=busy_s,
                ideal_bps=min(rates[source], rates[destination]),
                goodput_bps=received[index] * 8 / busy_s if busy_s > 0 else 0.0,
                retransmits=0,
                packets=None,
                inside=True,
            )
        )
    return transfers, channels


def payload_bps(packets: DomainPackets, nic: PortPlan, rate_bps: int) -> float:
    """Return what a GPU's links carry of payload together, each way, where all frames are full, in lab bit/s; of a
    region of pooled memory what its devices' do, or the memory behind them."""
    region = packets.region(nic)
    link = (packets.gpus[nic.node, packets.gpu_of(nic)] if region is None else region.devices[0]).link
    payload = rate_bps * link.payload_bytes / link.line_bytes(link.payload_bytes)
    return payload if region is None else sum(min(payload, one.memory_bps) for one in region.devices)


def _gpus(placement: PlacedWorkload) -> list[tuple[int, PortPlan]]:
    ranks = {rank for step in placement.workload.transfers for rank in (step.source, step.destination)}
    return [(rank, placement.ranks[rank]) for rank in sorted(ranks)]


def _end(packets: DomainPackets, nic: PortPlan) -> FlowEnd:
    return FlowEnd(node=nic.node, interface=packets.end_name(nic), address="")
