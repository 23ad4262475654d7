"""Credit: the source's account and the destination's schedule, with figures worked out by hand."""

from __future__ import annotations

import pytest

from testbed.protocols.uet.congestion import CreditScheduler, CreditSource

MTU = 1024
MAX_WND = 64 * 1024
RTT = 12_000


def source() -> CreditSource:
    return CreditSource(MAX_WND, MTU, RTT, now=0)


def scheduled(slow_pull: bool = False) -> CreditScheduler:
    """At 0.99 * 8/0.99 Gbit/s a byte takes 1 ns, so a grant of four packets takes 4096 ns."""
    return CreditScheduler(8_080_808_081, MTU, MAX_WND, slow_pull)


def test_a_source_speculates_with_one_window() -> None:
    credit = source()
    assert credit.speculating
    for _ in range(63):
        credit.on_send(MTU)
    assert credit.can_send()
    credit.on_send(MTU)
    assert not credit.can_send()


def test_the_last_packet_may_overdraw() -> None:
    credit = source()
    credit.on_send(MAX_WND - 1)
    assert credit.can_send()
    credit.on_send(MTU)
    assert credit.credit == 1 - MTU


def test_feedback_voids_speculative_credit_but_not_debt() -> None:
    credit = source()
    credit.on_feedback()
    assert (credit.credit, credit.speculating) == (0, False)
    debtor = source()
    debtor.on_send(MAX_WND + 500)
    debtor.on_feedback()
    assert debtor.credit == -500


def test_credit_is_cumulative() -> None:
    credit = source()
    credit.on_credit(0, 10)
    assert credit.credit == 2560
    credit.on_credit(0, 30)
    assert credit.credit == 7680
    credit.on_credit(0, 30)
    assert credit.credit == 7680


def test_overtaken_credit_is_ignored() -> None:
    credit = source()
    credit.on_credit(0, 30)
    credit.on_credit(0, 10)
    credit.on_credit(0, 31)
    assert credit.credit == 31 * 256


def test_the_credit_counter_wraps() -> None:
    credit = source()
    credit.on_credit(0, 0x7FFFFF)
    credit.on_credit(0, 0xFFFFF0)
    credit.on_send(MAX_WND)
    assert credit.credit == 0
    credit.on_credit(0, 0x000010)
    assert credit.credit == 32 * 256


def test_credit_is_capped_at_max_wnd() -> None:
    credit = source()
    credit.on_credit(0, 1000)
    assert credit.credit == MAX_WND


def test_the_target_is_what_waits_less_what_is_there() -> None:
    credit = source()
    credit.on_credit(0, 100)  # 25,600 bytes
    credit.on_send(25_000)
    # 10,000 + 2000 - 600 = 11,400 bytes = 44.5 units
    assert credit.credit_target(10_000, 2000, None) == 145


def test_the_target_covers_debt() -> None:
    credit = source()
    credit.on_feedback()
    credit.on_send(256)
    assert credit.credit_target(512, 0, None) == 3


def test_the_target_is_bound_by_max_wnd_and_by_the_window() -> None:
    credit = source()
    credit.on_feedback()
    assert credit.credit_target(1_000_000, 0, None) == 256
    assert credit.credit_target(1_000_000, 0, 8192.9) == 36  # one packet more than the window


def test_a_speculating_source_asks_for_a_packet_at_least() -> None:
    credit = source()
    assert credit.credit_target(100, 0, None) == 4
    assert credit.credit_target(0, 0, None) == 0x1000000 - 256


def test_the_target_wraps() -> None:
    credit = source()
    credit.on_credit(0, 0x7FFFFF)
    credit.on_credit(0, 0xFFFFFE)
    credit.on_send(MAX_WND)
    assert credit.credit_target(768, 0, None) == 1


def test_requests_that_bring_nothing_become_rare() -> None:
    credit = source()
    credit.on_send(MAX_WND)
    credit.on_feedback()
    now, gaps = 60_000, []
    for _ in range(9):
        credit.on_request(now)
        due = credit.next_request_time()
        assert due is not None
        gaps.append((due - now) // 60_000)
        now = due
    assert gaps == [1, 2, 4, 8, 16, 32, 64, 64, 64]
    credit.on_credit(now, 1)
    credit.on_send(MTU)
    credit.on_request(now)
    assert credit.next_request_time() == now + 60_000


def test_a_source_that_was_never_heard_speculates_on_after_a_timeout() -> None:
    credit = source()
    credit.on_send(MAX_WND)
    credit.on_timeout(50_000)
    assert credit.credit == MTU and credit.next_request_time() is None
    credit.on_send(MTU)
    credit.on_feedback()
    credit.on_timeout(60_000)
    assert credit.credit == 0 and credit.next_request_time() == 60_000


def test_a_blocked_source_asks_after_five_rtts_or_a_timeout_but_once_per_rtt() -> None:
    credit = source()
    assert credit.next_request_time() is None
    credit.on_send(MAX_WND)
    assert credit.next_request_time() == 60_000
    credit.on_feedback()
    credit.on_timeout(40_000)
    assert credit.next_request_time() == 40_000
    credit.on_request(40_000)
    assert credit.next_request_time() == 100_000
    credit.on_timeout(41_000)
    assert credit.next_request_time() == 52_000
    credit.on_credit(45_000, 4)
    assert credit.next_request_time() is None
    credit.on_send(MTU)
    assert credit.next_request_time() == 105_000


def test_a_timeout_may_be_followed_by_the_first_request_at_once() -> None:
    credit = source()
    credit.on_send(MAX_WND)
    credit.on_feedback()
    credit.on_timeout(1000)
    assert credit.next_request_time() == 1000


def test_grants_are_paced_at_a_little_less_than_the_link_rate() -> None:
    scheduler = scheduled()
    scheduler.on_target("a", 48, now=1000)
    assert scheduler.next_grant_time() == 1000
    assert scheduler.grant(999) == []
    assert scheduler.grant(1000) == [("a", 16)]
    assert scheduler.next_grant_time() == 5096
    assert scheduler.grant(5095) == []
    assert scheduler.grant(5096) == [("a", 32)]
    assert scheduler.grant(9192) == [("a", 48)]
    assert scheduler.next_grant_time() is None


def test_senders_take_turns() -> None:
    scheduler = scheduled()
    for sender in "abc":
        scheduler.on_target(sender, 32, now=0)
    found = [grant for tick in range(6) for grant in scheduler.grant(tick * 4097)]
    assert found == [("a", 16), ("b", 16), ("c", 16), ("a", 32), ("b", 32), ("c", 32)]


def test_no_grant_beyond_the_target() -> None:
    scheduler = scheduled()
    scheduler.on_target("a", 18, now=0)
    assert scheduler.grant(0) == [("a", 16)]
    assert scheduler.grant(5000) == [("a", 18)]
    assert scheduler.grant(50_000) == []


def test_a_small_grant_takes_the_time_of_a_kilobyte() -> None:
    scheduler = scheduled()
    for sender in "ab":
        scheduler.on_target(sender, 1, now=0)
    assert scheduler.grant(0) == [("a", 1)]
    assert scheduler.next_grant_time() == 1024


def test_an_overtaken_target_changes_nothing() -> None:
    scheduler = scheduled()
    scheduler.on_target("a", 20, now=0)
    scheduler.on_target("a", 10, now=0)
    scheduler.on_target("a", 0xFFFFF0, now=0)
    assert scheduler.grant(0) == [("a", 16)]
    assert scheduler.grant(9000) == [("a", 20)]


def test_retransmissions_are_served_first() -> None:
    scheduler = scheduled()
    for sender in "abc":
        scheduler.on_target(sender, 64, now=0)
    scheduler.on_trimmed("c", 5 * MTU, now=0)
    found = [grant for tick in range(5) for grant in scheduler.grant(tick * 4097)]
    assert found == [("c", 16), ("c", 32), ("a", 16), ("b", 16), ("c", 48)]


def test_retransmitting_senders_take_turns_too() -> None:
    scheduler = scheduled()
    for sender in "ab":
        scheduler.on_trimmed(sender, 8 * MTU, now=0)
    found = [grant for tick in range(4) for grant in scheduler.grant(tick * 4097)]
    assert found == [("a", 16), ("b", 16), ("a", 32), ("b", 32)]


def test_a_retransmission_once_granted_gives_no_precedence() -> None:
    scheduler = scheduled()
    scheduler.on_target("a", 16, now=0)
    scheduler.grant(0)
    scheduler.on_trimmed("a", MTU, now=5000)
    scheduler.grant(5000)
    scheduler.on_target("b", 16, now=10_000)
    scheduler.on_target("a", 36, now=10_000)
    assert [grant for tick in (10_000, 15_000) for grant in scheduler.grant(tick)] == [("b", 16), ("a", 36)]


def test_a_trimmed_packet_raises_the_target() -> None:
    scheduler = scheduled()
    scheduler.on_target("a", 16, now=0)
    assert scheduler.grant(0) == [("a", 16)]
    scheduler.on_trimmed("a", 1000, now=10_000)
    assert scheduler.grant(10_000) == [("a", 20)]
    scheduler.on_target("a", 20, now=20_000)  # the source counts the same retransmission
    assert scheduler.grant(20_000) == []


def test_slow_pull_fills_up_to_max_wnd_when_nobody_asks() -> None:
    scheduler = scheduled(slow_pull=True)
    scheduler.on_target("a", 16, now=0)
    found = [counter for tick in range(40) for _, counter in scheduler.grant(tick * 4097)]
    # 16 asked for, and 256 units = MaxWnd in advance.
    assert found == list(range(16, 273, 16))
    assert scheduler.next_grant_time() is None


def test_demand_comes_before_slow_pull() -> None:
    scheduler = scheduled(slow_pull=True)
    scheduler.on_target("a", 16, now=0)
    scheduler.on_target("b", 48, now=0)
    found = [grant for tick in range(6) for grant in scheduler.grant(tick * 4097)]
    assert found == [("a", 16), ("b", 16), ("b", 32), ("b", 48), ("a", 32), ("b", 64)]


def test_what_was_granted_in_advance_counts_towards_the_next_target() -> None:
    scheduler = scheduled(slow_pull=True)
    scheduler.on_target("a", 16, now=0)
    scheduler.grant(0)
    assert scheduler.grant(4097) == [("a", 32)]
    scheduler.on_target("a", 40, now=5000)
    assert scheduler.grant(8194) == [("a", 40)]


def test_a_request_is_answered_at_once_even_if_nothing_is_due() -> None:
    scheduler = scheduled()
    scheduler.on_target("a", 16, now=0)
    scheduler.grant(0)
    scheduler.on_request("a", 16, now=10)
    assert scheduler.next_grant_time() == 0
    assert scheduler.grant(10) == [("a", 16)]
    assert scheduler.next_grant_time() is None


def test_a_late_call_makes_up_for_a_bounded_burst() -> None:
    scheduler = scheduled()
    scheduler.on_target("a", 16_000, now=0)
    scheduler.grant(0)
    assert scheduler.grant(10_000_000) == [("a", 16 + 8 * 16)]
    assert scheduler.grant(10_000_000) == []


@pytest.mark.parametrize("waiting", ["demand", "retransmission"])
def test_a_newcomer_does_not_cancel_arrears(waiting: str) -> None:
    scheduler = scheduled()
    if waiting == "demand":
        scheduler.on_target("a", 64, now=0)
    else:
        scheduler.on_trimmed("a", 16 * MTU, now=0)
    scheduler.on_target("b", 16, now=12_300)
    assert sum(counter for _, counter in scheduler.grant(12_300)) == 64


def test_the_pacer_does_not_save_up_while_nobody_asks() -> None:
    scheduler = scheduled()
    scheduler.on_target("a", 16, now=0)
    scheduler.grant(0)
    scheduler.on_target("a", 1600, now=1_000_000)
    assert scheduler.grant(1_000_000) == [("a", 32)]


def test_counters_wrap_at_24_bits() -> None:
    scheduler = CreditScheduler(8_080_808_081, 1 << 29, MAX_WND, slow_pull=False)
    scheduler.on_target("a", 0x7FFFF0, now=0)
    assert scheduler.grant(0) == [("a", 0x7FFFF0)]
    scheduler.on_target("a", 0xFFFFE0, now=10**10)
    assert scheduler.grant(10**10) == [("a", 0xFFFFE0)]
    scheduler.on_target("a", 0x000010, now=2 * 10**10)
    assert scheduler.grant(2 * 10**10) == [("a", 0x000010)]


def test_a_removed_sender_gets_nothing() -> None:
    scheduler = scheduled(slow_pull=True)
    scheduler.on_target("a", 16, now=0)
    scheduler.on_request("a", 32, now=0)
    scheduler.remove("a")
    scheduler.remove("b")
    assert scheduler.next_grant_time() is None
    assert scheduler.grant(10) == []
    assert scheduler.credit_of("a") == 0


@pytest.mark.parametrize("sources", [1, 3, 16])
def test_an_incast_is_granted_evenly_and_at_the_line_rate(sources: int) -> None:
    scheduler = scheduled()
    for sender in range(sources):
        scheduler.on_target(sender, 0x7F0000, now=0)
    for now in range(0, 4_096_000, 4096):
        scheduler.grant(now)
    granted = [scheduler.credit_of(sender) * 256 for sender in range(sources)]
    assert sum(granted) == pytest.approx(4_096_000, rel=0.002)
    assert max(granted) - min(granted) <= 4 * MTU
