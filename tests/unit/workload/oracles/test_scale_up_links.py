"""Formulas of links inside a scale-up domain, against values in print and against what they mean by counting."""

from __future__ import annotations

import random

import pytest
import scale_up_link_bounds as oracle


@pytest.mark.parametrize(("window", "share"), [(12, 0.988), (120, 0.893)])
def test_a_lost_frame_costs_a_window(window: int, share: float) -> None:
    """Of a thousand frames one is lost: by a link's round trip, and by one from end to end."""
    assert oracle.retry_share(loss=1e-3, window_frames=window) == pytest.approx(share, abs=5e-4)


def test_retry_by_counting() -> None:
    """A frame that is lost is sent again with the window after it."""
    draw, window, loss = random.Random(3), 13, 0.02
    slots = new = 0
    while new < 200_000:
        slots += window if draw.random() < loss else 1
        new += 1
    # a loss takes the window's slots, and the frame itself is not through yet
    assert oracle.retry_share(loss=loss, window_frames=window) == pytest.approx(new / slots, rel=0.03)


def test_a_line_and_a_plateau() -> None:
    link = {"rate_bps": 8e9, "loop_s": 1e-6}
    assert [oracle.credit_share(credits_bytes=item, **link) for item in (250, 500, 1000, 2000)] == [0.25, 0.5, 1, 1]
    needed = oracle.frames_of_round_trip(rate_bps=8e9, round_trip_s=1e-6, frame_bytes=100)
    assert needed == 11
    assert [oracle.window_share(window_frames=item, needed_frames=needed) for item in (5.5, 11, 22)] == [0.5, 1, 1]


def test_an_open_loop_by_counting() -> None:
    """Three senders of 600 frames, one frame of each a slot; one leaves a slot, and each input holds 40."""
    held, lost = [0, 0, 0], 0
    for slot in range(600):
        for sender in range(3):
            if held[sender] < 40:
                held[sender] += 1
            else:
                lost += 1
        turn = next(n for n in ((slot + offset) % 3 for offset in range(3)) if held[n])
        held[turn] -= 1
    expected = oracle.open_loop_loss(senders=3, sent_bytes=600, buffer_bytes=3 * 40)
    assert lost / 1800 == pytest.approx(expected, abs=0.002)
    assert oracle.open_loop_loss(senders=1, sent_bytes=600, buffer_bytes=0) == 0


def test_a_victim() -> None:
    assert oracle.victim_share(senders=4, shares_queue=True) == oracle.incast_share(senders=4) == 0.25
    assert oracle.victim_share(senders=4, shares_queue=False) == 0.75


def test_losses_of_messages_and_credits() -> None:
    assert oracle.message_survival(loss=0.01, frames=32, hops=2) == pytest.approx(0.526, abs=5e-4)
    assert oracle.stalled_after_frames(limit_credits=504, frame_credits=5, loss=0.1) == 1000
    assert oracle.flush_copies(replays=3, outstanding=16) == 64


@pytest.mark.parametrize(
    ("shares", "failed", "left"),
    [
        ((1,) * 18, (3,), 17 / 18),
        ((1,) * 18, (3, 4), 16 / 18),
        ((5, 4, 4, 5), (1,), 13 / 18),
        ((5, 4, 4, 5), (2,), 14 / 18),
    ],
)
def test_planes_that_are_left(shares: tuple[int, ...], failed: tuple[int, ...], left: float) -> None:
    assert oracle.planes_left_share(shares=shares, failed=failed) == pytest.approx(left)


def test_a_slow_plane() -> None:
    assert oracle.slow_plane_share(planes=18, slow=0.5, weighted=False) == 0.5
    assert oracle.slow_plane_share(planes=18, slow=0.5, weighted=True) == pytest.approx(0.972, abs=5e-4)
