"""The fluid model of DCQCN against what its papers say of it, and against itself: the fixed point stands still."""

from dataclasses import replace

import numpy as np
import pytest
from dcqcn_fluid import DcqcnFluid

from testbed.protocols.congestion.dcqcn import PARAMETER_SETS

PACKET_BYTES = 1000
LONG = (5_000, 2_000_000, 0.1)
"""The paper's line, 1 % at 200 KB, drawn on: of many flows the fixed point is above 200 KB."""


def paper(flows: int, **changes: float) -> DcqcnFluid:
    """Section 3 of the CoNEXT paper: 40 Gbit/s, packets of 1 KB, and the parameters of the SIGCOMM paper."""
    model = DcqcnFluid.of(
        PARAMETER_SETS["paper"], flows=flows, capacity_bps=40e9, packet_bytes=PACKET_BYTES, curve=LONG
    )
    return replace(model, **changes)


@pytest.mark.parametrize("flows", [1, 2, 10, 64])
def test_at_the_fixed_point_both_sides_of_the_equation_are_equal(flows: int) -> None:
    """Equation (11), with its terms written out."""
    model = paper(flows)
    p = model.fixed_point().marking
    rate = 40e9 / 8 / PACKET_BYTES / flows
    tau, alpha_s, timer, counter, f = 50e-6, 55e-6, 55e-6 * rate, 10e6 / PACKET_BYTES, 5
    a, alpha = 1 - (1 - p) ** (tau * rate), 1 - (1 - p) ** (alpha_s * rate)
    b, d = p / ((1 - p) ** -counter - 1), p / ((1 - p) ** -timer - 1)
    c, e = b * (1 - p) ** (f * counter), d * (1 - p) ** (f * timer)
    additive = 40e6 / 8 / PACKET_BYTES
    assert a * a * alpha / ((b + d) * (c + e)) == pytest.approx(tau**2 * additive * rate, rel=1e-6)


@pytest.mark.parametrize("flows", [2, 4, 8, 16])
def test_the_approximation_is_near_and_above(flows: int) -> None:
    """It leaves out that increases after F are rarer, which is a fifth to a third of p*."""
    model = paper(flows)
    assert 1.1 < model.approximate_marking() / model.fixed_point().marking < 1.4
    slow = paper(flows, additive_bps=40e3)
    assert slow.approximate_marking() / slow.fixed_point().marking == pytest.approx(1.0, abs=0.05)


def test_the_queue_follows_from_the_marking_and_the_rates_from_the_flows() -> None:
    point = paper(10).fixed_point()
    assert point.queue_bytes == pytest.approx(5_000 + point.marking / 0.1 * 1_995_000)
    assert point.rate_bps == 4e9 and point.target_bps > point.rate_bps
    assert 0 < point.cnp_share < point.alpha < 1, "an interval of alpha is longer than one of CNPs"


def test_more_flows_need_more_marks_and_less_increase_fewer() -> None:
    marks = [paper(flows).fixed_point().marking for flows in (1, 2, 4, 8, 16, 32)]
    assert marks == sorted(marks)
    assert paper(8, additive_bps=10e6).fixed_point().marking < paper(8).fixed_point().marking


@pytest.mark.parametrize(
    ("flows", "delay_us", "stable"),
    [(2, 4, True), (10, 4, True), (64, 4, True), (2, 85, True), (10, 85, False), (64, 85, True), (2, 100, False)],
)
def test_with_a_long_delay_few_and_many_flows_are_stable_and_ten_are_not(
    flows: int, delay_us: float, stable: bool
) -> None:
    """Section 3: the phase margin is not monotonic in N. The roots of the linearised model say the same."""
    model = paper(flows)
    assert (model.phase_margin_degrees(delay_us / 1e6) > 0) is stable
    assert (model.growth_per_s(delay_us / 1e6) < 0) is stable


def test_a_flatter_line_and_a_smaller_increase_stabilise() -> None:
    """Section 3: what to do about it."""
    margin = paper(10).phase_margin_degrees(85e-6)
    assert paper(10, kmax_bytes=16_000_000.0).phase_margin_degrees(85e-6) > margin + 5
    assert paper(10, additive_bps=10e6).phase_margin_degrees(50e-6) > paper(10).phase_margin_degrees(50e-6)


@pytest.mark.parametrize(("delay_us", "settles"), [(4, True), (300, False)])
def test_over_time_the_model_goes_where_its_fixed_point_and_roots_say(delay_us: float, settles: bool) -> None:
    model = paper(10)
    point = model.fixed_point()
    course = model.integrate(np.linspace(1e9, 7e9, 10), delay_s=delay_us / 1e6, seconds=0.08, step_s=4e-6)
    late = course.times_s > 0.06
    queue, rates = course.queue_bytes[late], course.rates_bps[late]
    assert (model.growth_per_s(delay_us / 1e6) < 0) is settles
    if settles:
        assert queue.mean() == pytest.approx(point.queue_bytes, rel=0.05) and queue.std() < 0.05 * queue.mean()
        assert np.allclose(rates[-1], 4e9, rtol=0.02), "of flows that began at 1 to 7 Gbit/s"
    else:
        assert queue.std() > 0.3 * queue.mean()


@pytest.mark.parametrize("name", [name for name in PARAMETER_SETS if name != "paper"])
def test_it_is_not_a_model_of_nics(name: str) -> None:
    with pytest.raises(ValueError, match="the reaction point of the paper"):
        DcqcnFluid.of(PARAMETER_SETS[name], flows=2, capacity_bps=40e9, packet_bytes=1000, curve=LONG)


@pytest.mark.parametrize("changes", [{"flows": 0}, {"kmin_bytes": 3_000_000.0}, {"additive_bps": 0.0}])
def test_parameters_without_a_meaning_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        replace(paper(2), **changes)  # type: ignore[arg-type]
