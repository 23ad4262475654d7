"""Is a difference between two handfuls of runs more than chance? Rank tests that are exact for few runs.

The test is that of Wilcoxon, Mann and Whitney: two-sided, by the exact distribution of the rank sum over all ways in
which the runs could have fallen, with mid-ranks for ties (Lehmann, Nonparametrics, 1975, sections 1.2 and 1.4). It
assumes nothing of how values are distributed. Several metrics tested at once are corrected by Holm's method (Holm, A
simple sequentially rejective multiple test procedure, 1979).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

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
    correction.
    """
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
