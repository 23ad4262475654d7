"""Does a result depend on the time scale? The same points at k and at 2k, metric by metric. Pure.

What is a ratio or a share must not change; bytes must not either; times and rates are those of the lab and do.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.results import PointResult, ScaleComparison
from testbed.workload.metrics import CATALOGUE, MetricUnit

TOLERANCE = 0.10
"""Source: SHRiNK (Pan et al., INFOCOM 2003) predicts equality; what is left is granularity and noise."""
_INVARIANT = (MetricUnit.RATIO, MetricUnit.SHARE)
_SMALL = 0.02
"""Shares that differ by less than two points are equal, however small they are."""


def compare_scales(points: Sequence[PointResult], doubled: Sequence[PointResult]) -> list[ScaleComparison]:
    """Every scale-free headline metric of points that both have."""
    others = {point.name: point for point in doubled}
    found = []
    for point in points:
        other = others.get(point.name)
        if other is None:
            continue
        values = {metric.name: metric.median for metric in other.metrics}
        for metric in point.metrics:
            definition = CATALOGUE.get(metric.name)
            if definition is None or definition.emulation or not definition.headline:
                continue
            at_k, at_2k = metric.median, values.get(metric.name)
            if definition.unit not in _INVARIANT or at_k is None or at_2k is None:
                continue
            difference = abs(at_2k - at_k)
            largest = max(abs(at_k), abs(at_2k))
            relative = difference / largest if largest else 0.0
            small = definition.unit is MetricUnit.SHARE and difference <= _SMALL
            found.append(
                ScaleComparison(
                    point=point.name,
                    metric=metric.name,
                    k=point.lab.k,
                    at_k=at_k,
                    at_2k=at_2k,
                    difference=relative,
                    limit=TOLERANCE,
                    ok=small or relative <= TOLERANCE,
                )
            )
    return found
