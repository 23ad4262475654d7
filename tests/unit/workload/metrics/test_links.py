"""Pauses from frames, marks, entropy of paths, reordering and times after an event."""

from __future__ import annotations

import math

import pytest
from pause_intervals import pause_intervals

from testbed.workload.metrics.links import ecn_mark_ratio, effective_paths, pause_time
from testbed.workload.metrics.reordering import reorder_buffer, reordered_ratio, reordering_distance, reordering_extent
from testbed.workload.metrics.timeline import (
    blackhole_time_rate,
    convergence_time,
    dip_depth,
    rate_before,
    recovery_time,
)


def test_a_pause_lasts_until_resume() -> None:
    frames = [(1.0, 65535), (2.0, 65535), (4.0, 0), (5.0, 0), (6.0, 65535)]
    assert pause_intervals(frames, end_s=10.0) == [(1.0, 4.0), (6.0, 10.0)]


def test_a_pause_ends_by_itself_after_its_quanta() -> None:
    frames = [(1.0, 2), (1.5, 2), (5.0, 1), (5.2, 0)]
    assert pause_intervals(frames, end_s=10.0, quantum_s=1.0) == [(1.0, 3.5), (5.0, 5.2)]
    assert pause_intervals([(9.5, 4)], end_s=10.0, quantum_s=1.0) == [(9.5, 10.0)]


def test_frames_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="order of time"):
        pause_intervals([(2.0, 1), (1.0, 0)], end_s=3.0)
    with pytest.raises(ValueError, match="a pause from"):
        pause_time([(2.0, 1.0)])


def test_more_marks_than_packets_are_refused() -> None:
    assert ecn_mark_ratio(0, 0) is None
    with pytest.raises(ValueError, match="marked"):
        ecn_mark_ratio(2, 1)


def test_effective_paths_count_what_is_used() -> None:
    assert effective_paths([5, 0, 0]) == pytest.approx(1)
    assert effective_paths([1] * 16) == pytest.approx(16)
    assert effective_paths([3, 1]) == pytest.approx(math.exp(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25))))
    assert effective_paths([0, 0]) is None


def test_reordering_as_in_rfc_4737() -> None:
    # Packet 3 comes two late: after 4 and 5. RFC 4737 section 4.2: extent i - j with j the place of 4.
    assert reordered_ratio([1, 2, 4, 5, 3, 6]) == pytest.approx(1 / 6)
    assert reordering_extent([1, 2, 4, 5, 3, 6]) == 2
    assert reordering_distance([1, 2, 4, 5, 3, 6]) == 2
    assert reorder_buffer([1, 2, 4, 5, 3, 6], [10] * 6) == 20
    # 7 before 2 and 3: both are reordered, 3 by two arrivals.
    assert reordering_extent([1, 7, 2, 3, 8]) == 2
    assert reordered_ratio([1, 7, 2, 3, 8]) == pytest.approx(2 / 5)
    assert reordering_distance([1, 7, 2, 3, 8]) == 5


def test_losses_and_duplicates_are_not_reordering() -> None:
    assert reordered_ratio([1, 2, 5, 6]) == 0
    assert reordering_extent([1, 2, 2, 3, 1]) == 0
    assert reorder_buffer([1, 4, 5], [10] * 3) == 0
    assert reordered_ratio([]) is None and reordering_extent([]) is None
    assert reordering_distance([]) is None and reorder_buffer([], []) is None


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
