"""Metrics of I/O on storage: what fio reports of its jobs, a job for each pair of a host and a target."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from testbed.workload.metrics.metric import Better, MetricFamily, MetricUnit
from testbed.workload.metrics.run_samples import IoJobs, JobTime
from testbed.workload.metrics.statistics import percentile

IO = MetricFamily()
_SOURCE = "fio's JSON output (fio(1), total_ios, io_bytes, clat_ns); MLPerf Storage v2.0, throughput = min over ranks"
_WHOLE = " / (end of the last transfer - begin of the first)"


@IO.metric(
    title="I/Os per second",
    unit=MetricUnit.COUNT,
    better=Better.MORE,
    headline=True,
    formula="sum over jobs of I/Os" + _WHOLE,
    source=_SOURCE,
    takes=lambda run: (run[IoJobs].ios, run[JobTime].seconds),
)
def iops(ios: Sequence[float], elapsed_s: float) -> float | None:
    """Returns the I/Os of all jobs per second."""
    return _rate(ios, elapsed_s)


@IO.metric(
    title="I/O bandwidth",
    unit=MetricUnit.BYTES_PER_S,
    better=Better.MORE,
    headline=True,
    formula="sum over jobs of bytes read or written" + _WHOLE,
    source=_SOURCE,
    takes=lambda run: (run[IoJobs].io_bytes, run[JobTime].seconds),
)
def io_bandwidth(io_bytes: Sequence[float], elapsed_s: float) -> float | None:
    """Returns the bytes of all jobs per second."""
    return _rate(io_bytes, elapsed_s)


def _rate(counts: Sequence[float], elapsed_s: float) -> float | None:
    if elapsed_s < 0 or any(count < 0 for count in counts):
        raise ValueError("a count or a time is negative")
    return sum(counts) / elapsed_s if counts and elapsed_s else None


@IO.metric(
    title="I/O bandwidth, slowest job",
    unit=MetricUnit.BYTES_PER_S,
    better=Better.MORE,
    formula="min over jobs of bytes / time that the job ran",
    source=_SOURCE,
    takes=lambda run: (run[IoJobs].bytes_per_s,),
)
def io_bandwidth_min(job_bytes_per_s: Sequence[float]) -> float | None:
    """Returns the bandwidth of the slowest job while it ran, in bytes/s."""
    return min(job_bytes_per_s, default=None)


def io_latency(job_latency_s: Sequence[float], share: float) -> float | None:
    """Returns a percentile over jobs of a percentile that fio has of each, s."""
    if any(took < 0 for took in job_latency_s):
        raise ValueError("a latency is negative")
    return percentile(job_latency_s, share)


IO.metric(
    name="io_latency_p50",
    title="I/O latency P50",
    unit=MetricUnit.SECONDS,
    better=Better.LESS,
    headline=True,
    formula="median over jobs of a job's 0.50 percentile of completion latency",
    source=_SOURCE,
    takes=lambda run: (run[IoJobs].p50_s,),
)(partial(io_latency, share=0.5))
IO.metric(
    name="io_latency_p99",
    title="I/O latency P99, worst job",
    unit=MetricUnit.SECONDS,
    better=Better.LESS,
    headline=True,
    formula="max over jobs of a job's 0.99 percentile of completion latency",
    source=_SOURCE,
    takes=lambda run: (run[IoJobs].p99_s,),
)(partial(io_latency, share=1.0))
