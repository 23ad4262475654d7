"""Metrics of storage: how well accelerators are used whose batches are read from it.

The utilisation is that of MLPerf Storage, which DLIO measures without the first batch: nothing can be read before it.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from testbed.workload.metrics.metric import Better, MetricFamily, MetricUnit
from testbed.workload.metrics.run_samples import BatchTimes

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
    """The same of the host that waits most."""
    return min(utilisations(batch_start_s, batch_end_s), default=None)
