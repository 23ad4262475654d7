"""Metrics of collectives and of training jobs: algbw, busbw, JCT, its ratios, and bytes that cross the fabric.

Sources: nccl-tests, doc/PERFORMANCE.md (and src/gather.cu, scatter.cu, hypercube.cu, sendrecv.cu for the kinds that
the text leaves out); draft-calabria-bmwg-ai-fabric-training-bench-04 (an individual Internet-Draft) for JCT.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from testbed.base.metric import Better, MetricFamily, MetricUnit
from testbed.workload.metrics.run_samples import (
    CheckedElements,
    CollectiveSpeed,
    CollectiveTimes,
    FabricBytes,
    JobBound,
    JobTime,
    NicPeers,
)
from testbed.workload.metrics.sources import DRAFT, NCCL, PERCENTILE, PERCENTILE_RULE
from testbed.workload.metrics.statistics import percentile

COLLECTIVES = MetricFamily()

_BUSBW_FACTORS = {
    "all_reduce": (2, 1),
    "reduce_scatter": (1, 1),
    "all_gather": (1, 1),
    "all_to_all": (1, 1),
    "gather": (1, 1),
    "scatter": (1, 1),
    "broadcast": (1, 0),
    "reduce": (1, 0),
    "send_recv": (1, 0),
    "hypercube": (1, 0),
}
"""(a, b): the factor is a * (n - b) / n."""

COLLECTIVE_KINDS = tuple(_BUSBW_FACTORS)


def busbw_factor(kind: str, ranks: int) -> float:
    """busbw / algbw: 2(n-1)/n, (n-1)/n or 1. It depends on the kind alone, not on ring or tree."""
    if kind not in _BUSBW_FACTORS:
        raise ValueError(f"{kind!r} is not a collective: one of {', '.join(COLLECTIVE_KINDS)}")
    if ranks < 1:
        raise ValueError(f"a collective has at least one rank, not {ranks}")
    factor, absent = _BUSBW_FACTORS[kind]
    return factor * (ranks - absent) / ranks


@COLLECTIVES.metric(
    title="Algorithm bandwidth",
    unit=MetricUnit.BYTES_PER_S,
    better=Better.MORE,
    formula="S / t, S as nccl-tests counts it for the kind; 10^9 byte/s print as 1 GB/s",
    source=NCCL,
    takes=lambda run: (run[CollectiveSpeed].size_bytes, run[CollectiveSpeed].mean_s),
)
def algbw(size_bytes: float, time_s: float) -> float | None:
    """S / t in byte/s (10^9 of them are nccl-tests' GB/s). `size_bytes` is S as nccl-tests has it for the kind."""
    return size_bytes / time_s if time_s > 0 else None


@COLLECTIVES.metric(
    title="Bus bandwidth",
    unit=MetricUnit.BYTES_PER_S,
    better=Better.MORE,
    headline=True,
    formula="algbw * factor; all_reduce 2(n-1)/n; reduce_scatter, all_gather, all_to_all, gather, scatter (n-1)/n;"
    " broadcast, reduce, send_recv, hypercube 1; the same for ring and tree",
    source=NCCL + "; src/gather.cu, scatter.cu, hypercube.cu",
    takes=lambda run: run[CollectiveSpeed].of_one,
)
def busbw(kind: str, ranks: int, size_bytes: float, time_s: float) -> float | None:
    """algbw times `busbw_factor`, in byte/s: comparable with the line rate, whatever the number of ranks."""
    speed = algbw(size_bytes, time_s)
    return None if speed is None else speed * busbw_factor(kind, ranks)


@COLLECTIVES.metric(
    title="Bus bandwidth, share of line rate",
    unit=MetricUnit.SHARE,
    better=Better.MORE,
    headline=True,
    formula="8 * busbw / line rate of a rank's NIC; of a GPU's scale-up links, each way, where nothing leaves its"
    " domain; where a part stays inside, or a switch adds up: what it is with the busiest of all NICs and links at"
    " its rate, if that is more",
    source=DRAFT,
    ideal=1.0,
    proves_scale=True,
    takes=lambda run: (*run[CollectiveSpeed].of_one, run[CollectiveSpeed].line_bps),
)
def busbw_share(kind: str, ranks: int, size_bytes: float, time_s: float, rate_bps: float) -> float | None:
    """busbw over the line rate of a rank's NIC, or of a GPU's scale-up links where all of it stays inside domains.

    Where a switch adds up, or a part of the transfers stays inside, bus bandwidth can be more than that: it is then a
    share of what it is with the busiest of all NICs and links at its rate.
    """
    speed = busbw(kind, ranks, size_bytes, time_s)
    return None if speed is None or rate_bps <= 0 else 8 * speed / rate_bps


@COLLECTIVES.metric(
    title="Job completion time",
    unit=MetricUnit.SECONDS,
    better=Better.LESS,
    headline=True,
    formula="max over ranks of the iteration's end - min of its start",
    source=DRAFT,
    takes=lambda run: (run[JobTime].start_s, run[JobTime].end_s),
)
def jct(start_s: Sequence[float], end_s: Sequence[float]) -> float | None:
    """max end - min start over the ranks of one iteration: a job goes on when its slowest rank has ended."""
    if not start_s or not end_s:
        return None
    duration = max(end_s) - min(start_s)
    if duration < 0:
        raise ValueError("the iteration ended before it began")
    return duration


@COLLECTIVES.metric(
    title="JCT over roofline",
    unit=MetricUnit.RATIO,
    better=Better.LESS,
    headline=True,
    formula="JCT / roofline; roofline of a step = C + 8 * S * factor / B",
    source=DRAFT,
    ideal=1.0,
    proves_scale=True,
    takes=lambda run: (run[JobTime].seconds, run[JobBound].roofline_s),
)
def jct_ratio(jct_s: float, roofline_s: float) -> float | None:
    """Measured over roofline; 1 is the bound."""
    return jct_s / roofline_s if roofline_s > 0 else None


@COLLECTIVES.metric(
    title="Step time P99",
    unit=MetricUnit.SECONDS,
    better=Better.LESS,
    formula=f"0.99 {PERCENTILE}, over the iterations of one run",
    source=DRAFT + "; " + PERCENTILE_RULE,
    takes=lambda run: (run[CollectiveTimes].seconds,),
)
def step_p99(step_s: Sequence[float]) -> float | None:
    """The 99th percentile of the iterations of one run."""
    return percentile(step_s, 0.99)


@COLLECTIVES.metric(
    title="Communication overlapped",
    unit=MetricUnit.SHARE,
    better=Better.MORE,
    formula="1 - (JCT - compute time) / communication time alone",
    source=DRAFT,
)
def overlap_fraction(jct_s: float, compute_s: float, communication_s: float) -> float | None:
    """1 - (JCT - compute) / communication: the share of communication hidden behind computing.

    `communication_s` is what it takes alone. Below 0 where waiting adds to it.
    """
    return 1 - (jct_s - compute_s) / communication_s if communication_s > 0 else None


@COLLECTIVES.metric(
    title="Interference",
    unit=MetricUnit.RATIO,
    better=Better.LESS,
    formula="JCT beside other jobs / JCT alone",
    source=DRAFT,
)
def interference(contended_s: float, alone_s: float) -> float | None:
    """JCT beside others over JCT alone."""
    return contended_s / alone_s if alone_s > 0 else None


@COLLECTIVES.metric(
    title="JCT overhead of a failure",
    unit=MetricUnit.SECONDS,
    better=Better.LESS,
    formula="JCT of the iteration with the fault - median of the others; zero impact if it is at most their P99",
    source=DRAFT,
)
def failure_overhead(failure_jct_s: float, steady_jct_s: Sequence[float]) -> float | None:
    """JCT of the iteration with the fault minus the median of those without, in s.

    The draft calls a fault of zero impact if the iteration is no longer than the steady state's P99 (`step_p99`).
    """
    median = percentile(steady_jct_s, 0.5)
    return None if median is None else failure_jct_s - median


@COLLECTIVES.metric(
    title="Bytes over the fabric",
    unit=MetricUnit.BYTES,
    better=Better.NEITHER,
    formula="sum of payload bytes of transfers between hosts; scale-up transfers are not counted",
    source=DRAFT,
    takes=lambda run: (run[FabricBytes].payload_bytes,),
)
def s_fabric(payload_bytes: int) -> float:
    """Payload bytes that enter the fabric (`workload.steps.fabric_bytes`)."""
    return float(payload_bytes)


@COLLECTIVES.metric(
    title="Peers of a NIC",
    unit=MetricUnit.COUNT,
    better=Better.LESS,
    formula="the most other NICs that one NIC sends to: g (m - 1) for an all-to-all of m domains of g GPUs, m - 1"
    " with a relay (PXN)",
    source="NVIDIA, Doubling all2all performance with NCCL 2.12, 2022",
    takes=lambda run: (run[NicPeers].peers,),
)
def nic_peers(peers: Iterable[int]) -> float | None:
    """The most NICs that one NIC sends to; None where none sends."""
    return float(max(peers, default=0)) or None


@COLLECTIVES.metric(
    title="Wrong elements",
    unit=MetricUnit.COUNT,
    better=Better.LESS,
    headline=True,
    formula="elements of all ranks' results that differ in any bit from what they should be",
    source=NCCL + " (#wrong)",
    ideal=0.0,
    takes=lambda run: (run[CheckedElements].wrong,),
)
def wrong(wrong_elements: Iterable[float]) -> float | None:
    """Wrong elements over all ranks and operations; None where nothing was checked."""
    counts = list(wrong_elements)
    return float(sum(counts)) if counts else None
