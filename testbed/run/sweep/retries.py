"""Which points of a sweep are run once more because the machine did not keep up, and at which time scale.

A point is invalid where a trust check of one of its runs is broken. What was expected has no say in it: a run that
failed in good order is a result. Where k was chosen by the machine, the next try is at a larger one, as large as the
broken checks ask for; where the file gives k, it is at the same. Points whose figures are divided by each other (`over`
of an expectation) stay at one k, so the others of such a group are run again with an invalid one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from testbed.lab.core.plan.scale import round_down_digit, round_up_digit
from testbed.record.record import EarlierTry, PointResult
from testbed.run.schema.model import Expectation, TopologyRef, is_point_of
from testbed.run.sweep.points import Point
from testbed.run.sweep.scale_proof import scaled_to
from testbed.run.sweep.verdict import other_point

LargerK = Callable[[TopologyRef, float], float | None]
"""The k that the lab of a topology may have where so large a one is wanted; None where its k cannot be changed."""

LEAST_FACTOR = 1.5
"""A next try that is hardly slower would hardly be another one."""
SATURATED_BUSY, SATURATED_FACTOR = 0.97, 2.5
"""If every CPU was busy all the time, nobody knows how much was asked of them."""
TARGET_BUSY = 0.65
"""The share of all CPUs that the next try is to keep busy; trust checks allow 90 %."""
USABLE_LIMIT = 0.8
"""The share of its time limit that a slower try may be expected to take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """A point that is run again: `k` is its new time scale, None for the one that it has. `why` is for people."""

    point: Point
    k: float | None
    why: str

    @property
    def announcement(self) -> str:
        """Say to who watches what is run again, at which k, and why."""
        at = "" if self.k is None else f" at k = {self.k:g}"
        return f"{self.point.name} again{at}: {self.why}".lstrip()

    @property
    def again(self) -> Point:
        """The point as it is run again."""
        return self.point if self.k is None else replace(self.point, scenario=scaled_to(self.point.scenario, self.k))


def reasons_of(result: PointResult) -> list[str]:
    """Return why a point cannot be trusted: the messages of all broken checks of its runs; empty for a valid one."""
    return [f"run {run.index}: {check.message}" for run in result.runs for check in run.checks if not check.ok] + [
        f"run {run.index} did not end" for run in result.runs if not run.complete
    ]


def asked_factor(result: PointResult) -> float:
    """Return by how much slower the broken checks ask the lab to be.

    A lab's share of the CPU falls as k grows. For checks other than that of the CPU the least is taken, since what they
    measure is no share.
    """
    factor = LEAST_FACTOR
    for run in result.runs:
        for check in run.checks:
            if check.name == "cpu" and not check.ok:
                saturated = check.value >= SATURATED_BUSY
                factor = max(factor, SATURATED_FACTOR if saturated else check.value / TARGET_BUSY)
    return factor


def plan_retries(
    points: Sequence[Point], results: Mapping[str, PointResult], expect: Sequence[Expectation], larger_k: LargerK
) -> list[Retry]:
    """Return what is to be run again, in the order of the points, after each has been run; nothing where all is valid.

    `results` are those of the points by name. Points that get another k all get the same.
    """
    invalid = {
        point.name
        for point in points
        if point.name in results
        and reasons_of(results[point.name])
        and len(results[point.name].earlier_tries) < point.scenario.repeat.retries
    }
    wanted = {name: results[name].lab.k * asked_factor(results[name]) for name in invalid if results[name].lab.k_auto}
    again = invalid | _with_partners(set(wanted), list(results.values()), expect)
    k = round_up_digit(max(wanted.values())) if wanted else 0.0
    k = min([k, *(_longest_k(point, results[point.name]) for point in points if point.name in again)])
    found = []
    for point in points:
        if point.name in again:
            result = results[point.name]
            new = larger_k(point.topology, k) if result.lab.k_auto and k > result.lab.k else None
            if point.name in invalid:
                found.append(Retry(point=point, k=new, why=reasons_of(result)[0]))
            elif new is not None:
                found.append(Retry(point=point, k=new, why="it is compared with a point that is run at another k"))
    return found


def taking_over(result: PointResult, earlier: PointResult, why: str) -> PointResult:
    """Return the result of a further try, which counts, with the try before it kept in it."""
    kept = EarlierTry(lab=earlier.lab, runs=earlier.runs, metrics=earlier.metrics, reasons=reasons_of(earlier) or [why])
    lab = replace(result.lab, k_auto=earlier.lab.k_auto)
    return replace(result, lab=lab, earlier_tries=[*earlier.earlier_tries, kept])


def tries_told(results: Sequence[PointResult]) -> list[str]:
    """Say of each point that was run more than once which try counts, and why there was another."""
    said = []
    for result in results:
        if result.earlier_tries:
            last = result.earlier_tries[-1]
            number = len(result.earlier_tries) + 1
            at = f"{result.name}, " if result.name else ""
            slower = f" at k = {last.lab.k:g}" if last.lab.k != result.lab.k else ""
            said.append(
                f"{at}try {number} at k = {result.lab.k:g} counts: try {number - 1}{slower} did not, {last.reasons[0]}"
            )
    return said


def _longest_k(point: Point, result: PointResult) -> float:
    """Return the largest k at which a point's runs are expected to end in their time limit; infinite without one."""
    workload = point.scenario.workload
    longest_s = max((run.elapsed_s for run in result.runs if run.complete), default=0.0)
    if workload.duration is not None or not longest_s:
        return math.inf
    return round_down_digit(result.lab.k * USABLE_LIMIT * workload.time_limit.seconds / longest_s)


def _with_partners(names: set[str], results: Sequence[PointResult], expect: Sequence[Expectation]) -> set[str]:
    """Return the names with those of all points whose figures theirs are divided by, or that are divided by theirs."""
    pairs = [
        (result.name, other.name)
        for item in expect
        if item.over
        for result in results
        if is_point_of(result.values, item.where) and (other := other_point(result, item.over, results)) is not None
    ]
    found = set(names)
    while grown := {name for pair in pairs if found.intersection(pair) for name in pair} - found:
        found |= grown
    return found
