"""Metrics of storage: how well accelerators are used whose batches are read from it, and what fio reports of its jobs.

The utilisation is that of MLPerf Storage, which DLIO measures without the first batch: nothing can be read before it.
A job of fio is that of a pair of a host and a target."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial

from testbed.base.metric import Better, MetricFamily, MetricUnit
from testbed.workload.metrics.run_samples import BatchTimes, IoJobs, JobTime
from testbed.workload.metrics.statistics import percentile

STORAGE = MetricFamily()
_SOURCE = "MLPerf Storage v2.0, Submission_guidelines.md; DLIO, metric.exclude_start_steps: 1"
_FORMULA = "time of a host's batches but the first / time from the end of its first batch to that of its last"


def utilisations(batch_start_s: Sequence[Sequence[float]], batch_end_s: Sequence[Sequence[float]]) -> list[float]:
    """Return, for each host, which share of the time its accelerators were at work on a batch and did not wait for one.

    The rows are hosts, the columns their batches one after the other. A host with a single batch has none.
    """
    found = []
    for starts, ends in zip(batch_start_s, batch_end_s, strict=True):
        if any(end < start for start, end in zip(starts, ends, strict=True)):
            raise ValueError("a batch ended before it began")
        if len(starts) < 2:
            continue
        elapsed_s = ends[-1] - ends[0]
        busy_s = sum(end - start for start, end in zip(starts[1:], ends[1:], strict=True))
        if elapsed_s > 0:
            found.append(busy_s / elapsed_s)
    return found


@STORAGE.metric(
    title="Accelerator utilisation",
    unit=MetricUnit.SHARE,
    better=Better.MORE,
    headline=True,
    ideal=1.0,
    proves_scale=True,
    formula=f"mean over hosts of {_FORMULA}",
    source=_SOURCE,
    takes=lambda run: (run[BatchTimes].start_s, run[BatchTimes].end_s),
)
def accelerator_utilisation(
    batch_start_s: Sequence[Sequence[float]], batch_end_s: Sequence[Sequence[float]]
) -> float | None:
    """The mean over hosts of computing / (computing + waiting for batches); None where no host has two batches."""
    found = utilisations(batch_start_s, batch_end_s)
    return statistics.fmean(found) if found else None


@STORAGE.metric(
    title="Accelerator utilisation, worst host",
    unit=MetricUnit.SHARE,
    better=Better.MORE,
    headline=True,
    ideal=1.0,
    formula=f"min over hosts of {_FORMULA}",
    source=_SOURCE,
    takes=lambda run: (run[BatchTimes].start_s, run[BatchTimes].end_s),
)
def min_accelerator_utilisation(
    batch_start_s: Sequence[Sequence[float]], batch_end_s: Sequence[Sequence[float]]
) -> float | None:
    """The utilisation of the host that waits most."""
    return min(utilisations(batch_start_s, batch_end_s), default=None)


IO = MetricFamily()
_FIO = "fio's JSON output (fio(1), total_ios, io_bytes, clat_ns); MLPerf Storage v2.0, throughput = min over ranks"
_JOBS_TIME = " / (end of the last transfer - begin of the first)"


@IO.metric(
    title="I/Os per second",
    unit=MetricUnit.COUNT,
    better=Better.MORE,
    headline=True,
    formula="sum over jobs of I/Os" + _JOBS_TIME,
    source=_FIO,
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
    formula="sum over jobs of bytes read or written" + _JOBS_TIME,
    source=_FIO,
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
    source=_FIO,
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
    source=_FIO,
    takes=lambda run: (run[IoJobs].p50_s,),
)(partial(io_latency, share=0.5))
IO.metric(
    name="io_latency_p99",
    title="I/O latency P99, worst job",
    unit=MetricUnit.SECONDS,
    better=Better.LESS,
    headline=True,
    formula="max over jobs of a job's 0.99 percentile of completion latency",
    source=_FIO,
    takes=lambda run: (run[IoJobs].p99_s,),
)(partial(io_latency, share=1.0))
