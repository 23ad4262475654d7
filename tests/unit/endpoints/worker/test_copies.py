"""Transfers inside a scale-up domain take the time of their links, and keep no link idle that could be used."""

import random
from collections.abc import Sequence

import pytest

from testbed.endpoints.worker.copies import InsideCopies
from testbed.endpoints.worker.program import Step
from testbed.workload.steps import InSwitch

BYTE_A_NS = 8_000_000_000


def inside(number: int, source: int, to: int, size_bytes: int, part: InSwitch | None = None) -> Step:
    return Step(number=number, source=source, destination=to, size_bytes=size_bytes, in_switch=part)


def run(steps: Sequence[Step], **options: int) -> dict[int, int]:
    """Ask for all at once; return when each arrived."""
    done: dict[int, int] = {}
    copies = InsideCopies(BYTE_A_NS, lambda step, now: done.update({step.number: now}), **options)
    for step in steps:
        copies.send(step, 0)
    copies.turn(1 << 60)
    assert copies.next_due() is None
    return done


def test_copies_take_the_time_of_their_links() -> None:
    done: list[tuple[int, int]] = []
    copies = InsideCopies(BYTE_A_NS, lambda step, now: done.append((step.number, now)))
    copies.send(inside(0, 0, 1, 100), 1000)
    copies.send(inside(1, 0, 1, 50), 1000)  # behind the first, on the same links
    copies.send(inside(2, 3, 1, 30), 1000)  # behind them, on the same link in
    copies.send(inside(3, 2, 3, 10), 1000)  # beside them
    copies.turn(1000)
    assert copies.next_due() == 1010
    copies.turn(1179)
    assert done == [(3, 1010), (0, 1100), (1, 1150)]
    copies.turn(1180)
    assert done[-1] == (2, 1180) and copies.next_due() is None


def test_copies_without_a_rate_take_no_time() -> None:
    done: list[int] = []
    copies = InsideCopies(0, lambda step, now: done.append(now))
    copies.send(inside(0, 0, 1, 1 << 30), 7)
    copies.turn(7)
    assert done == [7]


def test_data_arrives_one_way_behind_its_last_byte_and_the_links_are_free_meanwhile() -> None:
    assert run([inside(0, 0, 1, 100), inside(1, 0, 1, 100)], one_way_ns=500) == {0: 600, 1: 700}


def test_a_link_serves_others_while_a_transfer_waits_for_a_busy_destination() -> None:
    done = run([inside(0, 0, 1, 100), inside(1, 2, 1, 100), inside(2, 2, 3, 40)])
    assert done == {0: 100, 2: 40, 1: 200}


@pytest.mark.parametrize("order", ["rotated", "unrotated", "rank by rank", *range(20)])
def test_an_all_to_all_of_eight_takes_seven_turns_in_any_order(order: str | int) -> None:
    """Links that are reserved while their transfers wait made it 7 (rotated), 13 (unrotated) and 21 (rank by rank)."""
    ranks = range(8)
    pairs = {
        "rotated": [(source, (source + turn) % 8) for turn in range(1, 8) for source in ranks],
        "unrotated": [(source, to) for to in ranks for source in ranks],
    }.get(str(order), [(source, to) for source in ranks for to in ranks])
    if isinstance(order, int):
        random.Random(order).shuffle(pairs)
    done = run([inside(n, *pair, 1000) for n, pair in enumerate(pairs) if pair[0] != pair[1]])
    assert len(done) == 56 and max(done.values()) == 7000


def test_the_switch_adds_and_copies_in_one_pass_of_every_link() -> None:
    """S (1 + 1/g) per rank and direction: 4 ranks, pieces of 100 bytes, all sums and then all copies."""
    steps = [
        inside(4 * to + source, source, to, 100, InSwitch(operation=to, members=3))
        for to in range(4)
        for source in range(4)
        if source != to
    ]
    done = run(steps)
    assert max(done.values()) == 500  # four pieces leave each rank, one sum comes to it behind the last
    copies = [
        inside(4 * source + to, source, to, 100, InSwitch(operation=source, members=3, multicast=True))
        for source in range(4)
        for to in range(4)
        if source != to
    ]
    assert max(run(copies).values()) == 500
    assert max(run(copies, in_switch_bps=BYTE_A_NS // 2).values()) == 1000
