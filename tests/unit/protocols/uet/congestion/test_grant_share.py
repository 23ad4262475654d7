"""The share of the link's rate that is granted, by what arrives: intervals with figures worked out by hand."""

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


@pytest.mark.parametrize(
    "intervals",
    [
        [(0, 0, 0, 1), (1, 0, 0, 1), (10, 0, 0, 1)],  # nothing is marked or trimmed
        [(3, 0, 1, 0.75)],  # the share that was trimmed is granted no more
        # A mean of 0.25; then 0.625 with all of the next interval: 0.325 too much, by half of which it falls.
        [(4, 2, 0, 1), (4, 4, 0, 1 - 0.325 / 2)],
        # Not below the most that was carried, of which each interval takes 5 %, and not what the last one has seen.
        [(4, 0, 16, 0.8 * 0.4), (1, 0, 9, 0.8 * 0.4 * 0.95)],
        [(0, 0, 1, LEAST_SHARE), (8, 0, 1, LEAST_SHARE)],  # it does not rise to what the fabric carries
        [(0, 0, 5, LEAST_SHARE)] * 3,  # without anything carried something is granted
        # It rises faster until there is a mark.
        [
            (0, 0, 1, LEAST_SHARE),
            *((1, 0, 0, share) for share in (0.02, 0.04, 0.08, 0.16, 0.24, 0.32)),
            (8, 1, 0, 0.33),
        ],
    ],
)
def test_the_share_after_each_interval(intervals: list[tuple[int, int, int, float]]) -> None:
    """Packets, marked ones and trimmed ones of each, and what is granted after it."""
    course = Intervals()
    assert [course.pass_one(*arrived) for *arrived, _ in intervals] == pytest.approx([one[-1] for one in intervals])


def test_without_marks_all_is_granted_again() -> None:
    intervals = Intervals()
    intervals.pass_one(trimmed=1)
    assert [intervals.pass_one(packets=1) for _ in range(26)][-1] == 1


def test_marks_of_a_full_link_are_those_of_the_last_hop() -> None:
    intervals = Intervals()
    assert [intervals.pass_one(packets=9, marked=9) for _ in range(5)] == [1] * 5
    assert intervals.pass_one(packets=8, marked=8) < 1


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
