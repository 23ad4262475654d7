"""`run --prove-scale`: the same points once more at twice the time scale; what does not depend on it must agree.

Everything that carries over to the real fabric is a share or a ratio; where one changes when the same lab runs half as
fast, it is the machine that was measured and not the fabric (k-invariance).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from testbed.base.errors import ScenarioError
from testbed.base.metric import MetricUnit
from testbed.record.catalogue import CATALOGUE
from testbed.record.record import Outcome, PointResult, Record, ScaleComparison, Verdict
from testbed.run.schema.model import Scenario
from testbed.run.sweep.points import SCALE_KEY, Point

LIMIT = 0.10
"""Scaled figures must agree within 5 to 10 % (workloads measured at k and 2k on two cores)."""
LEAST = 0.02
"""Two figures below are both as good as nothing: a rare event, such as a retransmission, has no steady share."""
ALWAYS = tuple(metric.name for metric in CATALOGUE.values() if metric.proves_scale)
"""Compared wherever they were measured, beside what the scenario expects something of."""


def check_provable(scenario: Scenario) -> None:
    """Raise `ScenarioError` for a scenario whose figures depend on the scale by its own words."""
    if scenario.faults:
        raise ScenarioError(
            "--prove-scale: the times of faults are lab time, so that they last half as long at twice the scale",
            hint="prove the scale of the same traffic without faults",
        )
    if any(key == SCALE_KEY for key in scenario.matrix):
        raise ScenarioError("--prove-scale: the matrix of this scenario changes the scale itself")


def at_twice_the_scale(points: Sequence[Point], record: Record) -> tuple[Point, ...]:
    """The points that the record has, each with twice the k that it ran at."""
    k = {result.name: result.lab.k for result in record.points}
    return tuple(
        replace(point, scenario=scaled_to(point.scenario, 2 * float(k[point.name])))
        for point in points
        if point.name in k
    )


def compare_scales(record: Record, slower: Record) -> list[ScaleComparison]:
    """Every scale-free metric that both records have, point by point."""
    expected = [item["metric"] for item in record.scenario.expect]
    names = [name for name in dict.fromkeys((*expected, *ALWAYS)) if _is_scale_free(name)]
    others = {result.name: result for result in slower.points}
    return [
        comparison
        for result in record.points
        if result.name in others
        for name in names
        if (comparison := _compare(result, others[result.name], name)) is not None
    ]


def with_proof(record: Record, proof: list[ScaleComparison]) -> Record:
    """The record with what was found; invalid where figures depend on the scale."""
    apart = [item for item in proof if not item.ok]
    if not apart:
        return replace(record, scale_proof=proof)
    reasons = [
        f"{item.metric}{f' at {item.point}' if item.point else ''} is {item.at_k:.3g} at k = {item.k:g} and"
        f" {item.at_2k:.3g} at twice that: they differ by {item.difference:.0%}, more than {item.limit:.0%}"
        for item in apart
    ]
    earlier = record.verdict.reasons if record.verdict.outcome is Outcome.INVALID else []
    verdict = Verdict(outcome=Outcome.INVALID, reasons=[*earlier, *reasons])
    return replace(record, scale_proof=proof, verdict=verdict)


def scaled_to(scenario: Scenario, k: float) -> Scenario:
    """Return the scenario on the same topology at another time scale."""
    topology = replace(scenario.topology, set={**scenario.topology.set, SCALE_KEY: k})
    return replace(scenario, topology=topology)


def _is_scale_free(name: str) -> bool:
    metric = CATALOGUE.get(name)
    return metric is not None and metric.unit in (MetricUnit.SHARE, MetricUnit.RATIO) and not metric.emulation


def _compare(result: PointResult, other: PointResult, name: str) -> ScaleComparison | None:
    at_k, at_2k = _median(result, name), _median(other, name)
    if at_k is None or at_2k is None:
        return None
    larger = max(abs(at_k), abs(at_2k))
    difference = abs(at_k - at_2k) / larger if larger >= LEAST else 0.0
    return ScaleComparison(
        point=result.name,
        metric=name,
        k=result.lab.k,
        at_k=at_k,
        at_2k=at_2k,
        difference=difference,
        limit=LIMIT,
        ok=difference <= LIMIT,
    )


def _median(result: PointResult, name: str) -> float | None:
    found = next((item.median for item in result.metrics if item.name == name), None)
    return None if found is None else float(found)
