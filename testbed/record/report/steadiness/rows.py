"""From the runs of scenarios to a row for each expectation: how its figures lie in its band.

Chances come from few figures by a predictive estimate, and by a bound that supposes nothing.
Sources: Meeker, Hahn and Escobar, Statistical Intervals, 2nd edition, Wiley 2017, chapter 4 (the next observation of a
normal distribution lies around the mean of n by Student's t with n - 1 degrees of freedom, times s sqrt(1 + 1/n)), and
chapter 6 for the bound of Clopper and Pearson (Biometrika 26, 1934); Abramowitz and Stegun, 26.7.3 and 26.7.4, for
Student's t in closed form.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.base.rows import column
from testbed.record.catalogue import binding_limits
from testbed.record.record import ExpectationResult, Outcome
from testbed.record.steady import Steadiness, SteadyRun


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyRow:
    """One expectation of one scenario. Figures are of valid runs; None: too few, or no limit that can be missed."""

    scenario: str
    backend: str
    metric: str
    point: str
    minimum: float | None = column("min", text=lambda row: _rounded(row.minimum))
    maximum: float | None = column("max", text=lambda row: _rounded(row.maximum))
    count: int = column("n")
    mean: float | None = column(value=lambda row: _rounded(row.mean))
    stdev: float | None = column(value=lambda row: _rounded(row.stdev))
    least: float | None = column(value=lambda row: _rounded(row.least))
    most: float | None = column(value=lambda row: _rounded(row.most))
    distance: float | None = column("distance_sd", value=lambda row: _finite(row.distance))
    """The distance of the mean from the nearest limit, in standard deviations; negative beyond it; infinite
    without any."""
    chance: float | None = column(value=lambda row: _rounded(row.chance))
    """The chance that the next run fails, by the predictive estimate."""
    fails: int
    fails_at_most: float | None = column(value=lambda row: _rounded(row.fails_at_most))
    """Upper bound of the chance of a fail by Clopper and Pearson, at 95 %."""
    invalid: int = column(value=lambda row: f"{row.invalid} of {row.runs}")
    """Runs of the scenario that were invalid, of all points."""
    runs: int = column(hidden=True)
    source: str = column(hidden=True)
    """The source of the band, in the scenario's words."""


def steady_rows(found: Sequence[Steadiness]) -> list[SteadyRow]:
    """Return the rows of all scenarios; several measurements of one scenario on one backend count together."""
    runs: defaultdict[tuple[str, str], list[SteadyRun]] = defaultdict(list)
    for one in found:
        runs[one.scenario, one.backend.value] += one.runs
    return [
        _row(scenario, backend, key, figures, some)
        for (scenario, backend), some in runs.items()
        for key, figures in _figures(some).items()
    ]


def chance_of_any(rows: Sequence[SteadyRow]) -> Mapping[tuple[str, str], float]:
    """Return, by scenario and backend, the chance that any expectation fails: at most the sum of their chances.

    Of a figure that was measured once, or never, nothing is known: its chance counts as 1.
    """
    sums: defaultdict[tuple[str, str], float] = defaultdict(float)
    for row in rows:
        sums[row.scenario, row.backend] += 1.0 if row.chance is None else row.chance
    return {key: min(1.0, total) for key, total in sums.items()}


_Key = tuple[str, str, str]
"""An expectation: its metric, point and source."""


def _figures(runs: Sequence[SteadyRun]) -> dict[_Key, list[ExpectationResult]]:
    """The figures of each expectation that can be trusted; a point of a broken check has none, nor has a run cut short.

    Whatever is divided by a point that cannot be trusted is left out with all of its run.
    """
    found: dict[_Key, list[ExpectationResult]] = {}
    for run in runs:
        for item in run.expectations:
            figures = found.setdefault((item.metric, item.point, item.source), [])
            relative = " over that of " in item.metric
            doubtful = bool(run.untrusted) if relative else item.point in run.untrusted
            if item.measured is not None and item.outcome is not Outcome.INVALID and not doubtful:
                figures.append(item)
    return found


def _row(
    scenario: str, backend: str, key: _Key, figures: Sequence[ExpectationResult], runs: Sequence[SteadyRun]
) -> SteadyRow:
    metric, point, source = key
    values = [item.measured for item in figures if item.measured is not None]
    limits = [binding_limits(metric, item.minimum, item.maximum) for item in figures]
    above = [value - low for value, (low, _) in zip(values, limits, strict=True) if low is not None]
    below = [high - value for value, (_, high) in zip(values, limits, strict=True) if high is not None]
    stdev = statistics.stdev(values) if len(values) > 1 else None
    chances = [chance for margins in (above, below) if (chance := chance_below_zero(margins)) is not None]
    fails = sum(item.outcome is Outcome.FAIL for item in figures)
    return SteadyRow(
        scenario=scenario,
        backend=backend,
        metric=metric,
        point=point,
        minimum=_typical([one.minimum for one in figures if one.minimum is not None]),
        maximum=_typical([one.maximum for one in figures if one.maximum is not None]),
        count=len(values),
        mean=statistics.fmean(values) if values else None,
        stdev=stdev,
        least=min(values, default=None),
        most=max(values, default=None),
        distance=min((_distance(margins) for margins in (above, below) if len(margins) > 1), default=None),
        chance=min(1.0, sum(chances)) if chances else None,
        fails=fails,
        fails_at_most=clopper_pearson_upper(fails, len(values)) if values else None,
        invalid=sum(run.verdict is Outcome.INVALID for run in runs),
        runs=len(runs),
        source=source,
    )


def _distance(margins: Sequence[float]) -> float:
    mean, spread = statistics.fmean(margins), statistics.stdev(margins)
    if spread:
        return mean / spread
    return math.inf if mean >= 0 else -math.inf


def _typical(limits: Sequence[float]) -> float | None:
    """The limit, which an oracle gives anew for each run."""
    return statistics.median(limits) if limits else None


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else _rounded(value)


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


CONFIDENCE = 0.95
"""The confidence of the one-sided bound."""
_STEPS = 60
"""Steps of a bisection: the bound is exact to 1e-18."""


def student_upper_tail(t: float, degrees: int) -> float:
    """Return the probability that Student's t with so many degrees of freedom is above `t`."""
    if degrees < 1:
        raise ValueError(f"{degrees} degrees of freedom")
    if t < 0:
        return 1 - student_upper_tail(-t, degrees)
    theta = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(theta), math.cos(theta)
    if degrees % 2:
        term, total = cosine, cosine if degrees > 1 else 0.0
        for number in range(3, degrees - 1, 2):
            term *= cosine * cosine * (number - 1) / number
            total += term
        within = 2 / math.pi * (theta + sine * total)
    else:
        term = total = 1.0
        for number in range(2, degrees - 1, 2):
            term *= cosine * cosine * (number - 1) / number
            total += term
        within = sine * total
    return max(0.0, (1 - within) / 2)


def chance_below_zero(margins: Sequence[float]) -> float | None:
    """Return the chance that the next margin is negative, by the predictive distribution of the normal; None for fewer
    than two. Margins that are all the same are supposed to stay so."""
    if len(margins) < 2:
        return None
    mean, spread = statistics.fmean(margins), statistics.stdev(margins)
    if spread == 0:
        return float(mean < 0)
    return student_upper_tail(mean / (spread * math.sqrt(1 + 1 / len(margins))), len(margins) - 1)


def clopper_pearson_upper(events: int, trials: int, confidence: float = CONFIDENCE) -> float:
    """Return the largest probability of an event that `events` of `trials` still allow, at this confidence, one-sided.

    0 of 10 allow 26 %, 0 of 600 half a percent: that is what a handful of runs proves without supposing a distribution.
    """
    if not 0 <= events <= trials or not trials:
        raise ValueError(f"{events} of {trials}")
    if events == trials:
        return 1.0
    low, high = events / trials, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        at_most = sum(
            math.comb(trials, count) * middle**count * (1 - middle) ** (trials - count) for count in range(events + 1)
        )
        low, high = (middle, high) if at_most > 1 - confidence else (low, middle)
    return high
