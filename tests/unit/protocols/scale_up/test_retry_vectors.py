"""LLR against the public test plans for UEC ports: the identifiers are those of the plans (SONiC and FBOSS)."""

from __future__ import annotations

from random import Random

import pytest
from link_end import LinkConfig
from native_link import ReceiverState, SenderState
from simulated_links import FIRST, SECOND, Clock, Fault, LinkEnd, connect, damaged, frame_of, number_of

from testbed.protocols.scale_up.credits import spacing_ns
from testbed.protocols.scale_up.ctlos import Ack, Nack
from testbed.protocols.scale_up.frames import ControlFrame, FrameCheck, decode_frame, decode_prefix, is_control
from testbed.protocols.scale_up.retry import RetryConfig

pytestmark = pytest.mark.usefixtures("clang")

RATE = 400_000_000_000
MS = 1_000_000
FRAMES = 1000


class RetryPair:
    """A sender and a receiver with LLR, after LLR_INIT."""

    def __init__(
        self, *, delay_ns: int = 200, window: int = 4096, timer_ns: int = 5000, replays: int = 3, rate_bps: int = RATE
    ) -> None:
        self.clock = Clock()
        retry = RetryConfig(
            outstanding_frames_max=window,
            replay_timer_ns=timer_ns,
            replay_count_max=replays,
            ack_spacing_ns=spacing_ns(2048, rate_bps),
        )
        self.near, self.far = (
            LinkEnd(
                self.clock,
                LinkConfig(address=address, peer=peer, retry=retry),
                rate_bps=rate_bps,
                delay_ns=delay_ns,
            )
            for address, peer in ((FIRST, SECOND), (SECOND, FIRST))
        )
        connect(self.near, self.far)
        assert self.near.link.retry_sender is not None
        assert self.far.link.retry_receiver is not None
        self.sender, self.receiver = self.near.link.retry_sender, self.far.link.retry_receiver
        self.near.start()
        self.clock.run(self.clock.now + 10 * delay_ns)
        assert self.sender.state is SenderState.ADVANCE

    def send(self, frames: int = FRAMES, size: int = 512, check: FrameCheck = FrameCheck.GOOD) -> None:
        for number in range(frames):
            self.near.backlog.add(frame_of(size, number=number, check=check))
        self.near.pump()

    def run(self, ns: int = MS) -> None:
        self.clock.run(self.clock.now + ns)

    @property
    def numbers(self) -> list[int]:
        return [number_of(frame) for frame in self.far.received]


def once(sequence: int, what: Fault) -> Fault:
    """A wire that does something to the first frame with a sequence number."""
    done = False

    def fault(data: bytes) -> bytes | None:
        nonlocal done
        if done or is_control(data) or decode_prefix(data).sequence != sequence:
            return data
        done = True
        return what(data)

    return fault


def lost(data: bytes) -> None:
    return None


def without(*kinds: type) -> Fault:
    """A wire that loses control frames which begin with one of these sets."""

    def fault(data: bytes) -> bytes | None:
        frame = decode_frame(data)
        return None if isinstance(frame, ControlFrame) and isinstance(frame.items[0], kinds) else data

    return fault


@pytest.mark.parametrize(("what", "bad"), [(lost, 0), (damaged, 1)], ids=["LLR-02-missing", "LLR-03-bad-fcs"])
def test_llr_02_03_one_frame_is_sent_again(what: Fault, bad: int) -> None:
    pair = RetryPair()
    nacks: list[int] = []
    pair.near.fault = once(901, what)

    def seen(data: bytes) -> bytes:
        frame = decode_frame(data)
        assert isinstance(frame, ControlFrame)
        nacks.extend(item.sequence for item in frame.items if isinstance(item, Nack))
        return data

    pair.far.fault = seen
    pair.send()
    pair.run()
    assert nacks == [900]
    assert pair.receiver.counters.tx_nack_ctl_os == pair.sender.counters.rx_nack_ctl_os == 1
    assert pair.sender.counters.tx_replay == pair.receiver.counters.rx_replay == 1
    assert pair.receiver.counters.rx_expected_seq_good == FRAMES
    assert (pair.receiver.counters.rx_bad, pair.receiver.counters.rx_expected_seq_bad) == (bad, bad)
    assert pair.numbers == list(range(FRAMES))
    assert pair.sender.outstanding == 0


def test_llr_05_acks_are_withheld() -> None:
    pair = RetryPair(replays=3, timer_ns=20_000)
    pair.far.fault = without(Ack)
    pair.send()
    pair.run()
    assert pair.receiver.counters.rx_ok == pair.sender.counters.tx_ok == 4 * FRAMES
    assert pair.sender.counters.tx_replay == 3
    assert pair.sender.state is SenderState.FLUSH
    assert pair.sender.counters.tx_flushed == FRAMES
    assert pair.numbers == list(range(FRAMES))


def test_llr_06_poisoned_frames_are_not_sent_again() -> None:
    pair = RetryPair()
    pair.send(check=FrameCheck.POISONED)
    pair.run()
    assert pair.receiver.counters.rx_poisoned == pair.receiver.counters.rx_expected_seq_poisoned == FRAMES
    assert pair.sender.counters.tx_poisoned == FRAMES
    assert pair.receiver.counters.tx_nack_ctl_os == pair.sender.counters.tx_replay == 0
    assert {frame.check for frame in pair.far.received} == {FrameCheck.POISONED}
    assert pair.sender.outstanding == 0


def test_llr_07_a_small_window_without_acks() -> None:
    pair = RetryPair(window=10, replays=3)
    pair.far.fault = without(Ack)
    pair.send()
    pair.run(100_000)
    assert pair.receiver.counters.rx_ok == 40
    assert pair.receiver.counters.rx_duplicate_seq == 30
    assert pair.receiver.counters.rx_replay == pair.sender.counters.tx_replay == 3
    assert pair.sender.state is SenderState.FLUSH


def share_of_line_rate(pair: RetryPair, size: int, ns: int) -> float:
    """What new frames had of the line rate in `ns` while there was always one waiting."""
    pair.near.backlog.endless[0] = frame_of(size)
    pair.near.pump()
    pair.run(4 * pair.near.delay_ns)
    before = len(pair.far.received)
    pair.run(ns)
    return (len(pair.far.received) - before) * size * 8e9 / ns / pair.near.rate_bps


def test_llr_08_500_metres_of_cable() -> None:
    """Another 5 us of round trip need a window of 5 us; with one for 40 m the rate falls in proportion."""
    size, delay_ns = 512, 2700
    serial_ns = size * 8e9 / RATE
    loop_ns = 2 * delay_ns + serial_ns
    enough = RetryPair(delay_ns=delay_ns, window=600, timer_ns=25_000)
    assert share_of_line_rate(enough, size, 30_000) > 0.99
    small = RetryPair(delay_ns=delay_ns, window=133, timer_ns=25_000)
    share = share_of_line_rate(small, size, round(6 * loop_ns))
    assert share == pytest.approx(133 * serial_ns / loop_ns, rel=0.05)
    assert enough.sender.counters.tx_replay == small.sender.counters.tx_replay == 0


@pytest.mark.parametrize(("what", "again", "least"), [(damaged, 2, 0.95), (lost, 3, 0.93)], ids=["damaged", "lost"])
def test_fboss_two_percent(what: Fault, again: int, least: float) -> None:
    """At least 95 % of the line rate with 2 % of frames damaged on a short link, and what go-back-N has by its formula.

    A damaged frame costs its own time and that of the next one, which was begun before the NACK came. A lost one is
    missed when the next one arrives, and costs one more: a port here does not break off a frame.
    """
    share_bad = 0.02
    pair = RetryPair(delay_ns=10, window=115, timer_ns=700, replays=255)
    chance = Random(2)
    pair.near.fault = lambda data: data if is_control(data) or chance.random() >= share_bad else what(data)
    share = share_of_line_rate(pair, 9000, 600_000)
    assert share >= least
    assert share == pytest.approx((1 - share_bad) / (1 - share_bad + share_bad * again), abs=0.01)
    assert pair.sender.counters.tx_replay > 30


def test_a_nack_is_sent_once_and_then_nothing_until_the_missing_frame() -> None:
    pair = RetryPair(timer_ns=50_000)
    pair.near.fault = once(3, lost)
    pair.far.fault = without(Nack)
    pair.send(20)
    pair.run(20_000)
    assert pair.receiver.state is ReceiverState.NACK_SENT
    acks = pair.receiver.counters.tx_ack_ctl_os
    pair.run(20_000)
    assert (pair.receiver.counters.tx_ack_ctl_os, pair.receiver.counters.tx_nack_ctl_os) == (acks, 1)
    assert pair.numbers == [0, 1, 2]
    pair.run(100_000)
    assert pair.numbers == list(range(20)), "the timer has healed the lost NACK"
