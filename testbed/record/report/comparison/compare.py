"""Two records against each other: metric by metric and point by point, with what chance alone would do.

What is judged: the metrics that either scenario expects something of, or those one names. All others are shown with
their differences, so that few runs are not spent on many tests. A metric that is only about the emulation, or has no
better and worse, is never judged.

Whether a difference between two handfuls of runs is more than chance is told by rank tests that are exact for few runs.
The test is that of Wilcoxon, Mann and Whitney: two-sided, by the exact distribution of the rank sum over all ways in
which the runs could have fallen, with mid-ranks for ties (Lehmann, Nonparametrics, 1975, sections 1.2 and 1.4). It
assumes nothing of how values are distributed. Several metrics tested at once are corrected by Holm's method (Holm, A
simple sequentially rejective multiple test procedure, 1979).
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from testbed.base.errors import ExitCode, RecordError
from testbed.base.metric import Better, MetricUnit
from testbed.record.catalogue import definition_of, selected_words
from testbed.record.record import Backend, Outcome, PointResult, Record

ALPHA = 0.05
MIN_CHANGE = 0.01
"""Relative differences below it are none, however sure they are."""
OF_BACKEND = frozenset({"clock", "k", "lab.k", "lab.nic_bps"})
"""Keys that differ between an emulation and a simulation of the same, which are comparable nevertheless."""
OF_WHAT_IS_MEASURED = frozenset({"workload", "clock"})
"""If records differ in these, their figures are not of the same thing, which is said. Where they differ in anything
else, such as the design of the fabric, the transport or a fault, that is what is compared."""
ALL = "all"
"""In place of metrics' names: judge every one that has a better and a worse."""


class Incomparable(RecordError):
    """Nothing can be said of one record beside the other: they are of different things, or not to be trusted."""

    exit_code = ExitCode.INVALID


_WORDS = {Backend.EMULATION: "emulated", Backend.SIMULATION: "simulated", Backend.FLOWS: "of flows"}


class Shift(StrEnum):
    WORSE = "worse"
    BETTER = "better"
    DIFFERENT = "different"
    """Significantly, of a metric that has no better and worse."""
    SAME = "same"
    """No difference that is both significant and large enough."""
    UNSURE = "too few runs"
    """There is a difference, and no test can say with so few runs whether it is more than chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricChange:
    """`relative` is other over base minus one; None where base is 0 or nothing was measured."""

    point: str
    metric: str
    title: str
    unit: str
    better: Better
    base: Sequence[float]
    other: Sequence[float]
    """One value for each complete run."""
    relative: float | None
    p: float
    adjusted_p: float | None
    """After Holm's correction over all that is judged; None: not judged."""
    change: Shift

    @property
    def judged(self) -> bool:
        return self.adjusted_p is not None

    @property
    def base_median(self) -> float | None:
        return statistics.median(self.base) if self.base else None

    @property
    def other_median(self) -> float | None:
        return statistics.median(self.other) if self.other else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`differing` are the keys in which the two differ, with both values."""

    base: str
    other: str
    changes: Sequence[MetricChange]
    only_base: Sequence[str]
    only_other: Sequence[str]
    """Points that the other one does not have."""
    differing: Mapping[str, tuple[Any, Any]]
    notes: Sequence[str]

    @property
    def incomparable(self) -> Mapping[str, tuple[Any, Any]]:
        """Return those of `differing` which make the figures those of different things."""
        return {key: values for key, values in self.differing.items() if key.partition(".")[0] in OF_WHAT_IS_MEASURED}

    @property
    def verdict(self) -> Shift:
        found = {change.change for change in self.changes if change.judged}
        order = (Shift.WORSE, Shift.UNSURE, Shift.BETTER)
        return next((change for change in order if change in found), Shift.SAME)

    @property
    def exit_code(self) -> int:
        """1 significantly worse, 2 cannot say, 0 same or better."""
        return {Shift.WORSE: ExitCode.FAIL, Shift.UNSURE: ExitCode.INVALID}.get(self.verdict, ExitCode.PASS)


def compare_records(
    base: Record,
    other: Record,
    *,
    names: tuple[str, str] = ("base", "other"),
    metrics: Sequence[str] = (),
    alpha: float = ALPHA,
    min_change: float = MIN_CHANGE,
    force: bool = False,
) -> Comparison:
    """Return what became of each metric from `base` to `other`, and in what the two differ.

    Raises `RecordError` where one is not to be trusted (unless `force`), where they have no point in common, and for a
    metric that neither has.
    """
    differing = differences(base, other)
    doubts = [
        f"{name} is invalid: {'; '.join(record.verdict.reasons[:2])}"
        for name, record in zip(names, (base, other), strict=True)
        if record.verdict.outcome is Outcome.INVALID
    ]
    if doubts and not force:
        raise Incomparable("; ".join(doubts), hint="--force compares them nevertheless")
    pairs, only_base, only_other = _match(base, other)
    if not pairs:
        raise RecordError(f"{names[0]} and {names[1]} have no point in common", hint=_points_hint(base, other))
    wanted = _judged(base, other, metrics)
    across = across_backends(base, other)
    rescaled = any(ours.lab.k != theirs.lab.k for ours, theirs in pairs)
    changes = _changes(pairs, wanted, alpha, min_change, in_real_units=across or rescaled)
    notes = [*doubts, *_notes(changes, alpha)]
    if across:
        backends = [
            f"{name} is {_WORDS[one.environment.backend]}" for name, one in zip(names, (base, other), strict=True)
        ]
        notes.append(f"{' and '.join(backends)}: times and rates are those of the real fabric")
    elif rescaled:
        notes.append("their time scales differ: times and rates are those of the real fabric")
    return Comparison(
        base=names[0],
        other=names[1],
        changes=changes,
        only_base=only_base,
        only_other=only_other,
        differing=differing,
        notes=notes,
    )


def differences(base: Record, other: Record) -> dict[str, tuple[Any, Any]]:
    """Keys of the comparability sets that differ, dotted, with both values; None where one lacks it."""
    if base.comparability and other.comparability:
        a, b = _leaves(base.comparability), _leaves(other.comparability)
    else:
        a, b = _leaves(_derived(base)), _leaves(_derived(other))
    passed = OF_BACKEND if across_backends(base, other) else frozenset()
    keys = [key for key in dict.fromkeys([*a, *b]) if key not in passed]
    return {key: (a.get(key), b.get(key)) for key in keys if a.get(key) != b.get(key)}


def across_backends(base: Record, other: Record) -> bool:
    """Tell whether one was emulated and the other simulated: then times and rates are compared in real ones."""
    return base.environment.backend is not other.environment.backend


def _derived(record: Record) -> dict[str, Any]:
    """Return the comparability of a record that does not say it: what it was run on and with."""
    first = record.points[0] if record.points else None
    lab = {} if first is None else {
        "design": first.lab.design, "nics": first.lab.nics, "switches": first.lab.switches, "links": first.lab.links,
        "k": first.lab.k, "nic_bps": first.lab.nic_bps, "mtu_bytes": first.lab.mtu_bytes,
    }  # fmt: skip
    scenario = record.scenario
    return {
        "lab": lab,
        "transport": scenario.transport,
        "workload": scenario.workload,
        "clock": record.environment.clock,
    }


def _leaves(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            found |= _leaves(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def refuse_different_things(comparison: Comparison) -> None:
    """Raise `RecordError` where two records measured different things."""
    differing = list(comparison.incomparable.items())[:12]
    if differing:
        a, b = comparison.base, comparison.other
        lines = [f"  {key}: {ours!r} in {a}, {theirs!r} in {b}" for key, (ours, theirs) in differing]
        raise Incomparable(
            "these records are not comparable, as they measured different things:\n" + "\n".join(lines),
            hint="without --strict they are compared, and the differences are listed",
        )


def _match(base: Record, other: Record) -> tuple[list[tuple[PointResult, PointResult]], list[str], list[str]]:
    """Points of equal names; the only point of each, whatever their names."""
    if len(base.points) == 1 and len(other.points) == 1:
        return [(base.points[0], other.points[0])], [], []
    theirs = {point.name: point for point in other.points}
    ours = {point.name for point in base.points}
    pairs = [(point, theirs[point.name]) for point in base.points if point.name in theirs]
    return (
        pairs,
        [point.name for point in base.points if point.name not in theirs],
        [point.name for point in other.points if point.name not in ours],
    )


def _points_hint(base: Record, other: Record) -> str:
    a, b = (", ".join(point.name or "(one)" for point in record.points[:6]) or "none" for record in (base, other))
    return f"their points: {a}; and {b}. --point KEY=VALUE, once for each record, says which of them to compare"


def _judged(base: Record, other: Record, metrics: Sequence[str]) -> frozenset[str]:
    """Names of the metrics to judge."""
    measured = {metric.name for record in (base, other) for point in record.points for metric in point.metrics}
    unknown = [name for name in metrics if name != ALL and name not in measured]
    if unknown:
        known = ", ".join(sorted(measured)) or "none"
        raise RecordError(f"neither record has the metric {', '.join(unknown)}", hint=f"they have: {known}")
    able = {name for name in measured if _better(name) is not Better.NEITHER and not _of_emulation(name)}
    if metrics and ALL not in metrics:
        return frozenset(metrics)
    expected = {item.metric for record in (base, other) for item in record.expectations} & able
    whole = {name for name in able if not selected_words(name)}  # more judged metrics need more runs
    return frozenset(able if ALL in metrics else expected or whole)


def _changes(
    pairs: Sequence[tuple[PointResult, PointResult]],
    wanted: frozenset[str],
    alpha: float,
    min_change: float,
    *,
    in_real_units: bool,
) -> list[MetricChange]:
    found = []
    for ours, theirs in pairs:
        known = {metric.name: metric for metric in (*theirs.metrics, *ours.metrics)}
        for name, metric in known.items():
            base, other = _values(ours, name), _values(theirs, name)
            if in_real_units:
                base, other = real_values(base, metric.unit, ours), real_values(other, metric.unit, theirs)
            if base and other:
                found.append((ours.name, metric, base, other, rank_sum_p(base, other)))
    judged = [index for index, (_, metric, _, _, _) in enumerate(found) if metric.name in wanted]
    adjusted = dict(zip(judged, holm([found[index][4] for index in judged]), strict=True))
    changes = []
    for index, (point, metric, base, other, p) in enumerate(found):
        better = _better(metric.name)
        corrected = adjusted.get(index)
        capable = least_p(len(base), len(other)) * (len(judged) if index in adjusted else 1) <= alpha
        changes.append(
            MetricChange(
                point=point,
                metric=metric.name,
                title=metric.title,
                unit=metric.unit,
                better=better,
                base=base,
                other=other,
                relative=_relative(base, other),
                p=p,
                adjusted_p=corrected,
                change=_judge(
                    base, other, better, sure=(p if corrected is None else corrected) <= alpha, capable=capable,
                    min_change=min_change,
                ),
            )
        )  # fmt: skip
    return changes


def _judge(
    base: Sequence[float], other: Sequence[float], better: Better, *, sure: bool, capable: bool, min_change: float
) -> Shift:
    a, b = statistics.median(base), statistics.median(other)
    if abs(b - a) <= min_change * abs(a):
        return Shift.SAME
    if not capable:
        return Shift.UNSURE
    if not sure:
        return Shift.SAME
    if better is Better.NEITHER:
        return Shift.DIFFERENT
    return Shift.BETTER if (b > a) == (better is Better.MORE) else Shift.WORSE


def _notes(changes: Sequence[MetricChange], alpha: float) -> list[str]:
    """Return what stands in the way of saying more."""
    judged = [change for change in changes if change.judged]
    if not judged:
        return ["nothing was judged: name metrics to judge them"]
    if not any(change.change is Shift.UNSURE for change in judged):
        return []
    fewest = min(min(len(change.base), len(change.other)) for change in judged)
    needed = runs_needed(len(judged), alpha)
    tests = f"{len(judged)} metrics" if len(judged) > 1 else "one metric"
    runs = f"{fewest} runs" if fewest > 1 else "one run"
    return [
        f"with {runs} of a side and {tests} judged, no difference can be significant at {alpha:.0%}:"
        f" {needed} runs of each side would do"
    ]


def _values(point: PointResult, metric: str) -> list[float]:
    return [value for run in point.runs if run.complete and (value := run.metrics.get(metric)) is not None]


def real_values(values: Sequence[float], unit: str, point: PointResult) -> list[float]:
    """The values of a metric in the real fabric's time: the lab's is k times as long."""
    k = float(point.lab.k)
    factor = {MetricUnit.SECONDS.value: 1 / k, MetricUnit.BITS_PER_S.value: k, MetricUnit.BYTES_PER_S.value: k}
    return [value * factor.get(unit, 1.0) for value in values]


def _relative(base: Sequence[float], other: Sequence[float]) -> float | None:
    a, b = statistics.median(base), statistics.median(other)
    return b / a - 1 if a else None


def _better(metric: str) -> Better:
    definition = definition_of(metric)
    return Better.NEITHER if definition is None else definition.better


def _of_emulation(metric: str) -> bool:
    definition = definition_of(metric)
    return definition is not None and definition.emulation


MOST_EXACT = 60
"""Runs of both sides together up to which the distribution is counted out; above, it is normal with tie correction."""
_MOST_NEEDED = 1000


def rank_sum_p(a: Sequence[float], b: Sequence[float]) -> float:
    """The probability that chance alone sets the two apart at least as far, in either direction.

    1.0 where one side has no runs.
    """
    if not a or not b:
        return 1.0
    doubled = _doubled_ranks([*a, *b])
    observed, expected = sum(doubled[: len(a)]), len(a) * (len(doubled) + 1)
    distance = abs(observed - expected)
    if len(doubled) > MOST_EXACT:
        return _normal_p(doubled, len(a), len(b), distance)
    ways = _sums(doubled, len(a))
    beyond = sum(count for total, count in ways.items() if abs(total - expected) >= distance)
    return beyond / math.comb(len(doubled), len(a))


def holm(probabilities: Sequence[float]) -> list[float]:
    """Each probability as it counts among all the others, in their order; at most 1."""
    order = sorted(range(len(probabilities)), key=lambda index: probabilities[index])
    adjusted = [1.0] * len(probabilities)
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * probabilities[index]))
        adjusted[index] = largest
    return adjusted


def least_p(a: int, b: int) -> float:
    """Return what the test can say at most with so many runs on each side: both fully apart, no ties."""
    return min(1.0, 2 / math.comb(a + b, a)) if a and b else 1.0


def runs_needed(tests: int, alpha: float) -> int:
    """Return how many runs on each side it takes before any of so many tests can be significant after Holm's
    correction."""
    return next((runs for runs in range(1, _MOST_NEEDED) if least_p(runs, runs) * max(1, tests) <= alpha), _MOST_NEEDED)


def _doubled_ranks(values: Sequence[float]) -> list[int]:
    """Mid-ranks times two, so that they are whole numbers."""
    counts = Counter(values)
    rank, ranks = 0, {}
    for value in sorted(counts):
        ranks[value] = 2 * rank + counts[value] + 1
        rank += counts[value]
    return [ranks[value] for value in values]


def _sums(ranks: Sequence[int], size: int) -> Counter[int]:
    """Return how many of the choices of `size` ranks have which sum."""
    by_size: list[Counter[int]] = [Counter() for _ in range(size + 1)]
    by_size[0][0] = 1
    for rank in ranks:
        for chosen in range(size, 0, -1):
            for total, count in by_size[chosen - 1].items():
                by_size[chosen][total + rank] += count
    return by_size[size]


def _normal_p(doubled: Sequence[int], a: int, b: int, distance: float) -> float:
    n = a + b
    ties = sum(count**3 - count for count in Counter(doubled).values())
    variance = a * b / 12 * (n + 1 - ties / (n * (n - 1)))
    if variance <= 0:
        return 1.0
    corrected = max(0.0, distance / 2 - 0.5)  # the sum was of doubled ranks; half a step for continuity
    return math.erfc(corrected / math.sqrt(2 * variance))
