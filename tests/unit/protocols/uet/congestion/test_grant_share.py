"""The share of the link's rate that is granted, by what arrives: intervals with figures worked out by hand."""

from __future__ import annotations

import pytest

from testbed.protocols.datagram import Incoming
from testbed.protocols.uet.congestion import CreditScheduler, CreditSource
from testbed.protocols.uet.congestion.grant_share import LEAST_SHARE, GrantShare

RTT = 1000
SIZE = 100
"""At 8 Gbit/s a byte takes 1 ns: ten packets are all that the link carries in an interval."""


class Intervals:
    """A share, and intervals of one base RTT each."""

    def __init__(self) -> None:
        self.now = 0
        self.share = GrantShare(8_000_000_000, RTT, 0)

    def pass_one(self, packets: int = 0, marked: int = 0, trimmed: int = 0) -> float:
        """The share after an interval in which so many packets arrived, `marked` of them with a mark."""
        for number in range(packets):
            self.share.on_packet(SIZE, number < marked)
        for _ in range(trimmed):
            self.share.on_trimmed()
        self.now += RTT
        self.share.update(self.now)
        return self.share.share


def test_a_fabric_that_marks_and_trims_nothing_is_granted_everything() -> None:
    intervals = Intervals()
    assert [intervals.pass_one(packets) for packets in (0, 1, 10)] == [1, 1, 1]


def test_the_share_that_was_trimmed_is_granted_no_more() -> None:
    intervals = Intervals()
    assert intervals.pass_one(packets=3, trimmed=1) == pytest.approx(0.75)


def test_marks_lower_it_by_what_they_are_above_the_target() -> None:
    intervals = Intervals()
    assert intervals.pass_one(packets=4, marked=2) == 1  # a mean of 0.25
    # 0.625 with all of the next interval: 0.325 too much, by half of which it falls.
    assert intervals.pass_one(packets=4, marked=4) == pytest.approx(1 - 0.325 / 2)


def test_it_does_not_fall_below_what_the_fabric_carries() -> None:
    intervals = Intervals()
    assert intervals.pass_one(packets=4, trimmed=16) == pytest.approx(0.8 * 0.4)
    # The most that was carried, of which each interval takes 5 %, and not what the last one has seen.
    assert intervals.pass_one(packets=1, trimmed=9) == pytest.approx(0.8 * 0.4 * 0.95)


def test_it_does_not_rise_to_what_the_fabric_carries() -> None:
    intervals = Intervals()
    intervals.pass_one(packets=0, trimmed=1)
    assert intervals.pass_one(packets=8, trimmed=1) == pytest.approx(LEAST_SHARE)


def test_without_anything_carried_something_is_granted() -> None:
    intervals = Intervals()
    assert [intervals.pass_one(trimmed=5) for _ in range(3)] == [LEAST_SHARE] * 3


def test_marks_of_a_full_link_are_those_of_the_last_hop() -> None:
    intervals = Intervals()
    assert [intervals.pass_one(packets=9, marked=9) for _ in range(5)] == [1] * 5
    assert intervals.pass_one(packets=8, marked=8) < 1


def test_it_rises_faster_until_there_is_a_mark() -> None:
    intervals = Intervals()
    intervals.pass_one(packets=0, trimmed=1)
    found = [intervals.pass_one(packets=1) for _ in range(6)]
    assert found == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.24, 0.32])
    assert intervals.pass_one(packets=8, marked=1) == pytest.approx(0.33)
    assert [intervals.pass_one(packets=1) for _ in range(20)][-1] == 1


def test_a_decrease_ends_the_acceleration() -> None:
    intervals = Intervals()
    intervals.pass_one(trimmed=1)
    for _ in range(4):
        intervals.pass_one()
    intervals.pass_one(packets=1, trimmed=9)
    before = intervals.share.share
    assert intervals.pass_one() == pytest.approx(before + 0.01)


def test_an_interval_is_not_over_before_its_time() -> None:
    share = GrantShare(8_000_000_000, RTT, 0)
    share.on_trimmed()
    share.update(RTT - 1)
    assert share.share == 1
    share.update(RTT)
    assert share.share == LEAST_SHARE


def test_silence_is_made_up_for() -> None:
    patient, asleep = Intervals(), Intervals()
    for intervals in (patient, asleep):
        intervals.pass_one(trimmed=1)
    for _ in range(5):
        patient.pass_one()
    asleep.share.update(asleep.now + 5 * RTT + 7)
    assert asleep.share.share == pytest.approx(patient.share.share)
    asleep.share.update(1 << 62)
    assert asleep.share.share == 1


def scheduled() -> CreditScheduler:
    """At 0.99 * 8/0.99 Gbit/s a byte takes 1 ns; grants are of 1024 bytes."""
    share = GrantShare(8_080_808_081, RTT, 0)
    return CreditScheduler(8_080_808_081, 256, 64 * 1024, slow_pull=False, share=share)


def arrived(trimmed: bool, last_hop: bool = False) -> Incoming:
    return Incoming("10.0.0.1", 1, bytes(64), length=1000 if trimmed else 0, last_hop=last_hop)


@pytest.mark.parametrize(("last_hop", "share"), [(False, 2 / 3), (True, 1)])
def test_grants_are_spaced_by_the_share(last_hop: bool, share: float) -> None:
    """A third of what arrives was trimmed, before the last hop or at it."""
    scheduler = scheduled()
    scheduler.on_arrival(arrived(trimmed=True, last_hop=last_hop), 0)
    scheduler.on_arrival(arrived(trimmed=False), 0)
    scheduler.on_arrival(arrived(trimmed=False), RTT)
    scheduler.on_target("a", 4000, RTT)
    assert scheduler.grant(RTT) == [("a", 4)]
    assert scheduler.next_grant_time() == pytest.approx(RTT + 1024 / share, abs=2)


def test_a_grant_that_is_waited_for_comes_sooner_when_the_share_has_risen() -> None:
    scheduler = scheduled()
    scheduler.on_arrival(arrived(trimmed=True), RTT)
    scheduler.on_target("a", 4000, RTT)
    assert scheduler.grant(RTT) == [("a", 4)]
    assert scheduler.next_grant_time() == pytest.approx(RTT + 102_400, abs=2)
    for interval in range(2, 17):
        scheduler.on_arrival(arrived(trimmed=False), interval * RTT)
    due = scheduler.next_grant_time()
    assert due is not None and due < 20 * RTT


def test_a_source_loses_nothing_by_a_small_share() -> None:
    """What is granted late is granted: the counter goes to the target all the same."""
    scheduler = scheduled()
    source = CreditSource(64 * 1024, 256, RTT, 0)
    source.on_feedback()
    scheduler.on_arrival(arrived(trimmed=True), RTT)
    scheduler.on_target("a", 40, RTT)
    now = RTT
    while (due := scheduler.next_grant_time()) is not None:
        now = max(now, due)
        for _, counter in scheduler.grant(now):
            source.on_credit(now, counter)
    assert source.credit == 40 * 256
