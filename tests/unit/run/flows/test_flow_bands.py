"""Bands and what they do to verdicts: one only where all of the band lies on one side of the limit."""

from typing import Any

import pytest

from testbed.record.record import Backend, LabSummary, MetricBand, MetricSummary, Outcome, PacketTwin, PointResult
from testbed.run.flows.bands import LEAST_HALF_WIDTH, band_of
from testbed.run.schema.model import Expectation
from testbed.run.sweep.verdict import decide_verdict, evaluate_expectations

LAB = LabSummary(
    name="x", design="", k=1, k_auto=False, hosts=2, nics=2, switches={}, links=1, nic_bps=1, nic_real_bps=1,
    uplink_bps=None, uplink_real_bps=None, mtu_bytes=1, routing="",
)  # fmt: skip


def point(jct: float | None, *, low: float = 1.0, high: float = 1.0, failure: str = "", **values: Any) -> PointResult:
    summary = MetricSummary(
        name="jct", title="", unit="s", definition="", headline=True, ideal=None, values=[jct], median=jct,
        minimum=jct, maximum=jct, cv=None,
    )  # fmt: skip
    bands = [] if failure else [MetricBand(metric="jct", low=low, high=high, ratios=[low, high])]
    return PointResult(
        name=" ".join(f"{key}={value}" for key, value in values.items()),
        values=values,
        lab=LAB,
        transport={},
        workload={},
        runs=[],
        metrics=[summary],
        twin=PacketTwin(words="the point itself", nics=2, seeds=[1, 2, 3], bands=bands, failure=failure),
    )


def judged(points: list[PointResult], **limits: Any) -> tuple[Outcome, str]:
    expectations = [Expectation(metric=limits.pop("metric", "jct"), **limits)]
    found = evaluate_expectations(expectations, points)
    verdict = decide_verdict(points, found, incomplete="", backend=Backend.FLOWS)
    return verdict.outcome, "; ".join(verdict.reasons)


def test_the_band_of_three_seeds_is_that_of_students_t() -> None:
    """Mean 1.1, standard deviation 0.1: 2.920 * 0.1 * sqrt(4/3) each way."""
    low, high = band_of([1.0, 1.1, 1.2])
    assert (low, high) == pytest.approx((1.1 - 0.33717, 1.1 + 0.33717), abs=1e-4)
    assert band_of([1.0, 1.0, 1.0]) == pytest.approx((1 - LEAST_HALF_WIDTH, 1 + LEAST_HALF_WIDTH))
    assert band_of([0.1, 0.1, 1.0])[0] == 0.0


def test_a_verdict_is_one_only_where_the_whole_band_lies_on_one_side() -> None:
    assert judged([point(1.0, low=0.9, high=1.2)], maximum=1.25)[0] is Outcome.PASS
    assert judged([point(1.0, low=0.9, high=1.2)], maximum=0.8)[0] is Outcome.FAIL
    outcome, why = judged([point(1.0, low=0.9, high=1.2)], maximum=1.1)
    assert outcome is Outcome.INVALID
    assert why == (
        "jct is 1.000 s as flows, and packets would have it between 0.900 s and 1.200 s: the band of the flow level"
        " covers the limit 1.100 s"
    )
    assert judged([point(1.0, low=0.9, high=1.2)], minimum=0.95, maximum=2.0)[0] is Outcome.INVALID
    assert judged([point(1.0, low=0.9, high=1.2)], minimum=0.5, maximum=2.0)[0] is Outcome.PASS


def test_a_band_that_covers_all_that_is_allowed_is_judged_by_nobody() -> None:
    outcome, why = judged([point(1.0, low=0.8, high=1.3)], minimum=0.9, maximum=1.1)
    assert outcome is Outcome.INVALID
    assert "covers the limit 0.900 s and 1.100 s" in why


def test_what_is_missed_by_the_band_alone_says_so() -> None:
    outcome, why = judged([point(1.0, low=1.2, high=1.4)], maximum=1.1)
    assert outcome is Outcome.FAIL
    assert why == (
        "jct is 1.000 s as flows, and packets would have it between 1.200 s and 1.400 s, expected at most 1.100 s"
    )
    outcome, why = judged([point(1.0, low=0.6, high=0.8)], minimum=0.9)
    assert outcome is Outcome.FAIL
    assert why.endswith("expected at least 0.900 s")


def test_a_ratio_of_two_points_has_the_bands_of_both() -> None:
    points = [point(2.0, low=0.9, high=1.1, mode="a"), point(1.0, low=0.8, high=1.0, mode="b")]
    found = evaluate_expectations(
        [Expectation(metric="jct", where={"mode": "a"}, over={"mode": "b"}, minimum=1.5)], points
    )
    assert (found[0].low, found[0].high) == pytest.approx((1.8, 2.75))
    assert found[0].outcome is Outcome.PASS


def test_without_packets_or_a_figure_nothing_is_judged() -> None:
    outcome, why = judged([point(1.0, failure="there is none: no design")], maximum=2.0)
    assert outcome is Outcome.INVALID
    assert why == "jct has no band from packets of its twin: there is none: no design"
    outcome, why = judged([point(1.0)], metric="drops", maximum=0)
    assert outcome is Outcome.INVALID
    assert why == "drops is not measured as flows, which have no packets"
