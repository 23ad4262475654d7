"""Bands: how far packets lie from flows, told from a few runs of both on a twin.

Three seeds give three ratios of a metric, packets over flows. The 5th and the 95th percentile of the ratio of a further
run follow from their mean and spread by Student's t: with s the standard deviation of n ratios, they lie t s sqrt(1 +
1/n) from the mean (Hahn and Meeker, "Statistical Intervals", section 4.8, a prediction interval for one future value).
Runs without anything random have no spread; a band is never narrower than what is left out of the flow level anyway.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from testbed.record.record import MetricBand, RunResult

LEAST_HALF_WIDTH = 0.01
"""A band reaches so far from its middle at least, as a share: events that are taken together, and rounding."""
_T_95 = {1: 6.314, 2: 2.920, 3: 2.353, 4: 2.132, 5: 2.015, 6: 1.943, 7: 1.895, 8: 1.860, 9: 1.833}
"""The 95th percentile of Student's t by degrees of freedom."""


def metric_bands(flows: Sequence[RunResult], packets: Sequence[RunResult]) -> list[MetricBand]:
    """Return the band of each metric that all runs of both have; runs of one place have the same seed."""
    ours, theirs = [run.metrics for run in flows], [run.metrics for run in packets]
    found = []
    for name in ours[0] if ours else ():
        ratios = [_ratio(a, b, name) for a, b in zip(ours, theirs, strict=True)]
        known = [ratio for ratio in ratios if ratio is not None]
        if known and len(known) == len(ratios):
            low, high = band_of(known)
            found.append(MetricBand(metric=name, low=low, high=high, ratios=known))
    return found


def _ratio(flows: Mapping[str, float | None], packets: Mapping[str, float | None], name: str) -> float | None:
    a, b = flows.get(name), packets.get(name)
    if a is None or b is None:
        return None
    if a == b:
        return 1.0
    return b / a if a > 0 else None


def band_of(ratios: Sequence[float]) -> tuple[float, float]:
    """Return the 5th and the 95th percentile of a further ratio."""
    mean, count = statistics.fmean(ratios), len(ratios)
    spread = statistics.stdev(ratios) if count > 1 else 0.0
    reach = _T_95[min(max(1, count - 1), max(_T_95))] * spread * math.sqrt(1 + 1 / count)
    half = max(reach, LEAST_HALF_WIDTH * mean)
    return max(0.0, mean - half), mean + half
