"""Metrics of the latency of messages that are sent one at a time: over the samples of all pairs together.

Percentiles are taken of samples, never of pairs' percentiles: all pairs have as many messages, and each counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from testbed.base.metric import Better, MetricFamily, MetricUnit
from testbed.workload.metrics.run_samples import Latencies
from testbed.workload.metrics.statistics import percentile

LATENCY = MetricFamily()


def latency(latency_s: Sequence[float], share: float) -> float | None:
    """A percentile of all messages' latencies, s; shares 0 and 1 are the least and the greatest."""
    _check(latency_s)
    return percentile(latency_s, share)


def _check(latency_s: Sequence[float]) -> None:
    if any(took < 0 for took in latency_s):
        raise ValueError("a latency is negative")


_WHAT = (
    "over all messages of all pairs; a message's latency is half of the time from its posting to the posting of the"
    " next (write, send: the peer's program answers with a message of the same size), or the whole of it (read,"
    " atomics: its adapter answers)"
)
_SOURCE = "perftest, perftest_parameters.c, print_report_lat (rtt_factor); RFC 2330 section 11.3 for the percentile"
_LEFT_OUT = "; perftest itself leaves the two longest of each pair out, this does not"


def _declare_percentile(name: str, title: str, share: float, formula: str, *, headline: bool) -> None:
    LATENCY.metric(
        name=f"rdma_latency_{name}",
        title=f"RDMA latency {title}",
        unit=MetricUnit.SECONDS,
        better=Better.LESS,
        headline=headline,
        formula=formula,
        source=_SOURCE,
        takes=lambda run: (run[Latencies].latency_s,),
    )(partial(latency, share=share))


_declare_percentile("min", "minimum", 0.0, f"least latency, {_WHAT}", headline=False)
_declare_percentile("p50", "P50", 0.5, f"0.50 percentile {_WHAT}", headline=True)
_declare_percentile("p99", "P99", 0.99, f"0.99 percentile {_WHAT}{_LEFT_OUT}", headline=True)
_declare_percentile("p99_9", "P99.9", 0.999, f"0.999 percentile {_WHAT}{_LEFT_OUT}", headline=True)
_declare_percentile("max", "maximum", 1.0, f"greatest latency, {_WHAT}{_LEFT_OUT}", headline=False)


@LATENCY.metric(
    name="rdma_latency_ratio",
    title="RDMA latency P50 over ideal",
    unit=MetricUnit.RATIO,
    better=Better.LESS,
    headline=True,
    formula="0.50 percentile over messages of latency / ideal; ideal = delays of the links on the way + 8 * bytes"
    " with headers / rate at every port that sends (store and forward), both ways where a whole round trip counts",
    source="RFC 1242 section 3.8 for store and forward; InfiniBand chapter 9 and annex A17 for the headers",
    ideal=1.0,
    takes=lambda run: (run[Latencies].latency_s, run[Latencies].ideal_s),
)
def latency_ratio(latency_s: Sequence[float], ideal_s: Sequence[float]) -> float | None:
    """The median over messages of latency / ideal."""
    _check(latency_s)
    if len(latency_s) != len(ideal_s):
        raise ValueError(f"{len(latency_s)} latencies against {len(ideal_s)} ideals")
    return percentile((took / ideal for took, ideal in zip(latency_s, ideal_s, strict=True) if ideal > 0), 0.5)
