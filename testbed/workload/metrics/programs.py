"""Metrics of a program of the user's own: the times of its steps, what it sent over the fabric, and how it ended."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from testbed.base.metric import Better, MetricFamily, MetricUnit, as_measured
from testbed.workload.metrics.run_samples import ProgramBytes, ProgramExit, ProgramIdeal, ProgramSteps
from testbed.workload.metrics.sources import DRAFT, PERCENTILE, PERCENTILE_RULE
from testbed.workload.metrics.statistics import percentile

PROGRAMS = MetricFamily()
_STEPS = "over the steps that the program tells of, without those of its warm-up"


def _percentile(step_s: Sequence[float], share: float) -> float | None:
    if any(took < 0 for took in step_s):
        raise ValueError("a step took less than no time")
    return percentile(step_s, share)


@PROGRAMS.metric(
    title="Step time P50",
    unit=MetricUnit.SECONDS,
    better=Better.LESS,
    headline=True,
    formula=f"median {_STEPS}",
    source="the program's own lines; " + PERCENTILE_RULE,
    takes=lambda run: (run[ProgramSteps].step_s,),
)
def program_step_p50(step_s: Sequence[float]) -> float | None:
    """Returns the median time of a step, s; None where no step was timed."""
    return _percentile(step_s, 0.5)


@PROGRAMS.metric(
    title="Step time P99",
    unit=MetricUnit.SECONDS,
    better=Better.LESS,
    headline=True,
    formula=f"0.99 {PERCENTILE}, {_STEPS}: of up to 100 steps the longest",
    source="the program's own lines; " + PERCENTILE_RULE,
    takes=lambda run: (run[ProgramSteps].step_s,),
)
def program_step_p99(step_s: Sequence[float]) -> float | None:
    """Returns the 99th percentile of the times of steps, s; None where no step was timed."""
    return _percentile(step_s, 0.99)


@PROGRAMS.metric(
    title="Step time over ideal",
    unit=MetricUnit.RATIO,
    better=Better.LESS,
    headline=True,
    proves_scale=True,
    formula=f"median {_STEPS} / (what is waited for instead of computing + the roofline of the stated collective)",
    source=DRAFT,
    takes=lambda run: (run[ProgramSteps].step_s, run[ProgramIdeal].step_s),
)
def program_ratio(step_s: Sequence[float], ideal_s: float) -> float | None:
    """Returns how much longer a step takes than its stated bytes must; None where no step was timed.

    It can be below 1 where a program computes while it sends.
    """
    times = list(step_s)
    return statistics.median(times) / ideal_s if times and ideal_s > 0 else None


@PROGRAMS.metric(
    title="Bytes of the program",
    unit=MetricUnit.BYTES,
    better=Better.NEITHER,
    formula="bytes that the NICs of all ranks sent from the start of the program to its end, headers included, without"
    " those of probes",
    source="the kernel's counters (ip-link(8), tx bytes)",
    takes=lambda run: (run[ProgramBytes].sent_bytes,),
)
def program_bytes(sent_bytes: float) -> float:
    """Returns what the ranks sent into the fabric, bytes."""
    return as_measured(sent_bytes)


@PROGRAMS.metric(
    title="Exit code of the program",
    unit=MetricUnit.COUNT,
    better=Better.LESS,
    headline=True,
    ideal=0.0,
    every_run=True,
    formula="exit code of the first rank that failed, 128 + n for one that signal n has ended; 0 where none failed",
    source="POSIX, Shell Command Language, 2.8.2",
    takes=lambda run: (run[ProgramExit].code,),
)
def program_exit(code: int) -> float:
    """Returns the exit code; 0 means that every rank succeeded."""
    if code < 0:
        raise ValueError("an exit code is negative")
    return float(code)
