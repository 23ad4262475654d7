"""From measured flows and uplinks to the numbers of `model.metrics`. Pure arithmetic."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from testbed.collect.cpu import CpuUse
from testbed.model.metrics import METRICS
from testbed.results import FlowResult, MetricSummary, RunResult, UplinkLoad
from testbed.scenario.permutation import Transfer

IP_TCP_BYTES = 52
"""IPv4 20 (RFC 791), TCP 20 (RFC 9293), timestamps option 12 (RFC 7323)."""
ETHERNET_BYTES = 14
"""What the port's shaper counts beside the packet: the Ethernet header, without preamble, FCS and gap."""


def payload_efficiency(mtu_bytes: int) -> float:
    """Payload share of a full-sized TCP segment as the port's shaper counts it: (MTU - 52) / (MTU + 14).

    Acknowledgements of what the NIC receives go the same way and are not counted in: they cost up to
    66 / (2 * (MTU + 14)), 0.7 % at 4500 bytes.
    """
    return (mtu_bytes - IP_TCP_BYTES) / (mtu_bytes + ETHERNET_BYTES)


def ideal_goodput_bps(transfer: Transfer) -> float:
    """What a flow alone would get, in lab bit/s: the slower NIC's rate times the payload efficiency."""
    source, destination = transfer.source, transfer.destination
    rate = min(source.rate_bps, destination.rate_bps)
    return rate * payload_efficiency(min(source.mtu_bytes, destination.mtu_bytes))


def jain_index(values: Sequence[float]) -> float | None:
    """(sum x)^2 / (n * sum x^2); None where there is nothing to compare."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares > 0 else None


def max_mean_ratio(values: Sequence[float]) -> float | None:
    """max / mean; None where nothing was carried."""
    total = sum(values)
    return max(values) * len(values) / total if total > 0 else None


def compute_metrics(flows: Sequence[FlowResult], uplinks: Sequence[UplinkLoad], cpu: CpuUse) -> dict[str, float | None]:
    """Every metric of one run; None where it has no meaning (no flow ended, no uplink, nothing sent)."""
    goodputs = [flow.goodput_bps for flow in flows]
    ideal = sum(flow.ideal_bps for flow in flows)
    loads = [float(uplink.tx_bytes) for uplink in uplinks]
    segments = sum(flow.sent_bytes / flow.mss_bytes for flow in flows if flow.mss_bytes > 0)
    retransmits = sum(flow.retransmits for flow in flows)
    return {
        "aggregate_share": sum(goodputs) / ideal if ideal > 0 else None,
        "slowest_share": min((flow.share for flow in flows), default=None),
        "jain_flows": jain_index(goodputs),
        "mmr_uplinks": max_mean_ratio(loads),
        "mmr_worst_switch": _worst_switch(uplinks),
        "jain_links": jain_index(loads),
        "aggregate_goodput": sum(goodputs) if flows else None,
        "retransmits": float(retransmits) if flows else None,
        "retransmit_ratio": retransmits / segments if segments > 0 else None,
        "cpu_busy": cpu.busy,
        "cpu_steal": cpu.steal,
    }


def ideal_metrics(transfers: Sequence[Transfer], uplink_counts: Mapping[str, int]) -> dict[str, float]:
    """The ideal of each metric that has one, for this very set of flows.

    `uplink_counts` is the number of uplinks of each rail switch. For the uplink metrics the ideal
    places whole flows as evenly as possible: n flows on m uplinks are n // m on each and one more on
    n % m of them.
    """
    ideals = {"aggregate_share": 1.0, "slowest_share": 1.0, "jain_flows": 1.0}
    ideals["aggregate_goodput"] = sum(ideal_goodput_bps(transfer) for transfer in transfers)
    ideals["retransmits"] = ideals["retransmit_ratio"] = 0.0
    leaving = Counter(
        switch
        for switch, target in ((_switch(t.source.peer), _switch(t.destination.peer)) for t in transfers)
        if switch != target
    )
    placed = {switch: _even(leaving[switch], count) for switch, count in uplink_counts.items() if count > 0}
    everywhere = [load for loads in placed.values() for load in loads]
    worst = [ratio for ratio in map(max_mean_ratio, placed.values()) if ratio is not None]
    for name, value in (
        ("mmr_uplinks", max_mean_ratio(everywhere) if everywhere else None),
        ("jain_links", jain_index(everywhere)),
        ("mmr_worst_switch", max(worst, default=None)),
    ):
        if value is not None:
            ideals[name] = value
    return ideals


def summarise_metrics(runs: Sequence[RunResult], ideals: Mapping[str, float]) -> list[MetricSummary]:
    """Every metric over all runs, in the order in which they are printed."""
    return [
        _summary(name, [run.metrics.get(name) for run in runs], ideals.get(name))
        for name in METRICS
        if any(name in run.metrics for run in runs)
    ]


def _summary(name: str, values: list[float | None], ideal: float | None) -> MetricSummary:
    definition = METRICS[name]
    known = [value for value in values if value is not None]
    mean = statistics.fmean(known) if known else 0.0
    return MetricSummary(
        name=name,
        title=definition.title,
        unit=definition.unit.value,
        definition=definition.definition,
        headline=definition.headline,
        ideal=ideal,
        values=list(values),
        median=statistics.median(known) if known else None,
        minimum=min(known, default=None),
        maximum=max(known, default=None),
        cv=statistics.stdev(known) / mean if len(known) > 1 and mean > 0 else None,
    )


def _worst_switch(uplinks: Iterable[UplinkLoad]) -> float | None:
    by_switch: defaultdict[str, list[float]] = defaultdict(list)
    for uplink in uplinks:
        by_switch[uplink.switch].append(float(uplink.tx_bytes))
    ratios = [ratio for ratio in map(max_mean_ratio, by_switch.values()) if ratio is not None]
    return max(ratios, default=None)


def _even(flows: int, uplinks: int) -> list[float]:
    base, more = divmod(flows, uplinks)
    return [float(base + (index < more)) for index in range(uplinks)]


def _switch(peer: str) -> str:
    return peer.partition(":")[0]
