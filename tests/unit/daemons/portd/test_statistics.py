"""Histograms and timers of the pause agent."""

import pytest
from pause_timers import Timers
from recorded_times import RecordedTimes

from testbed.daemons.portd.histogram import Latency


def test_quantiles_of_known_values() -> None:
    histogram = RecordedTimes()
    for value in range(1, 1001):
        histogram.record(value * 1000)
    summary = histogram.summary()
    assert summary.count == 1000
    assert summary.p50_ns == pytest.approx(500_000, rel=0.032)
    assert summary.p99_ns == pytest.approx(990_000, rel=0.032)
    assert summary.max_ns == 1_000_000, "exactly"


def test_small_values_are_exact_and_negative_ones_are_zero() -> None:
    histogram = RecordedTimes()
    for value in (-5, 0, 7, 63):
        histogram.record(value)
    assert [histogram.quantile(share) for share in (0.25, 0.5, 0.75, 1.0)] == [0, 0, 7, 63]


def test_nothing_recorded_is_zero() -> None:
    assert RecordedTimes().summary() == Latency()


def test_merge_is_recording_both() -> None:
    one, other, both = RecordedTimes(), RecordedTimes(), RecordedTimes()
    for value in (3, 1000, 5_000_000):
        one.record(value)
        both.record(value)
    for value in (9, 1001, 80):
        other.record(value)
        both.record(value)
    one.merge(other)
    assert one.summary() == both.summary()


def test_timers_fire_in_order_and_once() -> None:
    timers = Timers(8)
    timers.set(1, 30)
    timers.set(2, 10)
    timers.set(3, 20)
    timers.cancel(3)
    assert timers.next_ns() == 10
    assert list(timers.expired(9)) == []
    assert list(timers.expired(100)) == [2, 1]
    assert timers.next_ns() is None


def test_moved_timer_fires_at_its_last_time() -> None:
    timers = Timers(8)
    timers.set(1, 10)
    timers.set(1, 50)
    assert list(timers.expired(20)) == []
    assert timers.next_ns() == 50
    timers.set(1, 30)
    assert timers.next_ns() == 30
    assert list(timers.expired(30)) == [1]
    assert list(timers.expired(100)) == [], "the entry for 50 was overtaken"


def test_a_flood_of_moves_leaves_one_entry() -> None:
    timers = Timers(8)
    for number in range(10_000):
        timers.set(1, 1000 + number)
    assert len(timers) == 1


def test_timer_may_be_set_while_it_fires() -> None:
    timers = Timers(8)
    timers.set(1, 10)
    for key in timers.expired(10):
        timers.set(key, 10 + 90)
    assert timers.next_ns() == 100
