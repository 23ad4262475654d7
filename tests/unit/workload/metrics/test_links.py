"""Entropy of paths, reordering, times after an event, and marking curves."""

import math

import pytest

from testbed.workload.metrics.links import LEAST_PACKETS, hill_number, ideal_share, marking_error, marking_probability
from testbed.workload.metrics.reordering import reorder_buffer, reordering_distance, reordering_extent
from testbed.workload.metrics.run_samples import MarkedPackets
from testbed.workload.metrics.timeline import (
    blackhole_time_rate,
    convergence_time,
    dip_depth,
    rate_before,
    recovery_time,
)


def test_effective_paths_count_what_is_used() -> None:
    assert hill_number([5, 0, 0]) == pytest.approx(1)
    assert hill_number([1] * 16) == pytest.approx(16)
    assert hill_number([3, 1]) == pytest.approx(math.exp(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25))))
    assert hill_number([0, 0]) is None


def test_reordering_as_in_rfc_4737() -> None:
    # Packet 3 comes two late: after 4 and 5. RFC 4737 section 4.2: extent i - j with j the place of 4.
    assert reordering_extent([1, 2, 4, 5, 3, 6]) == 2
    assert reordering_distance([1, 2, 4, 5, 3, 6]) == 2
    assert reorder_buffer([1, 2, 4, 5, 3, 6], [10] * 6) == 20
    # 7 before 2 and 3: both are reordered, 3 by two arrivals.
    assert reordering_extent([1, 7, 2, 3, 8]) == 2
    assert reordering_distance([1, 7, 2, 3, 8]) == 5


def test_losses_and_duplicates_are_not_reordering() -> None:
    assert reordering_extent([1, 2, 2, 3, 1]) == 0
    assert reorder_buffer([1, 4, 5], [10] * 3) == 0
    assert reordering_extent([]) is None and reordering_distance([]) is None and reorder_buffer([], []) is None


TIMES = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]


def test_rate_before_is_the_median_of_what_ended_before() -> None:
    assert rate_before(TIMES, [1, 100, 102, 0, 0, 0, 0, 0], 3.0) == 100
    assert rate_before(TIMES, [1] * 8, 0.5) is None


def test_an_event_within_a_window_counts_from_the_event() -> None:
    assert blackhole_time_rate(TIMES, [10, 10, 10, 0, 0, 10, 10, 10], 3.25) == pytest.approx(1.75)
    assert blackhole_time_rate(TIMES, [10] * 8, 3.25) == 0
    assert blackhole_time_rate(TIMES, [0] * 8, 3.25) is None


def test_recovery_must_last() -> None:
    flapping = [10, 10, 0, 10, 0, 10, 10, 10]
    assert recovery_time(TIMES, flapping, 2.0) == pytest.approx(4.0)
    assert recovery_time(TIMES, flapping, 2.0, windows=1) == pytest.approx(2.0)
    assert recovery_time(TIMES, [10, 10, 0, 0, 0, 0, 10, 10], 2.0) is None
    assert recovery_time(TIMES, [10] * 8, 2.0) == 0
    assert dip_depth(TIMES, flapping, 2.0) == 1


def test_convergence_needs_every_flow() -> None:
    one = [0, 50, 50, 50, 50, 50, 50, 50]
    other = [100, 100, 80, 60, 54, 50, 50, 50]
    assert convergence_time(TIMES, [one, other], [50, 50], 1.0) == pytest.approx(4.0)
    assert convergence_time(TIMES, [one, other], [50, 90], 1.0) is None
    with pytest.raises(ValueError, match="2 flows with 1 fair"):
        convergence_time(TIMES, [one, other], [50], 1.0)
    with pytest.raises(ValueError, match="do not rise"):
        convergence_time([1.0, 1.0], [[1, 1]], [1], 0.0)


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
