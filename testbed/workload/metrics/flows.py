"""Metrics of flows: goodput and its shares, completion times and their slowdown, retransmissions, victims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from testbed.workload.metrics.statistics import jain_index, percentile


def aggregate_goodput(goodput_bps: Sequence[float]) -> float | None:
    """Sum of the flows' goodputs, bit/s."""
    return math.fsum(goodput_bps) if goodput_bps else None


def goodput_share(received_bytes: float, time_s: float, payload_rate_bps: float) -> float | None:
    """Application bytes over what the bottleneck carries of payload in that time."""
    capacity = time_s * payload_rate_bps
    return 8 * received_bytes / capacity if capacity > 0 else None


def aggregate_share(goodput_bps: Sequence[float], ideal_bps: Sequence[float]) -> float | None:
    """Sum of goodputs over the sum of ideals."""
    _same_length(goodput_bps, ideal_bps)
    ideal = math.fsum(ideal_bps)
    return math.fsum(goodput_bps) / ideal if ideal > 0 else None


def slowest_share(goodput_bps: Sequence[float], ideal_bps: Sequence[float]) -> float | None:
    """The smallest goodput over ideal of any flow."""
    _same_length(goodput_bps, ideal_bps)
    return min((got / ideal for got, ideal in zip(goodput_bps, ideal_bps, strict=True) if ideal > 0), default=None)


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


def tail_fct(fct_s: Sequence[float]) -> float | None:
    """The longest completion time, s."""
    return max(fct_s, default=None)


def tail_fct_ratio(fct_s: Sequence[float], ideal_s: float) -> float | None:
    """The longest completion time over the ideal of the whole pattern (`oracles.serialisation`)."""
    return max(fct_s) / ideal_s if fct_s and ideal_s > 0 else None


def fct_spread(fct_s: Sequence[float]) -> float | None:
    """Longest over shortest completion time."""
    return max(fct_s) / min(fct_s) if fct_s and min(fct_s) > 0 else None


def message_rate(messages: Sequence[float], time_s: Sequence[float]) -> float | None:
    """Messages of all flows together, per second: of each, over its own time."""
    _same_length(messages, time_s)
    rates = [count / took for count, took in zip(messages, time_s, strict=True) if took > 0]
    return math.fsum(rates) if rates else None


def retransmits(retransmitted_packets: Sequence[float]) -> float | None:
    """Packets sent again by all flows."""
    return math.fsum(retransmitted_packets) if retransmitted_packets else None


def retransmit_ratio(retransmitted_packets: float, new_packets: float) -> float | None:
    """Packets sent again over packets sent for the first time."""
    return retransmitted_packets / new_packets if new_packets > 0 else None


def spurious_retransmit_share(spurious_packets: float, retransmitted_packets: float) -> float | None:
    """Of the packets sent again, those whose original arrived."""
    return spurious_packets / retransmitted_packets if retransmitted_packets > 0 else None


def victim_ratio(victim_bps: float, alone_bps: float) -> float | None:
    """Goodput of a flow that shares no bottleneck with the incast, with it over without it."""
    return victim_bps / alone_bps if alone_bps > 0 else None


def _same_length(a: Sequence[float], b: Sequence[float]) -> None:
    if len(a) != len(b):
        raise ValueError(f"{len(a)} values against {len(b)}")
