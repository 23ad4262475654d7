"""Flows between the GPUs of scale-up domains, where a workload has no others and its transfers are frames: the same
records of them as of flows over the fabric, with the GPU's links as what they are compared with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from testbed.lab.core.plan.operations import PortPlan
from testbed.record.samples import Channel, FlowEnd, Transfers
from testbed.run.measuring.flow_rates import union_s
from testbed.run.placed.placed_workload import PlacedWorkload
from testbed.run.placed.scale_up import DomainPackets

_NS = 1e9


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
        ideal_s=[8 * step.size_bytes / rates[step.source] + latency_s for step in steps],
    )
    spans: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
    received: defaultdict[int, int] = defaultdict(int)
    for channel, size, start_s, end_s in zip(
        transfers.channel, transfers.size_bytes, transfers.start_s, transfers.end_s, strict=True
    ):
        if start_s is not None and end_s is not None:
            spans[channel].append((start_s, max(start_s, end_s - latency_s)))  # on the links, not the way behind them
            received[channel] += size
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
    """Return what a GPU's links carry of payload together, each way, where all frames are full, in lab bit/s."""
    link = packets.gpus[nic.node, packets.gpu_of(nic)].link
    return rate_bps * link.payload_bytes / link.frame_bytes


def _gpus(placement: PlacedWorkload) -> list[tuple[int, PortPlan]]:
    ranks = {rank for step in placement.workload.transfers for rank in (step.source, step.destination)}
    return [(rank, placement.ranks[rank]) for rank in sorted(ranks)]


def _end(packets: DomainPackets, nic: PortPlan) -> FlowEnd:
    return FlowEnd(node=nic.node, interface=f"gpu{packets.gpu_of(nic)}", address="")


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / _NS
