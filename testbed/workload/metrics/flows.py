"""Metrics of flows: goodput and its shares, completion times and their slowdown, retransmissions, victims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from testbed.base.metric import Better, MetricFamily, MetricUnit
from testbed.workload.metrics.run_samples import (
    CompletedMessages,
    FlowRates,
    FlowTimes,
    JobTime,
    PacketsSent,
    PatternBound,
    Retransmissions,
    VictimRates,
)
from testbed.workload.metrics.sources import DRAFT, HPCC, HTSIM, JAIN, PERCENTILE_RULE
from testbed.workload.metrics.statistics import jain_index, percentile

FLOWS = MetricFamily()


@FLOWS.metric(
    title="Aggregate share of ideal",
    unit=MetricUnit.SHARE,
    better=Better.MORE,
    headline=True,
    formula="sum of flows' goodputs while all have data to send / sum of their ideals; a flow's ideal is the slower of"
    " its two NICs' rates times the payload efficiency and does not know of shared uplinks",
    source="Handley et al., NDP, SIGCOMM 2017, figure 14",
    ideal=1.0,
    proves_scale=True,
    takes=lambda run: (run[FlowRates].goodput_bps, run[FlowRates].ideal_bps),
)
def aggregate_share(goodput_bps: Sequence[float], ideal_bps: Sequence[float]) -> float | None:
    """Sum of goodputs over the sum of ideals."""
    _same_length(goodput_bps, ideal_bps)
    ideal = math.fsum(ideal_bps)
    return math.fsum(goodput_bps) / ideal if ideal > 0 else None


@FLOWS.metric(
    title="Slowest flow, share of ideal",
    unit=MetricUnit.SHARE,
    better=Better.MORE,
    headline=True,
    formula="min over flows of goodput while all have data to send / ideal",
    source="Handley et al., NDP, SIGCOMM 2017, figure 14",
    ideal=1.0,
    proves_scale=True,
    takes=lambda run: (run[FlowRates].goodput_bps, run[FlowRates].ideal_bps),
)
def slowest_share(goodput_bps: Sequence[float], ideal_bps: Sequence[float]) -> float | None:
    """The smallest goodput over ideal of any flow."""
    _same_length(goodput_bps, ideal_bps)
    return min((got / ideal for got, ideal in zip(goodput_bps, ideal_bps, strict=True) if ideal > 0), default=None)


@FLOWS.metric(
    title="Goodput share",
    unit=MetricUnit.SHARE,
    better=Better.MORE,
    formula="8 * application bytes / (t * bottleneck payload rate); payload rate = line rate * payload / (payload +"
    " headers)",
    source="RFC 2647 section 3.17 for goodput; " + DRAFT,
    ideal=1.0,
    proves_scale=True,
    takes=lambda run: (run[PatternBound].ideal_s, run[JobTime].seconds),
)
def goodput_share(ideal_s: float, time_s: float) -> float | None:
    """The bottleneck's time for the bytes over the time they took, which is bytes over capacity as well."""
    return ideal_s / time_s if time_s > 0 else None


@FLOWS.metric(
    title="Aggregate goodput",
    unit=MetricUnit.BITS_PER_S,
    better=Better.MORE,
    headline=True,
    formula="sum over flows of payload bits received / the time in which all have data to send; / the receiver's own"
    " measured time where they never do at once",
    source="RFC 2647 section 3.17 for goodput",
    takes=lambda run: (run[FlowRates].goodput_bps,),
)
def aggregate_goodput(goodput_bps: Sequence[float]) -> float | None:
    """Sum of the flows' goodputs, bit/s."""
    return math.fsum(goodput_bps) if goodput_bps else None


@FLOWS.metric(
    title="Jain's index over flows",
    unit=MetricUnit.RATIO,
    better=Better.MORE,
    headline=True,
    formula="(sum x)^2 / (n * sum x^2), x: goodput while all flows have data to send; 1 all equal, 1/n one has all",
    source=JAIN,
    ideal=1.0,
    proves_scale=True,
    takes=lambda run: (run[FlowRates].goodput_bps,),
)
def jain_flows(goodput_bps: Sequence[float]) -> float | None:
    """Over an interval in which all flows have data to send."""
    return jain_index(goodput_bps)


def fct_slowdowns(fct_s: Sequence[float], standalone_s: Sequence[float]) -> list[float]:
    """FCT over the time alone on an empty network, at least 1; as HPCC's analysis/fct_analysis.py has it."""
    _same_length(fct_s, standalone_s)
    if any(fct < 0 for fct in fct_s) or any(alone <= 0 for alone in standalone_s):
        raise ValueError("a completion time is negative, or one alone is not above 0")
    return [max(1.0, fct / alone) for fct, alone in zip(fct_s, standalone_s, strict=True)]


def fct_slowdown(fct_s: Sequence[float], standalone_s: Sequence[float], share: float = 0.99) -> float | None:
    """A percentile of the slowdowns of all flows."""
    return percentile(fct_slowdowns(fct_s, standalone_s), share)


_ALONE = "; alone = base RTT + 8 * bytes with headers / rate"
_BY_SIZE = "; by size: bands of 5 % of the flows, sorted by size"
for _percent, _headline, _more in ((50, True, _ALONE), (95, False, ""), (99, True, _BY_SIZE)):
    FLOWS.metric(
        name=f"fct_slowdown_p{_percent}",
        title=f"FCT slowdown P{_percent}",
        unit=MetricUnit.RATIO,
        better=Better.LESS,
        headline=_headline,
        formula=f"{_percent / 100:.2f} percentile of max(1, FCT / alone){_more}",
        source=HPCC + "; " + PERCENTILE_RULE,
        ideal=1.0,
        takes=lambda run: (run[FlowTimes].fct_s, run[FlowTimes].standalone_s),
    )(partial(fct_slowdown, share=_percent / 100))


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowdownBin:
    """The slowdown of the flows of one band of sizes. `from_share` and `to_share` are of all flows, by size."""

    from_share: float
    to_share: float
    smallest_bytes: float
    largest_bytes: float
    flows: int
    p50: float
    p95: float
    p99: float


def slowdown_by_size(
    size_bytes: Sequence[float], fct_s: Sequence[float], standalone_s: Sequence[float], bins: int = 20
) -> list[SlowdownBin]:
    """Slowdown against size: flows sorted by size in bands of equal numbers, 5 % each with 20 of them.

    The bands are HPCC's (analysis/fct_analysis.py); percentiles are ours (RFC 2330), at most one sample below its.
    With fewer flows than bands, bands without flows are left out.
    """
    if bins < 1:
        raise ValueError(f"at least one band, not {bins}")
    slowdowns = fct_slowdowns(fct_s, standalone_s)
    _same_length(size_bytes, slowdowns)
    flows = sorted(zip(size_bytes, slowdowns, strict=True))
    found = []
    for number in range(bins):
        band = flows[number * len(flows) // bins : (number + 1) * len(flows) // bins]
        if not band:
            continue
        p50, p95, p99 = (percentile((slowdown for _, slowdown in band), share) for share in (0.5, 0.95, 0.99))
        assert p50 is not None and p95 is not None and p99 is not None  # the band has flows
        found.append(
            SlowdownBin(
                from_share=number / bins,
                to_share=(number + 1) / bins,
                smallest_bytes=band[0][0],
                largest_bytes=band[-1][0],
                flows=len(band),
                p50=p50,
                p95=p95,
                p99=p99,
            )
        )
    return found


@FLOWS.metric(
    title="Tail FCT",
    unit=MetricUnit.SECONDS,
    better=Better.LESS,
    headline=True,
    formula="max over flows of the completion time",
    source=HTSIM,
    takes=lambda run: (run[FlowTimes].fct_s,),
)
def tail_fct(fct_s: Sequence[float]) -> float | None:
    """The longest completion time, s."""
    return max(fct_s, default=None)


@FLOWS.metric(
    title="Tail FCT over ideal",
    unit=MetricUnit.RATIO,
    better=Better.LESS,
    headline=True,
    formula="max FCT / ideal; ideal = most bytes (with headers) that any one NIC sends or receives * 8 / its rate"
    " + base RTT: N * S * 8 / B + base RTT for an incast",
    source=HTSIM,
    ideal=1.0,
    proves_scale=True,
    takes=lambda run: ([run[JobTime].seconds], run[PatternBound].ideal_s),
)
def tail_fct_ratio(fct_s: Sequence[float], ideal_s: float) -> float | None:
    """The longest completion time over the ideal of the whole pattern (`oracles.serialisation`)."""
    return max(fct_s) / ideal_s if fct_s and ideal_s > 0 else None


@FLOWS.metric(
    title="FCT max / min",
    unit=MetricUnit.RATIO,
    better=Better.LESS,
    formula="max FCT / min FCT",
    source=HTSIM,
    proves_scale=True,
    takes=lambda run: (run[FlowTimes].fct_s,),
)
def fct_spread(fct_s: Sequence[float]) -> float | None:
    """Longest over shortest completion time."""
    return max(fct_s) / min(fct_s) if fct_s and min(fct_s) > 0 else None


@FLOWS.metric(
    name="rdma_message_rate",
    title="RDMA messages per second",
    unit=MetricUnit.COUNT,
    better=Better.MORE,
    formula="sum over flows of messages (or atomics) whose completion was seen / the flow's measured time",
    source="perftest (MsgRate)",
    takes=lambda run: (run[CompletedMessages].completed, run[CompletedMessages].time_s),
)
def message_rate(messages: Sequence[float], time_s: Sequence[float]) -> float | None:
    """Messages of all flows together, per second: of each, over its own time."""
    _same_length(messages, time_s)
    rates = [count / took for count, took in zip(messages, time_s, strict=True) if took > 0]
    return math.fsum(rates) if rates else None


@FLOWS.metric(
    title="Retransmitted packets",
    unit=MetricUnit.COUNT,
    better=Better.LESS,
    formula="packets (TCP: segments) sent again by all flows in the measured time",
    source=HTSIM + " (Rtx)",
    ideal=0.0,
    takes=lambda run: (run[Retransmissions].packets,),
)
def retransmits(retransmitted_packets: Sequence[float]) -> float | None:
    """Packets sent again by all flows."""
    return math.fsum(retransmitted_packets) if retransmitted_packets else None


@FLOWS.metric(
    title="Retransmission ratio",
    unit=MetricUnit.SHARE,
    better=Better.LESS,
    headline=True,
    formula="packets sent again / packets sent for the first time",
    source=HTSIM + " (Rtx / New)",
    ideal=0.0,
    takes=lambda run: (run[PacketsSent].again, run[PacketsSent].new),
)
def retransmit_ratio(retransmitted_packets: float, new_packets: float) -> float | None:
    """Packets sent again over packets sent for the first time."""
    return retransmitted_packets / new_packets if new_packets > 0 else None


@FLOWS.metric(
    title="Spurious retransmissions",
    unit=MetricUnit.SHARE,
    better=Better.LESS,
    formula="packets sent again whose original arrived / packets sent again",
    source="RFC 3522 section 1 for the term",
)
def spurious_retransmit_share(spurious_packets: float, retransmitted_packets: float) -> float | None:
    """Return which share of the packets sent again had an original that arrived."""
    return spurious_packets / retransmitted_packets if retransmitted_packets > 0 else None


@FLOWS.metric(
    title="Victim ratio",
    unit=MetricUnit.RATIO,
    better=Better.MORE,
    formula="goodput of a flow that is not part of the incast: with the incast / without",
    source="Zhu et al., DCQCN, SIGCOMM 2015, figure 4; NDP, SIGCOMM 2017",
)
def victim_ratio(victim_bps: float, alone_bps: float) -> float | None:
    """Goodput of a flow that shares no bottleneck with the incast, with it over without it."""
    return victim_bps / alone_bps if alone_bps > 0 else None


@FLOWS.metric(
    title="Victim, share of ideal",
    unit=MetricUnit.SHARE,
    better=Better.MORE,
    formula="min of goodput / ideal over flows whose two NICs no other flow uses, where others share a receiver",
    source="Zhu et al., DCQCN, SIGCOMM 2015, section 2.2",
    ideal=1.0,
    headline=True,
    takes=lambda run: (run[VictimRates].goodput_bps, run[VictimRates].ideal_bps),
)
def victim_share(goodputs_bps: Sequence[float], ideals_bps: Sequence[float]) -> float | None:
    """The least share of its ideal that a flow gets whose two NICs no other flow uses, beside an incast."""
    _same_length(goodputs_bps, ideals_bps)
    return min((got / ideal for got, ideal in zip(goodputs_bps, ideals_bps, strict=True) if ideal > 0), default=None)


def _same_length(a: Sequence[float], b: Sequence[float]) -> None:
    if len(a) != len(b):
        raise ValueError(f"{len(a)} values against {len(b)}")
