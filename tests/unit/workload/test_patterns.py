"""Patterns of transfers: who sends to whom, how much, and after what."""

import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from local_waits import check_local

from testbed.base.errors import WorkloadError
from testbed.workload.collectives.algorithms import generate_collective
from testbed.workload.collectives.operation import CollectiveKind, CollectiveOperation
from testbed.workload.draws import draw_derangement
from testbed.workload.patterns import (
    Scope,
    generate_background,
    generate_incast,
    generate_incast_victim,
    generate_outcast,
    generate_outcast_incast,
    generate_overlapped_incast,
    generate_permutation,
    generate_point_to_point,
    generate_tornado,
)
from testbed.workload.steps import Workload


def pairs(workload: Workload) -> list[tuple[int, int]]:
    return [(step.source, step.destination) for step in workload.transfers]


def test_point_to_point_rounds_follow_one_another() -> None:
    workload = generate_point_to_point(ranks=4, size_bytes=10, source=3, destination=1, flows=2, rounds=2)
    assert pairs(workload) == [(3, 1)] * 4
    assert [step.after for step in workload.steps] == [(), (), (0, 1), (0, 1)]


def test_incast_with_jitter_is_repeatable() -> None:
    def make(seed: int) -> Workload:
        return generate_incast(ranks=8, size_bytes=7, destination=2, senders=5, jitter_ns=1000, rng=random.Random(seed))

    assert pairs(make(1)) == [(3, 2), (4, 2), (5, 2), (6, 2), (7, 2)]
    assert make(1) == make(1)
    assert make(1) != make(2)
    assert all(0 <= step.start_ns <= 1000 for step in make(1).transfers)
    with pytest.raises(WorkloadError, match="8 other ranks are asked for; there are 7"):
        generate_incast(ranks=8, size_bytes=7, senders=8)
    assert pairs(generate_incast(ranks=3, size_bytes=1)) == [(1, 0), (2, 0)]


def test_outcast_and_overlaps() -> None:
    assert pairs(generate_outcast(ranks=4, size_bytes=1, source=1, receivers=[0, 3])) == [(1, 0), (1, 3)]
    assert pairs(generate_outcast_incast(ranks=6, size_bytes=1)) == [(0, 1), (0, 2), (0, 3), (0, 4), (5, 4)]
    overlapped = generate_overlapped_incast(ranks=5, long_bytes=100, burst_bytes=9, burst_start_ns=50)
    assert [(s.source, s.size_bytes, s.start_ns) for s in overlapped.transfers] == [
        (1, 100, 0),
        (2, 9, 50),
        (3, 9, 50),
        (4, 9, 50),
    ]
    victim = generate_incast_victim(ranks=6, size_bytes=7, victim_bytes=3, victim_start_ns=40, senders=2)
    assert [(s.source, s.destination, s.size_bytes, s.start_ns) for s in victim.transfers] == [
        (1, 0, 7, 0),
        (2, 0, 7, 0),
        (4, 5, 3, 40),
    ]
    with pytest.raises(WorkloadError, match="4 other ranks are asked for; there are 3"):
        generate_incast_victim(ranks=6, size_bytes=7, victim_bytes=3, victim_start_ns=0, senders=4)


@settings(max_examples=60, deadline=None)
@given(leaves=st.integers(2, 6), per_leaf=st.integers(1, 6), seed=st.integers(0, 2**32), flows=st.integers(1, 3))
def test_a_permutation_is_a_derangement_of_leaves(leaves: int, per_leaf: int, seed: int, flows: int) -> None:
    ranks = leaves * per_leaf
    for scope in Scope:
        workload = generate_permutation(
            ranks=ranks,
            size_bytes=5,
            rng=random.Random(seed),
            scope=scope,
            leaf_of=lambda rank: rank // per_leaf,
            flows=flows,
        )
        found = pairs(workload)
        assert Counter(source for source, _ in found) == Counter(dict.fromkeys(range(ranks), flows))
        assert Counter(destination for _, destination in found) == Counter(dict.fromkeys(range(ranks), flows))
        blocks = [(a // per_leaf, b // per_leaf) if scope is Scope.INTER_LEAF else (a, b) for a, b in found]
        assert all(a != b for a, b in blocks)


def test_some_of_a_permutation_send() -> None:
    everyone = pairs(generate_permutation(ranks=6, size_bytes=1, rng=random.Random(1)))
    some = generate_permutation(ranks=6, size_bytes=1, rng=random.Random(1), sources=[0, 4])
    assert pairs(some) == [everyone[0], everyone[4]]
    with pytest.raises(WorkloadError, match="nobody sends"):
        generate_permutation(ranks=6, size_bytes=1, rng=random.Random(1), sources=[])


def test_uneven_leaves_and_impossible_permutations() -> None:
    def inter_leaf(leaf_of: Callable[[int], int] | None) -> Workload:
        return generate_permutation(ranks=6, size_bytes=1, rng=random.Random(0), scope="inter-leaf", leaf_of=leaf_of)

    leaf_of = (0, 0, 0, 1, 1, 2).__getitem__
    assert all(leaf_of(a) != leaf_of(b) for a, b in pairs(inter_leaf(leaf_of)))
    with pytest.raises(WorkloadError, match="4 of 6 ranks are in block 0"):
        inter_leaf((0, 0, 0, 0, 1, 2).__getitem__)
    with pytest.raises(WorkloadError, match="leaf of each rank"):
        inter_leaf(None)


def test_permutations_of_different_seeds_are_spread() -> None:
    """Each of the 9 derangements of 4 comes up."""
    found = {
        tuple(b for _, b in pairs(generate_permutation(ranks=4, size_bytes=1, rng=random.Random(seed))))
        for seed in range(200)
    }
    assert len(found) == 9


def test_a_seed_means_the_same_everywhere() -> None:
    """Written down once: another Python or machine must draw the same."""
    assert draw_derangement(random.Random(1), range(8)) == [3, 0, 5, 4, 6, 2, 7, 1]
    assert draw_derangement(random.Random(2), [0, 0, 0, 1, 1, 1]) == [4, 3, 5, 2, 1, 0]


def test_tornado() -> None:
    assert pairs(generate_tornado(ranks=4, size_bytes=1)) == [(0, 2), (1, 3), (2, 0), (3, 1)]
    assert pairs(generate_tornado(ranks=3, size_bytes=1, shift=-1)) == [(0, 2), (1, 0), (2, 1)]
    with pytest.raises(WorkloadError):
        generate_tornado(ranks=4, size_bytes=1, shift=4)


@pytest.mark.parametrize("window", [1, 2, 3, None])
def test_all_to_all_keeps_its_window(window: int | None) -> None:
    operation = CollectiveOperation(kind=CollectiveKind.ALL_TO_ALL, size_bytes=60, window=window)
    workload = generate_collective(operation, ranks=5)
    check_local(workload)
    assert Counter(pairs(workload)) == Counter((a, b) for a in range(5) for b in range(5) if a != b)
    assert {step.size_bytes for step in workload.transfers} == {12}
    for rank in range(5):
        mine = [step for step in workload.transfers if step.source == rank]
        for position, step in enumerate(mine):
            waits = () if window is None or position < window else (mine[position - window].number,)
            assert step.after == waits


def test_background_offers_its_load() -> None:
    workload = generate_background(
        ranks=4, size_bytes=1000, pairs=3, duration_ns=10_000_000, rate_bps=10**9, load=0.4, rng=random.Random(5)
    )
    check_local(workload)
    offered_bps = sum(step.size_bytes for step in workload.transfers) * 8 / 10e-3
    assert offered_bps == pytest.approx(3 * 0.4e9, rel=0.01)
    assert all(step.start_ns < 10_000_000 for step in workload.transfers)


def test_wrong_parameters_are_said() -> None:
    with pytest.raises(WorkloadError, match="at least one rank"):
        generate_incast(ranks=0, size_bytes=1)
    with pytest.raises(WorkloadError, match="at least one byte"):
        generate_point_to_point(ranks=2, size_bytes=0)
    with pytest.raises(WorkloadError, match=r"no scope is called 'inter_leaf'.*\n.*did you mean inter-leaf"):
        generate_permutation(ranks=2, size_bytes=1, rng=random.Random(0), scope="inter_leaf")
    with pytest.raises(WorkloadError, match="rank 7 is not one of the 2"):
        generate_point_to_point(ranks=2, size_bytes=1, destination=7)
    with pytest.raises(WorkloadError, match="to itself"):
        generate_point_to_point(ranks=2, size_bytes=1, destination=0)
