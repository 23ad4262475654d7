"""Statistics that many metrics share, and how values of several runs become one line.

One method of percentiles is used everywhere: that of RFC 2330 section 11.3, the smallest sample x for which at least
the asked share of all samples is <= x. It is always a value that was seen. Percentiles of runs are never averaged: the
summary over runs is the median of each run's value, with minimum, maximum and coefficient of variation.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_ROUNDING = 1e-9
"""0.95 * 20 is to be the 19th sample, whatever the floating point says."""


def percentile(samples: Iterable[float], share: float) -> float | None:
    """The smallest sample that at least `share` (0 to 1) of all samples do not exceed (RFC 2330 section 11.3)."""
    if not 0 <= share <= 1:
        raise ValueError(f"a percentile's share is between 0 and 1, not {share}")
    ordered = sorted(samples)
    if not ordered:
        return None
    return ordered[max(0, math.ceil(share * len(ordered) - _ROUNDING) - 1)]


def weighted_percentile(samples: Sequence[float], weights: Sequence[float], share: float) -> float | None:
    """Return the percentile where each sample stands for `weights` of them: the seconds a queue had that depth, say."""
    if not 0 <= share <= 1:
        raise ValueError(f"a percentile's share is between 0 and 1, not {share}")
    if any(weight < 0 for weight in weights):
        raise ValueError("weights cannot be negative")
    pairs = sorted((sample, weight) for sample, weight in zip(samples, weights, strict=True) if weight > 0)
    total = math.fsum(weight for _, weight in pairs)
    passed = 0.0
    for sample, weight in pairs:
        passed += weight
        if passed >= share * total * (1 - _ROUNDING):
            return sample
    return pairs[-1][0] if pairs else None


def mean_of_known(values: Iterable[float | None]) -> float | None:
    """The mean of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def jain_index(values: Sequence[float]) -> float | None:
    """(sum x)^2 / (n * sum x^2) (Jain, Chiu, Hawe 1984); None where nothing was had by anybody."""
    _check(values)
    largest = max(values, default=0.0)
    if largest <= 0:
        return None
    scaled = [value / largest for value in values]  # so that no square overflows or vanishes
    return math.fsum(scaled) ** 2 / (len(values) * math.fsum(value * value for value in scaled))


def max_mean_ratio(values: Sequence[float]) -> float | None:
    """max / mean (MMR); None where nothing was carried."""
    _check(values)
    total = math.fsum(values)
    return max(values) * len(values) / total if total > 0 else None


def coefficient_of_variation(values: Sequence[float]) -> float | None:
    """Sample standard deviation over mean; None with fewer than two values or a mean that is not above 0."""
    if len(values) < 2:
        return None
    mean = statistics.fmean(values)
    return statistics.stdev(values) / mean if mean > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A metric over runs. `values` has None for a run in which it had no meaning; the rest is over the others."""

    values: tuple[float | None, ...]
    median: float | None
    minimum: float | None
    maximum: float | None
    cv: float | None
    """Sample standard deviation over mean; None with fewer than two values."""

    @property
    def runs(self) -> int:
        """Return how many runs have a value."""
        return sum(value is not None for value in self.values)


def summarise_runs(values: Iterable[float | None]) -> RunSummary:
    """One metric's value of each run. Of an even number of runs the median is the mean of the middle two (RFC 2330)."""
    every = tuple(values)
    known = [value for value in every if value is not None]
    if not all(map(math.isfinite, known)):
        raise ValueError("a run's value is not a finite number")
    return RunSummary(
        values=every,
        median=statistics.median(known) if known else None,
        minimum=min(known, default=None),
        maximum=max(known, default=None),
        cv=coefficient_of_variation(known),
    )


def summarise_metrics(runs: Sequence[Mapping[str, float | None]]) -> dict[str, RunSummary]:
    """Return every metric that any run has, in the order of their first appearance; a run without it counts as None."""
    names = dict.fromkeys(name for run in runs for name in run)
    return {name: summarise_runs(run.get(name) for run in runs) for name in names}


def _check(values: Sequence[float]) -> None:
    if any(value < 0 or not math.isfinite(value) for value in values):
        raise ValueError("a rate, a load or a time is negative or not a number")
