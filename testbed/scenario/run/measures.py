"""From what a run measured to the numbers of `workload.metrics.CATALOGUE`. Pure arithmetic.

Only what a run can tell is in the result: a metric whose samples it does not have is missing, one that has no meaning
for it (no flow ended, nothing was sent) is None.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from testbed.collect.probe_ledger import ProbeReport
from testbed.results import Channel, CollectiveResult, PortLoad, RunEvent, Transfers
from testbed.scenario.faults.registry import FAULTS
from testbed.scenario.run.flow_rates import first_done_after, goodput_curve, rates_together
from testbed.scenario.run.observation import Observation
from testbed.workload.metrics import CATALOGUE
from testbed.workload.metrics.latency import LATENCY, LATENCY_RATIO
from testbed.workload.metrics.statistics import mean_of_known
from testbed.workload.oracles.ecmp import UPLINKS

DISTURBING = frozenset(FAULTS)
"""Events of these kinds are faults; others are what was seen of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunData:
    """What one run measured. `pattern_ideal_s` and `roofline_s` are what it would take at best; None: not known."""

    transfers: Transfers
    channels: Sequence[Channel]
    collectives: Sequence[CollectiveResult]
    ports: Sequence[PortLoad]
    events: Sequence[RunEvent]
    observation: Observation
    nic_bps: float
    """Lab rate of a rank's NIC."""
    pattern_ideal_s: float | None = None
    """Where all transfers begin at once and wait for nothing."""
    roofline_s: float | None = None
    fabric_bytes: int = 0
    """Payload that enters the fabric."""
    window_s: float = 0.05
    """Of the curve that faults are judged by."""
    probes: ProbeReport | None = None


def compute_metrics(run: RunData) -> dict[str, float | None]:
    """Every metric of the run that it has samples for, in the catalogue's order."""
    found: dict[str, float | None] = {}
    found |= _of_transfers(run)
    found |= _of_channels(run)
    found |= _of_collectives(run)
    found |= _of_links(run)
    found |= _of_queues(run)
    found |= _of_faults(run)
    if not any(channel.latency for channel in run.channels):
        found["s_fabric"] = float(run.fabric_bytes)
    found["cpu_busy"] = run.observation.cpu.busy
    found["cpu_steal"] = run.observation.cpu.steal
    return {name: found[name] for name in CATALOGUE if name in found}


def first_fault_s(events: Sequence[RunEvent]) -> float | None:
    """When the first fault of a run was done; None where none was."""
    return next((event.at_s for event in events if event.kind in DISTURBING), None)


def _compute(name: str, *samples: Any, **named: Any) -> float | None:
    return CATALOGUE[name].compute(*samples, **named)


def _of_transfers(run: RunData) -> dict[str, float | None]:
    table = run.transfers
    ended = [
        (start, end, ideal)
        for start, end, ideal in zip(table.start_s, table.end_s, table.ideal_s, strict=True)
        if start is not None and end is not None
    ]
    if not ended:
        return {}
    fct = [end - start for start, end, _ in ended]
    alone = [ideal for _, _, ideal in ended]
    whole = len(ended) == len(table.start_s)
    found: dict[str, float | None] = {
        name: _compute(name, fct_s=fct, standalone_s=alone)
        for name in ("fct_slowdown_p50", "fct_slowdown_p95", "fct_slowdown_p99")
    }
    found["tail_fct"] = _compute("tail_fct", fct)
    found["fct_spread"] = _compute("fct_spread", fct)
    took = max(end for _, end, _ in ended) - min(start for start, _, _ in ended)
    if whole:  # a run that was cut short says nothing about how long it takes
        found["jct"] = took
        if run.roofline_s:
            found["jct_ratio"] = _compute("jct_ratio", took, run.roofline_s)
        if run.pattern_ideal_s:
            found["tail_fct_ratio"] = _compute("tail_fct_ratio", [took], run.pattern_ideal_s)
            found["goodput_share"] = run.pattern_ideal_s / took if took > 0 else None
    return found


def _of_channels(run: RunData) -> dict[str, float | None]:
    channels = run.channels
    if not channels:
        return {}
    if any(channel.latency for channel in channels):
        return _of_latencies(channels)
    rates = rates_together(channels, run.transfers)
    ideal = [channel.ideal_bps for channel in channels]
    packets: list[int] = [channel.packets for channel in channels if channel.packets is not None]
    resent = [float(channel.retransmits) for channel in channels]
    found = {
        "aggregate_share": _compute("aggregate_share", rates, ideal),
        "slowest_share": _compute("slowest_share", rates, ideal),
        "aggregate_goodput": _compute("aggregate_goodput", rates),
        "jain_flows": _compute("jain_flows", rates),
        "retransmits": _compute("retransmits", resent),
    }
    if all("messages" in channel.counters for channel in channels):
        counts = [float(channel.counters["messages"]) for channel in channels]
        found["rdma_message_rate"] = _compute("rdma_message_rate", counts, [channel.busy_s for channel in channels])
    if len(packets) == len(channels):
        found["retransmit_ratio"] = _compute("retransmit_ratio", sum(resent), sum(packets) - sum(resent))
    late = [channel.counters["out_of_order"] for channel in channels if "out_of_order" in channel.counters]
    if late and sum(packets):
        found["reordered_ratio"] = sum(late) / sum(packets)
    return found


def _of_latencies(channels: Sequence[Channel]) -> dict[str, float | None]:
    """Over all messages; how fast they were sent one at a time says nothing."""
    took_s, ideal_s = [], []
    for one in (channel.latency for channel in channels if channel.latency):
        took_s += [us / 1e6 for us in one.samples_us]
        ideal_s += [(one.ideal_us or 0.0) / 1e6] * len(one.samples_us)
    found = {metric.name: metric.compute(took_s) for metric in LATENCY if metric.name != LATENCY_RATIO}
    found[LATENCY_RATIO] = _compute(LATENCY_RATIO, took_s, ideal_s)
    found["retransmits"] = _compute("retransmits", [float(channel.retransmits) for channel in channels])
    return found


def _of_collectives(run: RunData) -> dict[str, float | None]:
    """Over the operations of the largest size: their mean time, as nccl-tests has it."""
    if not run.collectives:
        return {}
    size = max(item.size_bytes for item in run.collectives)
    largest = [item for item in run.collectives if item.size_bytes == size]
    one = largest[0]
    found: dict[str, float | None] = {}
    if all((item.kind, item.ranks) == (one.kind, one.ranks) for item in largest):
        mean_s = sum(item.seconds for item in largest) / len(largest)
        for name in ("algbw", "busbw"):
            rates = [item.algbw_bps if name == "algbw" else item.busbw_bps for item in largest]
            # mean of the times, not of the rates; several at once (one for each rail) have the same time
            found[name] = len(rates) / sum(1 / rate for rate in rates) / 8 if all(rates) else None
        found["busbw_share"] = _compute("busbw_share", one.kind, one.ranks, one.size_bytes, mean_s, run.nic_bps)
    found["step_p99"] = _compute("step_p99", [item.seconds for item in largest])
    checked = [item.wrong for item in run.collectives if item.wrong is not None]
    if checked:
        found["wrong"] = float(sum(checked))
    return found


def _of_links(run: RunData) -> dict[str, float | None]:
    uplinks = [port for port in run.ports if port.tier == UPLINKS]
    if not uplinks:
        return {}
    loads = [float(port.tx_bytes) for port in uplinks]
    by_switch: dict[str, list[float]] = defaultdict(list)
    for port in uplinks:
        by_switch[port.node].append(float(port.tx_bytes))
    used = [port.utilisation for port in uplinks]
    active = [group for group in by_switch.values() if sum(group)]
    return {
        "mmr_uplinks": _compute("mmr_uplinks", loads),
        "mmr_worst_switch": _compute("mmr_worst_switch", by_switch),
        "jain_links": _compute("jain_links", loads),
        "link_utilisation": max(used),
        "link_imbalance": _compute("link_imbalance", used),
        "link_deviation": _compute("link_deviation", used),
        "effective_paths": mean_of_known(_compute("effective_paths", group) for group in active),
        "paths_used": mean_of_known(_compute("paths_used", group) for group in active),
    }


def _of_queues(run: RunData) -> dict[str, float | None]:
    seen = run.observation
    if seen.growth is None or seen.table is None:
        return {}
    queues, pauses = seen.growth.queues, seen.growth.pauses
    switches = seen.table.switch
    ect = float(queues["ect_packets"][switches].sum())
    paused_s = pauses["paused_ns"].astype(np.float64) / 1e9
    found: dict[str, float | None] = {
        "ecn_mark_ratio": float(queues["ce_packets"][switches].sum()) / ect if ect else None,
        "pause_frames": float(pauses["xoff_sent"].sum()),
        "pause_time": float(paused_s.sum()),
        "pause_fraction": float(paused_s.max()) / seen.elapsed_s if seen.elapsed_s > 0 else None,
        "queue_max": float(queues["max_bytes"][switches].max()),
        "drops": float(sum(port.tx_dropped for port in run.ports)) + float(seen.growth.dropped()[switches].sum()),
        "trims": float(queues["trimmed_packets"].sum()),
    }
    errors = [_compute("marking_error", item.packets, item.marked, item.ideal) for item in seen.marking]
    found["marking_error"] = max((error for error in errors if error is not None), default=None)
    depths = seen.depths()
    if depths:
        deepest = max(depths.values(), key=lambda depth: (int(depth.max()), float(depth.mean())))
        samples = deepest.astype(np.float64).tolist()
        found["queue_p50"] = _compute("queue_p50", samples)
        found["queue_p99"] = _compute("queue_p99", samples)
    return found


def _of_faults(run: RunData) -> dict[str, float | None]:
    faults = [event for event in run.events if event.kind in DISTURBING]
    if not faults:
        return {}
    event_s = faults[0].at_s
    # A channel that has sent all it had is no dip.
    times, rates = goodput_curve(run.channels, run.window_s, first_done_after(run.channels, run.transfers, event_s))
    found: dict[str, float | None] = {}
    if times and times[0] < event_s:
        for name in ("blackhole_time_rate", "recovery_time", "dip_depth"):
            found[name] = _compute(name, times, rates, event_s)
    if run.probes is not None and run.probes.streams:
        # the worst stream's: that which the fault befell
        lost = [item.lost_since(event_s) for item in run.probes.streams]
        found["blackhole_time_loss"] = _compute("blackhole_time_loss", max(lost), run.probes.rate_pps)
        found["streams_hit"] = _compute("streams_hit", lost)
    detected = _detected_s(run, faults[0])
    if detected is not None:
        found["detection_time"] = _compute("detection_time", event_s, [detected])
    return found


def _detected_s(run: RunData, fault: RunEvent) -> float | None:
    """When the last of a failed link's ends knew; of another fault, when the first neighbour did."""
    first: dict[str, float] = {}
    for event in run.events:
        if event.kind == "detected" and event.at_s >= fault.at_s:
            first.setdefault(f"{event.target}:{event.detail.partition(' ')[0]}", event.at_s)
    peers = {f"{port.node}:{port.interface}": port.peer for port in run.ports}
    ends = [first[end] for end in (fault.target, peers.get(fault.target, "")) if end in first]
    if ends:
        return max(ends)
    return min(first.values(), default=None) if ":" not in fault.target else None
