"""Pass, fail or invalid: trust checks first, then what was expected. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from testbed.collect.cpu import CpuUse
from testbed.model.metrics import METRICS, MetricUnit
from testbed.model.scenario import Expectation
from testbed.results import Check, ExpectationResult, FlowResult, MetricSummary, Outcome, RunResult, Verdict

MAX_CPU_BUSY = 0.90
"""Above it, what was measured is this machine and not the fabric."""
MAX_START_SKEW = 0.10
"""Of the measured time: so long do the last flows run without the first ones."""


def check_run(cpu: CpuUse, flows: Sequence[FlowResult]) -> list[Check]:
    """The trust checks of one run."""
    starts = [flow.started_s for flow in flows]
    shortest = min((flow.seconds for flow in flows), default=0.0)
    spread = max(starts, default=0.0) - min(starts, default=0.0)
    skew = spread / shortest if shortest > 0 else 0.0
    return [
        Check(
            name="cpu",
            title="CPU of the machine",
            value=cpu.busy,
            limit=MAX_CPU_BUSY,
            ok=cpu.busy <= MAX_CPU_BUSY,
            message=f"the machine was {cpu.busy:.0%} busy (limit {MAX_CPU_BUSY:.0%}),"
            f" {cpu.steal:.0%} stolen by the hypervisor",
        ),
        Check(
            name="start-skew",
            title="Flows ran together",
            value=skew,
            limit=MAX_START_SKEW,
            ok=skew <= MAX_START_SKEW,
            message=f"flows started within {spread:.2f} s of each other, {skew:.1%} of the measured time"
            f" (limit {MAX_START_SKEW:.0%})",
        ),
    ]


def evaluate_expectations(
    expectations: Iterable[Expectation], metrics: Iterable[MetricSummary]
) -> list[ExpectationResult]:
    """Each expectation against the median over runs. One without a measurement is invalid."""
    medians: Mapping[str, float | None] = {metric.name: metric.median for metric in metrics}
    return [_evaluate(expectation, medians.get(expectation.metric)) for expectation in expectations]


def decide_verdict(runs: Sequence[RunResult], expectations: Sequence[ExpectationResult], *, incomplete: str) -> Verdict:
    """Invalid beats fail: an expectation missed on an overrun machine says nothing."""
    doubts = [f"it did not run to its end: {incomplete}"] if incomplete else []
    doubts += [f"run {run.index}: {check.message}" for run in runs for check in run.checks if not check.ok]
    doubts += [f"{item.metric} could not be measured" for item in expectations if item.outcome is Outcome.INVALID]
    if doubts:
        return Verdict(outcome=Outcome.INVALID, reasons=doubts)
    missed = [_miss(item) for item in expectations if item.outcome is Outcome.FAIL]
    if missed:
        return Verdict(outcome=Outcome.FAIL, reasons=missed)
    met = f"{len(expectations)} of {len(expectations)} expectations met" if expectations else "nothing was expected"
    return Verdict(outcome=Outcome.PASS, reasons=[f"{met}, and the machine kept up"])


def _evaluate(expectation: Expectation, measured: float | None) -> ExpectationResult:
    low, high = expectation.minimum, expectation.maximum
    if measured is None:
        outcome = Outcome.INVALID
    elif (low is not None and measured < low) or (high is not None and measured > high):
        outcome = Outcome.FAIL
    else:
        outcome = Outcome.PASS
    return ExpectationResult(
        metric=expectation.metric,
        minimum=low,
        maximum=high,
        source=expectation.source,
        measured=measured,
        outcome=outcome,
    )


def _miss(item: ExpectationResult) -> str:
    assert item.measured is not None
    if item.minimum is not None and item.measured < item.minimum:
        bound, limit = "at least", item.minimum
    else:
        bound, limit = "at most", item.maximum or 0.0
    return f"{item.metric} is {_number(item.metric, item.measured)}, expected {bound} {_number(item.metric, limit)}"


def _number(metric: str, value: float) -> str:
    unit = METRICS[metric].unit
    if unit is MetricUnit.SHARE:
        return f"{value:.1%}"
    if unit is MetricUnit.BITS_PER_S:
        return f"{value / 1e9:.3f} Gbit/s"
    return f"{value:g}" if unit is MetricUnit.COUNT else f"{value:.3f}"
