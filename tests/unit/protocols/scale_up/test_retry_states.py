"""The states of LLR's ends: how they are entered and left, and what becomes of frames meanwhile."""

from __future__ import annotations

import pytest
from native_link import ReceiverState, SenderState, Verdict
from native_parts import Released, RetryReceiver, RetrySender

from testbed.protocols.errors import UsageError
from testbed.protocols.scale_up.credits import NEVER
from testbed.protocols.scale_up.ctlos import Ack, Init, InitEcho, Nack
from testbed.protocols.scale_up.cyclic import CYCLE_MASK
from testbed.protocols.scale_up.frames import FrameCheck
from testbed.protocols.scale_up.retry import FrameAction, RetryConfig

pytestmark = pytest.mark.usefixtures("clang")

TIMER = 100


def config(**changes: int) -> RetryConfig:
    settings: dict[str, int] = {"outstanding_frames_max": 4, "replay_timer_ns": TIMER, "replay_count_max": 2}
    return RetryConfig(**(settings | changes))  # type: ignore[arg-type]


def running(sequence: int = 0, **changes: int) -> RetrySender:
    """A sender in ADVANCE at time 0."""
    sender = RetrySender(config(**changes))
    sender.start(0, sequence)
    init = sender.poll(0)
    assert init is not None
    sender.on_init_echo(init.sequence, init.data)
    assert sender.state is SenderState.ADVANCE
    return sender


def sent(sender: RetrySender, *frames: str, now: int = 0) -> list[int]:
    numbers = []
    for frame in frames:
        verdict, number = sender.offer(frame, 100, now)
        assert verdict is Verdict.SENT
        numbers.append(number)
    return numbers


def replayed(sender: RetrySender, now: int) -> list[tuple[int, str]]:
    found = []
    while (item := sender.replay(now)) is not None:
        found.append(item)
    return found


def test_init_is_repeated_until_its_own_echo() -> None:
    sender = RetrySender(config())
    sender.start(0, 7)
    assert sender.poll(0) == Init(7, 1)
    assert sender.poll(TIMER - 1) is None
    assert sender.next_timer() == TIMER
    for sequence, data in ((7, 2), (8, 1)):
        sender.on_init_echo(sequence, data)
        assert sender.state is SenderState.INIT
    assert sender.poll(TIMER) == Init(7, 1)
    sender.on_init_echo(7, 1)
    assert sender.state is SenderState.ADVANCE
    assert sender.next_timer() == NEVER
    sender.start(TIMER)
    assert sender.poll(TIMER) == Init(7, 2), "an echo of the time before does not count"


@pytest.mark.parametrize(
    ("action", "verdict", "discarded"),
    [
        (FrameAction.DISCARD, Verdict.DISCARDED, 1),
        (FrameAction.BLOCK, Verdict.BLOCKED, 0),
        (FrameAction.BEST_EFFORT, Verdict.BEST_EFFORT, 0),
    ],
)
@pytest.mark.parametrize("state", [SenderState.INIT, SenderState.FLUSH])
def test_frames_in_init_and_flush(state: SenderState, action: FrameAction, verdict: Verdict, discarded: int) -> None:
    """Each state has its own action: the other one's is not heeded."""
    other = FrameAction.BLOCK if action is not FrameAction.BLOCK else FrameAction.DISCARD
    actions = {"init_action": action, "flush_action": other}
    if state is SenderState.FLUSH:
        actions = {"init_action": other, "flush_action": action}
    if state is SenderState.INIT:
        sender = RetrySender(config(**actions))
        sender.start(0)
    else:
        sender = running(replay_count_max=0, **actions)
        sent(sender, "a")
        sender.poll(TIMER)
        assert sender.collect() == [Released("a", False)]
    assert sender.state is state
    assert sender.offer("b", 100, TIMER) == (verdict, 0)
    assert (sender.counters.tx_discard, sender.outstanding) == (discarded, 0)


def test_off_sends_unnumbered() -> None:
    sender = RetrySender(config())
    assert sender.offer("a", 100, 0) == (Verdict.BEST_EFFORT, 0)
    sender = running()
    sent(sender, "a")
    sender.stop()
    assert sender.state is SenderState.OFF
    assert sender.collect() == [Released("a", False)]


def test_the_window_counts_frames_and_bytes() -> None:
    sender = running(outstanding_frames_max=3)
    sent(sender, "a", "b", "c")
    assert sender.verdict(1) is Verdict.BLOCKED
    sender.on_ack(0, 1)
    assert sender.collect() == [Released("a", True)]
    assert sender.verdict(1) is Verdict.SENT
    sender = running(outstanding_bytes_max=250)
    assert sender.verdict(9000) is Verdict.SENT, "a single frame may be longer"
    sent(sender, "a", "b")
    assert sender.verdict(50) is Verdict.SENT
    assert sender.verdict(51) is Verdict.BLOCKED


def test_a_nack_acknowledges_and_has_the_rest_sent_again() -> None:
    sender = running(CYCLE_MASK - 1)
    assert sent(sender, "a", "b", "c", "d") == [CYCLE_MASK - 1, CYCLE_MASK, 0, 1]
    sender.on_nack(CYCLE_MASK, 10)
    assert sender.state is SenderState.REPLAY
    assert sender.offer("e", 100, 10) == (Verdict.BLOCKED, 0)
    assert replayed(sender, 20) == [(0, "c"), (1, "d")]
    assert (sender.state, sender.counters.tx_replay) == (SenderState.ADVANCE, 1)
    assert sender.next_timer() == 20 + TIMER
    assert sent(sender, "e", now=20) == [2]


def test_an_ack_of_everything_ends_a_replay() -> None:
    sender = running()
    sent(sender, "a", "b")
    sender.poll(TIMER)
    assert sender.replay(TIMER) is not None
    sender.on_ack(1, TIMER + 1)
    assert replayed(sender, TIMER + 1) == []
    assert (sender.state, sender.counters.tx_replay, sender.next_timer()) == (SenderState.ADVANCE, 1, NEVER)


@pytest.mark.parametrize("number", [4, 99, CYCLE_MASK - 1, 1 << 19])
def test_acks_of_what_is_not_outstanding_are_counted(number: int) -> None:
    sender = running()
    sent(sender, "a", "b", "c", "d")
    sender.on_ack(number, 1)
    sender.on_nack(number, 1)
    assert sender.counters.rx_ack_nack_seq_error == 2
    assert (sender.outstanding, sender.state) == (4, SenderState.ADVANCE)


def test_progress_sets_the_count_of_replays_back() -> None:
    sender = running(replay_count_max=2)
    sent(sender, "a", "b")
    now = 0
    for _ in range(2):
        now = sender.next_timer()
        sender.poll(now)
        replayed(sender, now)
    sender.on_ack(0, now)
    for _ in range(2):
        now = sender.next_timer()
        sender.poll(now)
        assert sender.state is SenderState.REPLAY
        replayed(sender, now)
    sender.poll(sender.next_timer())
    assert sender.state is SenderState.FLUSH
    assert sender.counters.tx_replay == 4


def test_data_that_is_too_old_is_given_up() -> None:
    sender = running(data_age_timeout_ns=150, replay_count_max=255)
    sent(sender, "a")
    sent(sender, "b", now=100)
    sender.poll(100)
    replayed(sender, 100)
    assert sender.next_timer() == 150
    sender.poll(149)
    assert sender.state is SenderState.ADVANCE
    sender.poll(150)
    assert sender.state is SenderState.FLUSH
    assert sender.collect() == [Released("a", False), Released("b", False)]
    assert sender.counters.tx_flushed == 2


def test_a_link_that_is_down_for_too_long() -> None:
    sender = running(pcs_lost_timeout_ns=1000)
    sent(sender, "a")
    sender.set_pcs(False, 10)
    assert sender.verdict(1) is Verdict.BLOCKED
    assert sender.next_timer() == 1010, "nothing is sent again while nothing can be sent"
    sender.poll(500)
    sender.set_pcs(True, 600)
    assert sender.next_timer() == 600 + TIMER
    sender.set_pcs(False, 610)
    sender.poll(1609)
    assert sender.state is SenderState.ADVANCE
    sender.poll(1610)
    assert sender.state is SenderState.FLUSH


def test_it_begins_again_by_itself_where_it_is_told_to() -> None:
    sender = running(replay_count_max=0, re_init_on_flush=1)
    sent(sender, "a", "b")
    assert sender.poll(TIMER) == Init(2, 2)
    assert sender.state is SenderState.INIT


def test_a_receiver_takes_nothing_before_init() -> None:
    receiver = RetryReceiver(config())
    assert not receiver.on_frame(0, FrameCheck.GOOD)
    assert (receiver.state, receiver.poll(0), receiver.next_timer()) == (ReceiverState.OFF, None, NEVER)
    receiver.on_init(5, 9)
    assert receiver.poll(0) == InitEcho(5, 9)
    assert receiver.on_frame(5, FrameCheck.GOOD)
    receiver.stop()
    assert not receiver.on_frame(6, FrameCheck.GOOD)


def test_acks_keep_their_distance_and_a_nack_does_not() -> None:
    receiver = RetryReceiver(config(ack_spacing_ns=50))
    receiver.on_init(0, 0)
    receiver.poll(0)
    assert receiver.on_frame(0, FrameCheck.GOOD)
    assert receiver.poll(0) == Ack(0)
    assert receiver.on_frame(1, FrameCheck.GOOD)
    assert (receiver.poll(49), receiver.next_timer()) == (None, 50)
    assert not receiver.on_frame(3, FrameCheck.GOOD)
    assert receiver.poll(49) == Nack(1)
    assert (receiver.poll(500), receiver.state) == (None, ReceiverState.NACK_SENT)
    assert receiver.on_frame(2, FrameCheck.POISONED)
    assert receiver.poll(500) == Ack(2)


def test_a_frame_that_comes_again_is_acknowledged_again() -> None:
    receiver = RetryReceiver(config())
    receiver.on_init(0, 0)
    receiver.poll(0)
    receiver.on_frame(0, FrameCheck.GOOD)
    assert receiver.poll(0) == Ack(0)
    assert not receiver.on_frame(0, FrameCheck.GOOD)
    assert receiver.poll(0) == Ack(0)
    assert receiver.counters.rx_duplicate_seq == receiver.counters.rx_replay == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"outstanding_frames_max": 0},
        {"outstanding_frames_max": (1 << 19) + 1},
        {"outstanding_bytes_max": 0},
        {"replay_timer_ns": 0},
        {"replay_count_max": 256},
        {"ack_spacing_ns": -1},
    ],
)
def test_what_is_out_of_range_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        config(**wrong)
