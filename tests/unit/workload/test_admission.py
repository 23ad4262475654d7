"""Receiver admission: what is under way to a rank never exceeds its window."""

import heapq
import random

import pytest

from testbed.base.errors import WorkloadError
from testbed.workload.admission import CLEAR_BYTES, with_admission
from testbed.workload.builder import StepBuilder
from testbed.workload.patterns import generate_incast, generate_permutation
from testbed.workload.steps import Compute, Transfer, Workload


def most_under_way(workload: Workload, *, data_ns: int = 100, seed: int = 1) -> tuple[dict[int, int], int]:
    """The most bytes of data that were ever under way to each rank, and when all was over: transfers take a time of
    their own each, however many there are."""
    rng = random.Random(seed)
    waiting = {step.number: len(step.after) for step in workload.steps}
    behind: dict[int, list[int]] = {}
    for step in workload.steps:
        for before in step.after:
            behind.setdefault(before, []).append(step.number)
    under_way: dict[int, int] = {}
    most: dict[int, int] = {}
    events: list[tuple[int, int]] = []
    now = 0

    def begin(number: int) -> None:
        step = workload.steps[number]
        takes = 0
        if isinstance(step, Transfer):
            takes = data_ns + rng.randrange(data_ns)
            if step.size_bytes != CLEAR_BYTES:
                under_way[step.destination] = under_way.get(step.destination, 0) + step.size_bytes
                most[step.destination] = max(most.get(step.destination, 0), under_way[step.destination])
        heapq.heappush(events, (now + takes, number))

    for number, count in waiting.items():
        if not count:
            begin(number)
    while events:
        now, number = heapq.heappop(events)
        step = workload.steps[number]
        if isinstance(step, Transfer) and step.size_bytes != CLEAR_BYTES:
            under_way[step.destination] -= step.size_bytes
        del waiting[number]
        for after in behind.get(number, ()):
            waiting[after] -= 1
            if not waiting[after]:
                begin(after)
    assert not waiting, "every step has ended"
    return most, now


def is_local(workload: Workload) -> bool:
    """Whether each step waits for steps alone in which the rank that begins it takes part."""
    for step in workload.steps:
        rank = step.rank if isinstance(step, Compute) else step.begun_by
        for number in step.after:
            before = workload.steps[number]
            ranks = {before.rank} if isinstance(before, Compute) else {before.source, before.destination}
            if rank not in ranks:
                return False
    return True


@pytest.mark.parametrize("window", [1_000, 2_500, 4_000])
@pytest.mark.parametrize("seed", range(3))
def test_an_incast_comes_window_by_window(window: int, seed: int) -> None:
    plain = generate_incast(ranks=9, size_bytes=1_000, destination=0)
    assert most_under_way(plain)[0][0] == 8_000, "all at once without it"
    held = with_admission(plain, window)
    most, _ = most_under_way(held, seed=seed)
    assert 0 < most[0] <= window and is_local(held)


def test_all_to_all_keeps_each_receivers_window_and_ends() -> None:
    steps = []
    for source in range(6):
        for destination in range(6):
            if source != destination:
                steps.append(Transfer(number=len(steps), source=source, destination=destination, size_bytes=1_000))
    held = with_admission(Workload(name="x", ranks=6, steps=tuple(steps)), 2_000)
    most, _ = most_under_way(held)
    assert set(most.values()) == {2_000} and is_local(held)


def test_the_first_window_needs_no_message() -> None:
    plain = generate_permutation(ranks=8, size_bytes=1_000, rng=random.Random(1))
    held = with_admission(plain, 1_000)
    assert [step for step in held.steps if step.label.endswith(".clear")] == []
    assert len(held.steps) == len(plain.steps)


def test_a_transfer_larger_than_the_window_comes_alone() -> None:
    held = with_admission(generate_incast(ranks=5, size_bytes=10_000, destination=0), 1_000)
    most, _ = most_under_way(held)
    assert most[0] == 10_000


def test_what_stays_in_a_domain_or_is_read_is_not_held() -> None:
    steps = tuple(
        Transfer(number=n, source=1 + n, destination=0, size_bytes=1_000, scale_up=n < 3, pulled=n >= 3)
        for n in range(6)
    )
    held = with_admission(Workload(name="x", ranks=8, steps=steps), 1_000)
    assert held.steps == steps and "by 0 messages" in held.notes[-1]


def test_a_ring_that_is_one_step_is_refused() -> None:
    """Its transfers would come all the same, and the note would be wrong."""
    builder = StepBuilder(4, folds=True)
    builder.ring((0, 1, 2, 3), 1_000, rounds=3)
    with pytest.raises(WorkloadError, match="one step"):
        with_admission(builder.build("x"), 1_000)
