"""Chances of figures, from few of them: a predictive estimate, and a bound that supposes nothing.

Sources: Meeker, Hahn and Escobar, Statistical Intervals, 2nd edition, Wiley 2017, chapter 4 (the next observation of a
normal distribution lies around the mean of n by Student's t with n - 1 degrees of freedom, times s sqrt(1 + 1/n)), and
chapter 6 for the bound of Clopper and Pearson (Biometrika 26, 1934); Abramowitz and Stegun, 26.7.3 and 26.7.4, for
Student's t in closed form.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

CONFIDENCE = 0.95
"""Of the one-sided bound."""
_STEPS = 60
"""Of a bisection: the bound is exact to 1e-18."""


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
    than two. Margins that are all the same are supposed to stay so.
    """
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
