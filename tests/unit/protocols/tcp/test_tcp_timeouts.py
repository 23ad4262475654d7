"""Time-outs: RFC 6298 with the floor that Linux has."""

import pytest

from testbed.protocols.tcp.rto import INITIAL_RTO_NS, MAX_RTO_NS, MIN_RTO_NS, RttEstimator

MS = 1_000_000


def test_the_first_sample() -> None:
    rtt = RttEstimator()
    assert rtt.rto_ns == INITIAL_RTO_NS
    rtt.sample(300 * MS, 1, 2)
    # RTO = SRTT + 4 RTTVAR, RTTVAR = R / 2 (section 2.2)
    assert (rtt.srtt_ns, rtt.rto_ns) == (300 * MS, 900 * MS)


def test_the_floor_lies_below_the_variance() -> None:
    rtt = RttEstimator()
    for number in range(200):
        rtt.sample(10 * MS, number + 1, number + 2)
    assert rtt.rto_ns == 10 * MS + MIN_RTO_NS


def test_the_smoothed_round_trip_follows_by_eighths() -> None:
    rtt = RttEstimator()
    rtt.sample(100 * MS, 1, 2)
    rtt.sample(180 * MS, 1, 2)
    assert rtt.srtt_ns == 110 * MS
    assert rtt.least_ns == 100 * MS


def test_backoff_doubles_up_to_two_minutes_and_ends_with_a_sample() -> None:
    rtt = RttEstimator()
    rtt.sample(10 * MS, 1, 2)
    first = rtt.rto_ns
    for number in range(1, 20):
        rtt.on_timeout()
        assert rtt.rto_ns == min(first << number, MAX_RTO_NS)
    rtt.sample(10 * MS, 1, 2)
    assert rtt.backoff == 0
    assert rtt.rto_ns == pytest.approx(first, rel=0.01)
