"""Pass, fail or invalid: trust checks first, then what was expected. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TypeVar

from testbed.base.metric import Better, MetricUnit
from testbed.record.catalogue import Selection, binding_limits, definition_of
from testbed.record.record import NOT_SIMULATED, Backend, ExpectationResult, Outcome, PointResult, Verdict
from testbed.run.schema.model import EXIT_METRIC, Expectation, Scalar, Within, is_point_of, names_key
from testbed.run.sweep.points import HasValues

_TRUSTED = {
    Backend.EMULATION: "the machine kept up",
    Backend.SIMULATION: "every packet is accounted for",
    Backend.FLOWS: "so is the whole band that packets would measure",
}
"""The finding of the trust checks where all is well."""


def evaluate_expectations(
    expectations: Iterable[Expectation], points: Sequence[PointResult]
) -> list[ExpectationResult]:
    """Each expectation against the median over runs of every point it is about. Without a measurement: invalid."""
    return [
        _evaluate(expectation, point, points)
        for expectation in expectations
        for point in points
        if is_point_of(point.values, expectation.where)
    ]


Valued = TypeVar("Valued", bound=HasValues)


def other_point(point: Valued, over: Mapping[str, Scalar], points: Sequence[Valued]) -> Valued | None:
    """The point that equals `point` but for the values of `over`."""
    changed = {key for key in point.values if any(names_key(one, key) for one in over)}
    rest = {key: value for key, value in point.values.items() if key not in changed}
    for other in points:
        same = all(other.values.get(key) == value for key, value in rest.items())
        if same and is_point_of(other.values, over):
            return other
    return None


def _judged(point: PointResult | None, metric: str) -> float | None:
    """Return what of a point is judged: the median of its runs, or their worst where one is enough."""
    found = None if point is None else next((item for item in point.metrics if item.name == metric), None)
    definition = definition_of(metric)
    if found is None or definition is None or not definition.every_run:
        return None if found is None else found.median
    return found.minimum if definition.better is Better.MORE else found.maximum


def _evaluate(expectation: Expectation, point: PointResult, points: Sequence[PointResult]) -> ExpectationResult:
    low, high = expectation.minimum, expectation.maximum
    metric = Selection(network=expectation.network, tenant=expectation.tenant).name(expectation.metric)
    measured = _judged(point, metric)
    name = metric
    if expectation.over:
        below = _judged(other_point(point, expectation.over, points), metric)
        measured = None if measured is None or not below else measured / below
        name = f"{name} over that of {_words(expectation.over)}"
    least, most = binding_limits(name, low, high)
    missing = measured is None
    if expectation.within is Within.ORACLE:
        said = next((item for item in point.predictions if item.metric == expectation.metric), None)
        if said is None:
            missing = True
        else:
            reach = expectation.tolerance * (abs(said.mean) if expectation.relative else 1.0)
            low, high = least, most = said.mean - reach, said.mean + reach
    band, doubt = (measured, measured), ""
    if point.twin is not None:
        doubt = "is not measured as flows, which have no packets"
        if measured is not None:
            band, doubt = _band(point, expectation, metric, measured, points)
    if missing or measured is None or None in band:
        outcome = Outcome.INVALID
        doubt = doubt or _not_simulated(expectation, point)
    else:
        sides = {_side(value, least, most) for value in band if value is not None}
        outcome = Outcome.INVALID if len(sides) > 1 else Outcome.FAIL if sides.pop() else Outcome.PASS
        if outcome is Outcome.INVALID:
            doubt = (
                f"is {_as_flows(name, measured, *band)}: the band of the flow level covers the limit"
                f" {_limit_in(band, least, most, name)}"
            )
    banded = point.twin is not None and measured is not None
    return ExpectationResult(
        metric=name,
        minimum=low,
        maximum=high,
        source=expectation.source,
        measured=measured,
        outcome=outcome,
        point=point.name,
        low=band[0] if banded else None,
        high=band[1] if banded else None,
        doubt=doubt,
    )


def _not_simulated(expectation: Expectation, point: PointResult) -> str:
    """Say that an expectation is about a network that was not watched, as one without ranks is not when simulated."""
    name = expectation.network
    watched = [{load.name for load in run.networks} for run in point.runs if run.networks]
    if not name or not watched or any(name in networks for networks in watched):
        return ""
    return f"{NOT_SIMULATED}: no rank is in the network {name}, whose traffic is that of real programs"


def _side(value: float, least: float | None, most: float | None) -> int:
    """Return 0 for a value within limits, -1 for one below them, and 1 for one above."""
    if least is not None and value < least:
        return -1
    return 1 if most is not None and value > most else 0


def _as_flows(name: str, measured: float, low: float | None, high: float | None) -> str:
    """Return a figure of flows with its band, in words."""
    return (
        f"{format_metric(name, measured)} as flows, and packets would have it between"
        f" {format_metric(name, low or 0.0)} and {format_metric(name, high or 0.0)}"
    )


_Band = tuple[float | None, float | None]


def _band(
    point: PointResult, expectation: Expectation, metric: str, measured: float, points: Sequence[PointResult]
) -> tuple[_Band, str]:
    """Return what packets would measure at least and at most, by the twins of flows, or why nobody knows."""
    mine = _ratios(point, metric)
    theirs = _ratios(other_point(point, expectation.over, points), metric) if expectation.over else (1.0, 1.0)
    if mine is None or theirs is None:
        failure = point.twin.failure if point.twin is not None else ""
        why = f": {failure}" if failure else ", which has no such figure"
        return (None, None), f"has no band from packets of its twin{why}"
    return (measured * mine[0] / theirs[1], measured * mine[1] / theirs[0] if theirs[0] > 0 else None), ""


def _ratios(point: PointResult | None, metric: str) -> tuple[float, float] | None:
    twin = None if point is None else point.twin
    found = None if twin is None else next((band for band in twin.bands if band.metric == metric), None)
    return None if found is None else (found.low, found.high)


def _limit_in(band: _Band, least: float | None, most: float | None, name: str) -> str:
    """Return the limit that lies within a band, as people read it."""
    inside = [limit for limit in (least, most) if limit is not None and (band[0] or 0.0) <= limit <= (band[1] or limit)]
    return " and ".join(format_metric(name, limit) for limit in inside)


def decide_verdict(
    points: Sequence[PointResult],
    expectations: Sequence[ExpectationResult],
    *,
    incomplete: str,
    tries: Sequence[str] = (),
    backend: Backend = Backend.EMULATION,
) -> Verdict:
    """Invalid beats fail: an expectation missed on an overrun machine says nothing.

    `tries` says of which points a later try counts; it stands behind the reasons.
    """
    doubts = [f"it did not run to its end: {incomplete}"] if incomplete else []
    for point in points:
        at = f"{point.name}, " if point.name else ""
        doubts += [
            f"{at}run {run.index}: {check.message}" for run in point.runs for check in run.checks if not check.ok
        ]
    failed = {item.point for item in expectations if item.metric == EXIT_METRIC and item.outcome is Outcome.FAIL}
    doubts += [
        f"{_place(item)} {item.doubt or 'could not be measured'}"
        for item in expectations
        if item.outcome is Outcome.INVALID and not item.left_out
        if item.point not in failed  # a program that fails leaves figures out
    ]
    left_out = [item for item in expectations if item.left_out]
    told = [f"{_place(item)} {item.doubt}" for item in left_out]
    if left_out and len(left_out) == len(expectations):
        doubts += told
    if doubts:
        return Verdict(outcome=Outcome.INVALID, reasons=[*doubts, *tries])
    missed = [_miss(item) for item in expectations if item.outcome is Outcome.FAIL]
    if missed:
        return Verdict(outcome=Outcome.FAIL, reasons=[*missed, *_failures(points, failed), *told, *tries])
    judged = len(expectations) - len(left_out)
    met = f"{judged} of {len(expectations)} expectations met" if expectations else "nothing was expected"
    return Verdict(outcome=Outcome.PASS, reasons=[f"{met}, and {_TRUSTED[backend]}", *told, *tries])


def _failures(points: Sequence[PointResult], failed: Container[str]) -> list[str]:
    """Say who of a program that failed has failed first, and the last line that it printed."""
    found = []
    for point in points:
        at = f"{point.name}, " if point.name else ""
        for run in point.runs:
            if point.name in failed and run.program is not None and run.program.failure:
                first = next((rank for rank in run.program.ranks if rank.rank == run.program.speaker), None)
                said = f": {first.last_lines[-1]}" if first is not None and first.last_lines else ""
                found.append(f"{at}run {run.index}: {run.program.failure}{said}")
    return found


def _place(item: ExpectationResult) -> str:
    return f"{item.metric} ({item.point})" if item.point else item.metric


def _miss(item: ExpectationResult) -> str:
    assert item.measured is not None
    judged, found = item.measured, format_metric(item.metric, item.measured)
    if item.low is not None:  # all of the band lies on one side
        judged, found = item.low, _as_flows(item.metric, item.measured, item.low, item.high)
    if item.minimum is not None and judged < item.minimum:
        bound, limit = "at least", item.minimum
    else:
        bound, limit = "at most", item.maximum or 0.0
    return f"{_place(item)} is {found}, expected {bound} {format_metric(item.metric, limit)}"


def format_metric(metric: str, value: float) -> str:
    """A value as people read it; one of no metric of ours (a ratio of two) as a plain number."""
    definition = definition_of(metric)
    match None if definition is None else definition.unit:
        case MetricUnit.SHARE:
            return f"{value:.1%}"
        case MetricUnit.BITS_PER_S:
            return f"{value / 1e9:.3f} Gbit/s"
        case MetricUnit.BYTES_PER_S:
            return f"{value / 1e9:.3f} GB/s"
        case MetricUnit.COUNT | MetricUnit.PACKETS:
            return f"{value:g}"
        case MetricUnit.SECONDS:
            return f"{value:.3f} s" if value >= 0.1 else f"{value * 1e3:.3f} ms"
        case MetricUnit.BYTES:
            return f"{value / 1e3:.1f} kB"
        case _:
            return f"{value:.3f}"


def _words(values: Mapping[str, Scalar]) -> str:
    return " ".join(f"{key}={value}" for key, value in values.items())
