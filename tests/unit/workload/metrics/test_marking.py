"""WRED's curve, its mean between two depths, and how far marks are from it."""

from __future__ import annotations

import pytest

from testbed.workload.metrics.links import LEAST_PACKETS, ideal_share, marking_error, marking_probability
from testbed.workload.metrics.run_samples import MarkedPackets


@pytest.mark.parametrize(("depth", "share"), [(0, 0), (100, 0), (200, 0.1), (299, 0.199), (300, 1), (1000, 1)])
def test_the_curve_begins_at_kmin_and_jumps_at_kmax(depth: float, share: float) -> None:
    assert marking_probability(depth, 100, 300, 0.2) == pytest.approx(share)


def test_a_step_marks_above_it() -> None:
    assert marking_probability(100, 100, 100, 1.0) == 0
    assert marking_probability(101, 100, 100, 1.0) == 1


@pytest.mark.parametrize(
    ("low", "high", "share"),
    [
        (0, 100, 0.0),
        (50, 150, 0.0125),  # half of it flat, half from 0 to 0.05
        (100, 300, 0.1),
        (300, 400, 1.0),
        (250, 350, (0.175 + 1) / 2),
    ],
)
def test_the_mean_between_two_depths(low: float, high: float, share: float) -> None:
    assert ideal_share(low, high, kmin_bytes=100, kmax_bytes=300, pmax=0.2, slack_bytes=-100) == pytest.approx(share)


@pytest.mark.parametrize(("pmax", "judged"), [(0.2, [True, False, False, True]), (1.0, [True] * 4)])
def test_bins_next_to_a_step_are_not_judged(pmax: float, judged: list[bool]) -> None:
    found = [
        ideal_share(low, low + 50, kmin_bytes=100, kmax_bytes=300, pmax=pmax, slack_bytes=20)
        for low in (200, 250, 300, 350)
    ]
    assert [share is not None for share in found] == judged


def error_of(packets: list[int], marked: list[int], ideal: list[float | None]) -> float | None:
    return marking_error([MarkedPackets(packets=packets, marked=marked, ideal=ideal)])


def test_the_worst_bin_counts_if_it_has_packets_enough() -> None:
    many, few = 10 * LEAST_PACKETS, LEAST_PACKETS - 1
    assert error_of([many, many, few], [0, many // 10, few], [0.0, 0.13, 0.0]) == pytest.approx(0.03)
    assert error_of([many], [many], [None]) is None
    assert error_of([few], [0], [1.0]) is None
    with pytest.raises(ValueError, match="2 of 1"):
        error_of([1], [2], [0.0])
