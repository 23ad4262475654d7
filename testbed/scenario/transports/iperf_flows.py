"""Timed flows over iperf3: a pair of NICs, ports fixed so that ECMP hashes them the same each time."""

from __future__ import annotations

import random
from dataclasses import dataclass

from testbed.collect.iperf3 import Iperf3Report
from testbed.results import Channel, ChannelSamples
from testbed.scenario.run.flow_processes import TimedFlow
from testbed.scenario.run.placement import RankPlacement, flow_end
from testbed.workload.draws import draw_below
from testbed.workload.oracles.serialisation import tcp_framing
from testbed.workload.steps import Workload

FIRST_PORT = 5201
"""iperf3's own; a host's further servers follow it."""
_SOURCE_PORTS = (20000, 32000)
"""Below Linux's ephemeral range (ip_local_port_range), so that no control connection sits on one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IperfFlow(TimedFlow):
    """A pair of ports makes it the same flow for every hash, each time."""

    source_port: int
    destination_port: int = FIRST_PORT


def plan_flows(workload: Workload, placement: RankPlacement, *, seed: int) -> tuple[IperfFlow, ...]:
    """A flow for every transfer over the fabric, whatever its size."""
    rng = random.Random(seed)
    listening: dict[tuple[str, str], int] = {}
    flows: list[IperfFlow] = []
    for step, source, destination in placement.over_fabric(workload):
        key = (destination.node, destination.name)
        listening[key] = listening.get(key, -1) + 1
        flows.append(
            IperfFlow(
                id=len(flows) + 1,
                source_rank=step.source,
                destination_rank=step.destination,
                source=source,
                destination=destination,
                source_port=_SOURCE_PORTS[0] + draw_below(rng, _SOURCE_PORTS[1] - _SOURCE_PORTS[0]),
                destination_port=FIRST_PORT + listening[key],
            )
        )
    return tuple(flows)


def ideal_goodput_bps(flow: IperfFlow) -> float:
    """What a flow alone would get, in lab bit/s: the slower NIC's rate times the payload efficiency.

    Acknowledgements of what the NIC receives go the same way and are not counted in: they cost up to
    66 / (2 * (MTU + 14)), 0.7 % at 4500 bytes.
    """
    rate = min(flow.source.rate_bps, flow.destination.rate_bps)
    return rate * tcp_framing(min(flow.source.mtu_bytes, flow.destination.mtu_bytes)).efficiency


def channel_of(flow: IperfFlow, report: Iperf3Report, *, measured_from_s: float) -> Channel:
    """A sender's report as the record keeps it. An interrupted flow counts what it had sent.

    `measured_from_s`: when its own measurement began, after its warm-up, in the time of the run.
    """
    if report.received_bytes is None:
        payload, seconds = report.sent_bytes, report.sent_s
    else:
        payload, seconds = report.received_bytes, report.received_s
    samples = report.samples
    at_s, acked, resent = [measured_from_s], [0], [0]
    for start, took, size, again in zip(
        samples.start_s, samples.seconds, samples.bytes, samples.retransmits, strict=True
    ):
        at_s.append(measured_from_s + start + took)
        acked.append(acked[-1] + size)
        resent.append(resent[-1] + again)
    return Channel(
        source_rank=flow.source_rank,
        destination_rank=flow.destination_rank,
        source=flow_end(flow.source),
        destination=flow_end(flow.destination),
        rail=flow.source.rail,
        source_port=flow.source_port,
        destination_port=flow.destination_port,
        sent_bytes=report.sent_bytes,
        received_bytes=payload,
        seconds=seconds,
        busy_s=seconds,
        ideal_bps=ideal_goodput_bps(flow),
        goodput_bps=payload * 8 / seconds if seconds > 0 else 0.0,
        retransmits=report.retransmits,
        packets=-(-report.sent_bytes // report.mss_bytes) + report.retransmits if report.mss_bytes > 0 else None,
        min_rtt_us=min((rtt for rtt in samples.rtt_us if rtt > 0), default=None),
        samples=ChannelSamples(
            at_s=at_s,
            acked_bytes=acked,
            cwnd_bytes=[*samples.cwnd_bytes[:1], *samples.cwnd_bytes],
            rtt_us=[float(rtt) for rtt in (*samples.rtt_us[:1], *samples.rtt_us)],
            retransmits=resent,
        ),
        counters={"mss_bytes": report.mss_bytes},
    )
