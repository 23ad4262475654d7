"""Rooflines of collectives over scale-up domains, and bounds of their links, agree with formulas and with counting."""

from __future__ import annotations

import random

import pytest
import scale_up_link_bounds as oracle
from scale_up_bounds import (
    all_to_all,
    domains_of_a_token,
    hierarchical_all_reduce,
    nvls_all_reduce,
    nvls_gain,
    relay_all_to_all,
    ring_all_reduce,
)

from testbed.workload.collectives.algorithms import generate_collective
from testbed.workload.collectives.operation import Algorithm, CollectiveKind, CollectiveOperation
from testbed.workload.models.moe import MixtureOfExperts, generate_moe
from testbed.workload.oracles.roofline import workload_roofline_s
from testbed.workload.steps import Workload, payload_bytes

NIC_BPS = 8e9
"""A byte a ns."""
RHO = 9.0
GPUS, DOMAINS = 8, 4
S = 4 * GPUS * DOMAINS * 64


def build(
    kind: CollectiveKind, algorithm: Algorithm, *, domains: int = DOMAINS, size: int = S, chunks: int = 1
) -> Workload:
    operation = CollectiveOperation(kind=kind, size_bytes=size, algorithm=algorithm, chunks=chunks)
    return generate_collective(operation, ranks=domains * GPUS, ranks_per_domain=GPUS)


def roofline(workload: Workload, *, in_switch: float = 1.0) -> float:
    """In units of S / B."""
    seconds = workload_roofline_s(
        workload, rate_bps=lambda _: NIC_BPS, scale_up_bps=RHO * NIC_BPS, in_switch_bps=RHO * NIC_BPS * in_switch
    )
    return seconds * 1e9 / S


def test_all_reduce() -> None:
    flat = generate_collective(CollectiveOperation(kind=CollectiveKind.ALL_REDUCE, size_bytes=S), ranks=GPUS * DOMAINS)
    assert roofline(flat) == pytest.approx(ring_all_reduce(ranks=GPUS * DOMAINS))
    # The chain of a rank's pieces is no longer than one of each kind: the links' sum is the bound.
    rails = hierarchical_all_reduce(domains=DOMAINS, gpus=GPUS, rho=RHO, pipelined=True)
    serial = hierarchical_all_reduce(domains=DOMAINS, gpus=GPUS, rho=RHO)
    assert rails <= roofline(build(CollectiveKind.ALL_REDUCE, Algorithm.HIERARCHICAL)) <= serial


def test_the_switch_does_each_piece_once() -> None:
    found = roofline(build(CollectiveKind.ALL_REDUCE, Algorithm.NVLS, domains=1), in_switch=0.85)
    assert found == pytest.approx(nvls_all_reduce(gpus=GPUS, efficiency=0.85) / RHO)
    assert nvls_gain(gpus=8) == pytest.approx(1.556, abs=0.001)
    assert nvls_gain(gpus=8, efficiency=0.85) == pytest.approx(1.32, abs=0.01)


def test_all_to_all_with_and_without_a_relay() -> None:
    assert roofline(build(CollectiveKind.ALL_TO_ALL, Algorithm.DIRECT)) == pytest.approx(
        all_to_all(domains=DOMAINS, gpus=GPUS, rho=RHO)
    )
    relayed = roofline(build(CollectiveKind.ALL_TO_ALL, Algorithm.PXN))
    assert relayed == pytest.approx(
        relay_all_to_all(domains=DOMAINS, gpus=GPUS, rho=RHO, pipelined=True), rel=0.01
    )  # the last block arrives from the relay


def test_figures_in_print() -> None:
    def gradient(gpus: int, *, pipelined: bool = False) -> float:
        return hierarchical_all_reduce(domains=576 // gpus, gpus=gpus, rho=9, pipelined=pipelined)

    assert [round(gradient(gpus), 3) for gpus in (4, 8, 72)] == [0.663, 0.441, 0.243]
    assert gradient(8) / gradient(72) == pytest.approx(1.81, abs=0.01)
    assert gradient(8, pipelined=True) / gradient(72, pipelined=True) == pytest.approx(1.13, abs=0.01)
    fabric = all_to_all(domains=32, gpus=8, rho=9)
    assert relay_all_to_all(domains=32, gpus=8, rho=9) / fabric == pytest.approx(1.097, abs=0.001)
    assert all_to_all(domains=8, gpus=8, rho=9) / all_to_all(domains=1, gpus=64, rho=9) == pytest.approx(8.0)
    assert [round(domains_of_a_token(domains=m, top_k=8, experts=256), 2) for m in (2, 4, 8)] == [1.99, 3.61, 5.29]


def test_a_relay_brings_a_token_once_to_each_domain() -> None:
    def over_fabric(moe: MixtureOfExperts) -> int:
        workload = generate_moe(moe, ranks=32, rng=random.Random(1), ranks_per_domain=8)
        assert not moe.relay or all(
            step.source % 8 == step.destination % 8 for step in workload.transfers if not step.scale_up
        )
        return payload_bytes(workload) - sum(step.size_bytes for step in workload.transfers if step.scale_up)

    plain = MixtureOfExperts(experts=256, top_k=8, tokens=200, hidden=64)
    relayed = MixtureOfExperts(experts=256, top_k=8, tokens=200, hidden=64, relay=True)
    limited = MixtureOfExperts(experts=256, top_k=8, tokens=200, hidden=64, relay=True, domains_per_token=2)
    share = over_fabric(relayed) / over_fabric(plain)
    assert share == pytest.approx(domains_of_a_token(domains=4, top_k=8, experts=256) / 8, abs=0.01)
    assert over_fabric(limited) / over_fabric(plain) == pytest.approx(2 / 8, abs=0.01)


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
