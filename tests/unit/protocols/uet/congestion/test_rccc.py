"""Credit: the source's account and the destination's schedule, with figures worked out by hand."""

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


@pytest.mark.parametrize(
    ("counters", "sent", "credit"),
    [
        ([10], 0, 2560),
        ([10, 30], 0, 7680),
        ([10, 30, 30], 0, 7680),  # it is cumulative
        ([30, 10, 31], 0, 31 * 256),  # an overtaken one is ignored
        ([0x7FFFFF, 0xFFFFF0], MAX_WND, 0),
        ([0x7FFFFF, 0xFFFFF0, 0x000010], MAX_WND, 32 * 256),  # the counter wraps
        ([1000], 0, MAX_WND),  # the most there is
    ],
)
def test_credit_by_its_counter(counters: list[int], sent: int, credit: int) -> None:
    account = source()
    for counter in counters[:2]:
        account.on_credit(0, counter)
    account.on_send(sent)
    for counter in counters[2:]:
        account.on_credit(0, counter)
    assert account.credit == credit


@pytest.mark.parametrize(
    ("counters", "sent", "asked", "target"),
    [
        # 25,600 bytes came: 10,000 + 2000 - 600 = 11,400 bytes = 44.5 units
        ([100], 25_000, (10_000, 2000, None), 145),
        (None, 256, (512, 0, None), 3),  # debt is covered
        (None, 0, (1_000_000, 0, None), 256),
        (None, 0, (1_000_000, 0, 8192.9), 36),  # one packet more than the window
        ([], 0, (100, 0, None), 4),  # who speculates asks for a packet at least
        ([], 0, (0, 0, None), 0x1000000 - 256),
        ([0x7FFFFF, 0xFFFFFE], MAX_WND, (768, 0, None), 1),  # it wraps
    ],
)
def test_the_target_is_what_waits_less_what_is_there(
    counters: list[int] | None, sent: int, asked: tuple[int, int, float | None], target: int
) -> None:
    """Without counters the destination has answered, and granted nothing."""
    credit = source()
    for counter in counters or []:
        credit.on_credit(0, counter)
    if counters is None:
        credit.on_feedback()
    credit.on_send(sent)
    assert credit.credit_target(*asked) == target


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


@pytest.mark.parametrize(
    ("targets", "trimmed", "slow_pull", "ticks", "grants"),
    [
        # senders take turns
        ([("abc", 32)], [], False, range(6), "a16 b16 c16 a32 b32 c32"),
        # no grant beyond the target
        ([("a", 18)], [], False, range(12), "a16 a18"),
        # an overtaken target changes nothing
        ([("a", 20), ("a", 10), ("a", 0xFFFFF0)], [], False, range(3), "a16 a20"),
        # retransmissions are served first, and those who retransmit take turns too
        ([("abc", 64)], [("c", 5 * MTU)], False, range(5), "c16 c32 a16 b16 c48"),
        ([], [("ab", 8 * MTU)], False, range(4), "a16 b16 a32 b32"),
        # slow pull: 16 asked for, and 256 units = MaxWnd in advance; demand comes before it
        ([("a", 16)], [], True, range(40), " ".join(f"a{counter}" for counter in range(16, 273, 16))),
        ([("a", 16), ("b", 48)], [], True, range(6), "a16 b16 b32 b48 a32 b64"),
    ],
)
def test_the_order_of_grants(
    targets: list[tuple[str, int]], trimmed: list[tuple[str, int]], slow_pull: bool, ticks: range, grants: str
) -> None:
    scheduler = scheduled(slow_pull)
    for senders, target in targets:
        for sender in senders:
            scheduler.on_target(sender, target, now=0)
    for senders, size in trimmed:
        for sender in senders:
            scheduler.on_trimmed(sender, size, now=0)
    found = [grant for tick in ticks for grant in scheduler.grant(tick * 4097)]
    assert [f"{sender}{counter}" for sender, counter in found] == grants.split()
    assert not slow_pull or ticks != range(40) or scheduler.next_grant_time() is None


def test_a_small_grant_takes_the_time_of_a_kilobyte() -> None:
    scheduler = scheduled()
    for sender in "ab":
        scheduler.on_target(sender, 1, now=0)
    assert scheduler.grant(0) == [("a", 1)]
    assert scheduler.next_grant_time() == 1024


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
