"""Whatever a wire loses and damages, of frames, ACKs, NACKs and updates: no credit is lost, no frame comes twice or out
of its order, and under LLR none is lost."""

from __future__ import annotations

import shutil

import pytest
from faulty_links import FaultyPair, Weather, hasty_retry, patient_retry
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.protocols.scale_up.frames import FrameCheck
from testbed.protocols.scale_up.retry import FrameAction

seeds = st.integers(0, 2**32)
shares = st.sampled_from((0.0, 0.01, 0.1, 0.3))
weathers = st.builds(Weather, loss=shares, damage=shares, control_loss=shares, poison=shares)
few = settings(max_examples=12, deadline=None)
EVENTS = 1_000_000


pytestmark = pytest.mark.skipif(shutil.which("clang") is None, reason="clang is not installed")


@few
@given(seeds, weathers, st.booleans())
def test_llr_loses_nothing(seed: int, weather: Weather, shared: bool) -> None:
    pair = FaultyPair(seed, weather, retry=patient_retry(), shared=shared)
    for _ in range(3):
        pair.send(20)
        pair.run(30_000)
    pair.settle()
    pair.check_order(complete=True)
    pair.check_credits()
    for end in pair.ends:
        retry = end.link.retry_sender
        assert retry is not None
        assert retry.counters.tx_flushed == retry.counters.tx_discard == 0


@few
@given(seeds, weathers)
def test_without_llr_what_is_lost_is_lost_but_no_credit(seed: int, weather: Weather) -> None:
    pair = FaultyPair(seed, weather, retry=None)
    for _ in range(3):
        pair.send(20)
        pair.run(30_000)
    pair.settle()
    pair.check_order(complete=not (weather.loss or weather.damage))
    pair.check_credits()


@few
@given(seeds, weathers, st.sampled_from(FrameAction))
def test_giving_up_loses_frames_but_no_credit_and_no_order(seed: int, weather: Weather, action: FrameAction) -> None:
    pair = FaultyPair(seed, weather, retry=hasty_retry(action))
    for round_ in range(3):
        pair.send(20)
        pair.run(20_000)
        for end in pair.ends:
            end.link.set_pcs(round_ != 1, pair.clock.now)
        pair.run(3_000)
    for end in pair.ends:
        end.link.set_pcs(True, pair.clock.now)
    pair.settle()
    pair.check_order(complete=False)
    pair.check_credits()


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_million_events_lose_nothing() -> None:
    """Under everything that can go wrong."""
    events = seed = poisoned = replays = 0
    while events < EVENTS:
        weather = Weather(loss=0.01, damage=0.01, control_loss=0.05, poison=0.01)
        pair = FaultyPair(seed, weather, retry=patient_retry())
        for _ in range(10):
            pair.send(500)
            pair.run(200_000)
        pair.settle(periods=5_000)
        pair.check_order(complete=True)
        pair.check_credits()
        events += pair.clock.events
        replays += sum(end.link.retry_sender.counters.tx_replay for end in pair.ends if end.link.retry_sender)
        poisoned += sum(frame.check is FrameCheck.POISONED for end in pair.ends for frame in end.received)
        seed += 1
    assert min(replays, poisoned) > 1000
