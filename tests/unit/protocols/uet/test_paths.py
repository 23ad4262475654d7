"""Path selection: which EVs are used, used again and avoided."""

from collections import Counter
from random import Random

import pytest

from testbed.protocols.errors import UsageError
from testbed.protocols.uet.packets.codes import NackCode
from testbed.protocols.uet.paths import (
    BitmapPaths,
    ObliviousPaths,
    PathFeedback,
    PathKind,
    RepsPaths,
    SinglePath,
    judge_nack,
    make_paths,
)

EVS = range(50_000, 50_064)
RTT = 12_000
DEAD = 100 * RTT


def test_the_factory_makes_what_is_asked_for() -> None:
    made = [type(make_paths(PathKind(kind), EVS, Random(1), RTT)) for kind in ("single", "oblivious", "bitmap", "reps")]
    assert made == [SinglePath, ObliviousPaths, BitmapPaths, RepsPaths]


@pytest.mark.parametrize("kind", PathKind)
def test_no_selector_without_entropy_values(kind: PathKind) -> None:
    with pytest.raises(UsageError, match="at least one"):
        make_paths(kind, [], Random(1), RTT)


@pytest.mark.parametrize("kind", PathKind)
def test_a_single_entropy_value_is_used_whatever_happens(kind: PathKind) -> None:
    paths = make_paths(kind, [50_000], Random(1), RTT)
    for verdict in (*PathFeedback, *PathFeedback):
        paths.feedback(50_000, verdict, 0)
        assert [paths.next_entropy(now) for now in (0, RTT, DEAD, 2 * DEAD)] == [50_000] * 4


@pytest.mark.parametrize("kind", PathKind)
def test_feedback_on_foreign_entropy_values_is_ignored(kind: PathKind) -> None:
    paths = make_paths(kind, EVS, Random(1), RTT)
    for entropy in range(1, 1000):
        paths.feedback(entropy, PathFeedback(entropy % 4), 0)
    paths.on_idle(0)
    assert {paths.next_entropy(0) for _ in range(500)} <= set(EVS)


@pytest.mark.parametrize("kind", PathKind)
def test_the_same_seed_gives_the_same_paths(kind: PathKind) -> None:
    first, second = (make_paths(kind, EVS, Random(5), RTT) for _ in range(2))
    assert [first.next_entropy(0) for _ in range(200)] == [second.next_entropy(0) for _ in range(200)]


@pytest.mark.parametrize(
    ("code", "marked", "verdict"),
    [
        (NackCode.TRIMMED, False, PathFeedback.NACK),
        (NackCode.TRIMMED, True, PathFeedback.NACK),
        (NackCode.TRIMMED_LASTHOP, False, PathFeedback.GOOD),
        (NackCode.TRIMMED_LASTHOP, True, PathFeedback.MARKED),
        (NackCode.NO_PKT_BUFFER, False, PathFeedback.GOOD),
    ],
)
def test_what_a_nack_says_of_the_path(code: NackCode, marked: bool, verdict: PathFeedback) -> None:
    assert judge_nack(code, marked) is verdict


def test_a_single_path_stays_through_congestion() -> None:
    paths = SinglePath(EVS, Random(1), RTT)
    entropy = paths.next_entropy(0)
    paths.feedback(entropy, PathFeedback.MARKED, 10)
    paths.feedback(entropy, PathFeedback.NACK, 10)
    paths.on_idle(20)
    assert paths.next_entropy(1000 * RTT) == entropy


def test_a_single_path_changes_after_a_timeout_at_t_reroute() -> None:
    paths = SinglePath(EVS, Random(1), RTT)
    entropy = paths.next_entropy(1000)
    paths.feedback(entropy, PathFeedback.TIMEOUT, 2000)
    assert paths.next_entropy(1000 + 10 * RTT - 1) == entropy
    other = paths.next_entropy(1000 + 10 * RTT)
    assert other != entropy
    paths.feedback(entropy, PathFeedback.TIMEOUT, 200_000)  # a late word on the old path
    assert paths.next_entropy(100 * RTT) == other


def test_a_single_path_changes_at_once_when_idle() -> None:
    paths = SinglePath(EVS, Random(1), RTT)
    entropy = paths.next_entropy(0)
    paths.feedback(entropy, PathFeedback.TIMEOUT, 10)
    paths.on_idle(20)
    assert paths.next_entropy(20) != entropy


def test_oblivious_paths_use_every_value_once_a_round() -> None:
    paths = ObliviousPaths(EVS, Random(1), RTT)
    rounds = [[paths.next_entropy(0) for _ in EVS] for _ in range(20)]
    assert all(sorted(order) == list(EVS) for order in rounds)
    assert len({tuple(order) for order in rounds}) == 20


def test_oblivious_rounds_begin_anywhere() -> None:
    paths = ObliviousPaths(range(1, 5), Random(1), RTT)
    drawn = [paths.next_entropy(0) for _ in range(16_000)]
    first = Counter(drawn[::4])
    assert all(count == pytest.approx(1000, rel=0.15) for count in first.values())
    assert len(first) == 4


@pytest.mark.parametrize("kind", [PathKind.OBLIVIOUS, PathKind.BITMAP])
def test_a_dead_path_is_left_out_for_a_hundred_rtts(kind: PathKind) -> None:
    paths = make_paths(kind, EVS, Random(1), RTT)
    paths.feedback(50_007, PathFeedback.TIMEOUT, 0)
    assert 50_007 not in {paths.next_entropy(DEAD - 1) for _ in range(640)}
    assert 50_007 in {paths.next_entropy(DEAD) for _ in range(128)}


@pytest.mark.parametrize("kind", [PathKind.OBLIVIOUS, PathKind.BITMAP])
def test_when_most_paths_timed_out_all_are_used(kind: PathKind) -> None:
    paths = make_paths(kind, range(1, 9), Random(1), RTT)
    for entropy in range(1, 5):
        paths.feedback(entropy, PathFeedback.TIMEOUT, 0)
    assert {paths.next_entropy(1) for _ in range(64)} == {5, 6, 7, 8}
    paths.feedback(5, PathFeedback.TIMEOUT, 2)
    assert {paths.next_entropy(3) for _ in range(64)} == set(range(1, 9))


def test_oblivious_paths_do_not_mind_congestion() -> None:
    paths = ObliviousPaths(EVS, Random(1), RTT)
    paths.feedback(50_007, PathFeedback.MARKED, 0)
    paths.feedback(50_007, PathFeedback.NACK, 0)
    assert 50_007 in {paths.next_entropy(1) for _ in EVS}


@pytest.mark.parametrize(("verdict", "turns"), [(PathFeedback.MARKED, 1), (PathFeedback.NACK, 4)])
def test_a_congested_path_loses_its_next_turns(verdict: PathFeedback, turns: int) -> None:
    paths = BitmapPaths(EVS, Random(1), RTT)
    for _ in EVS:
        paths.next_entropy(0)
    paths.feedback(50_007, verdict, 0)
    # In a round of 64 steps 63 packets are sent while one value is passed over.
    for _ in range(turns):
        assert 50_007 not in {paths.next_entropy(RTT) for _ in range(63)}
    assert sorted(paths.next_entropy(RTT) for _ in EVS) == list(EVS)


def test_a_congested_path_is_not_used_within_an_rtt() -> None:
    paths = BitmapPaths(EVS, Random(1), RTT)
    paths.feedback(50_007, PathFeedback.MARKED, 0)
    assert 50_007 not in {paths.next_entropy(RTT - 1) for _ in range(640)}
    assert 50_007 in {paths.next_entropy(RTT) for _ in range(128)}


def test_skips_are_bounded() -> None:
    paths = BitmapPaths(EVS, Random(1), RTT)
    for _ in range(100):
        paths.feedback(50_007, PathFeedback.NACK, 0)
    # Fifteen turns lost, and the rounds that the first and last one may cut.
    assert 50_007 in {paths.next_entropy(RTT) for _ in range(17 * 64)}


def test_good_news_costs_no_turn() -> None:
    paths = BitmapPaths(EVS, Random(1), RTT)
    for entropy in EVS[:10]:
        paths.feedback(entropy, PathFeedback.GOOD, 0)
    assert sorted(paths.next_entropy(0) for _ in EVS) == list(EVS)


def test_dead_and_congested_paths_count_together() -> None:
    paths = BitmapPaths(range(1, 9), Random(1), RTT)
    for entropy in range(1, 5):
        paths.feedback(entropy, PathFeedback.TIMEOUT, 0)
    paths.feedback(5, PathFeedback.NACK, 0)
    assert {paths.next_entropy(0) for _ in range(16)} == {5, 6, 7, 8}


def test_congestion_of_most_paths_is_no_reason_to_avoid_them() -> None:
    paths = BitmapPaths(range(1, 9), Random(1), RTT)
    for entropy in range(1, 5):
        paths.feedback(entropy, PathFeedback.NACK, 0)
    assert {paths.next_entropy(0) for _ in range(4)} <= {5, 6, 7, 8}
    paths.feedback(5, PathFeedback.NACK, 0)
    assert len({paths.next_entropy(0) for _ in range(16)}) == 8


@pytest.mark.parametrize(
    ("good", "uses", "drawn"),
    [
        ([50_003, 50_001, 50_002], 1, [50_003, 50_001, 50_002]),  # they come again in order
        (list(range(50_000, 50_010)), 1, list(range(50_002, 50_010))),  # the last eight are remembered
        ([50_003, 50_001], 3, [50_003] * 3 + [50_001] * 3),  # each as often as it is told to
    ],
)
def test_reps_recycles_good_values(good: list[int], uses: int, drawn: list[int]) -> None:
    paths = RepsPaths(EVS, Random(1), RTT, uses=uses)
    for entropy in good:
        paths.feedback(entropy, PathFeedback.GOOD, 0)
    assert [paths.next_entropy(0) for _ in drawn] == drawn
    with pytest.raises(UsageError, match="at least one packet"):
        RepsPaths(EVS, Random(1), RTT, uses=0)


def test_reps_uses_a_value_once_and_then_draws() -> None:
    paths = RepsPaths(EVS, Random(1), RTT)
    paths.feedback(50_003, PathFeedback.GOOD, 0)
    assert paths.next_entropy(0) == 50_003
    drawn = Counter(paths.next_entropy(0) for _ in range(6400))
    assert set(drawn) == set(EVS)
    assert max(drawn.values()) < 160


def test_reps_avoids_marked_values_for_an_rtt() -> None:
    paths = RepsPaths(EVS, Random(1), RTT)
    paths.feedback(50_003, PathFeedback.GOOD, 0)
    paths.feedback(50_004, PathFeedback.GOOD, 0)
    paths.feedback(50_003, PathFeedback.MARKED, 1)
    paths.feedback(50_009, PathFeedback.NACK, 1)
    assert paths.next_entropy(2) == 50_004
    assert not {50_003, 50_009} & {paths.next_entropy(RTT) for _ in range(640)}
    assert {50_003, 50_009} <= {paths.next_entropy(RTT + 1) for _ in range(640)}


def test_reps_settles_on_the_good_paths() -> None:
    """A quarter of the values are marked whenever used: with eight packets in flight they soon fall out of use."""
    paths = RepsPaths(EVS, Random(1), RTT)
    marked = 0
    for turn in range(400):
        sent = [paths.next_entropy(turn * RTT) for _ in range(8)]
        for entropy in sent:
            bad = entropy % 4 == 0
            marked += bad and turn >= 40
            paths.feedback(entropy, PathFeedback.MARKED if bad else PathFeedback.GOOD, turn * RTT)
    assert marked == 0


def test_reps_freezes_after_a_timeout_and_goes_round_what_it_has() -> None:
    paths = RepsPaths(EVS, Random(1), RTT)
    for entropy in (50_003, 50_001, 50_002):
        paths.feedback(entropy, PathFeedback.GOOD, 0)
    assert [paths.next_entropy(0) for _ in range(3)] == [50_003, 50_001, 50_002]
    paths.feedback(50_040, PathFeedback.TIMEOUT, 0)
    assert paths.frozen
    assert [paths.next_entropy(1) for _ in range(4)] == [50_003, 50_001, 50_002, 50_003]
    paths.feedback(50_009, PathFeedback.GOOD, 2)  # fresh values still come first
    assert paths.next_entropy(2) == 50_009
    assert {paths.next_entropy(2) for _ in range(20)} == {50_001, 50_002, 50_003, 50_009}


def test_reps_does_not_return_to_a_dead_value_while_frozen() -> None:
    paths = RepsPaths(EVS, Random(1), RTT)
    for entropy in (50_003, 50_001):
        paths.feedback(entropy, PathFeedback.GOOD, 0)
    paths.feedback(50_003, PathFeedback.TIMEOUT, 0)
    assert {paths.next_entropy(1) for _ in range(20)} == {50_001}


def test_reps_frozen_with_nothing_remembered_draws_live_values() -> None:
    paths = RepsPaths(EVS, Random(1), RTT)
    paths.feedback(50_003, PathFeedback.TIMEOUT, 0)
    drawn = {paths.next_entropy(1) for _ in range(640)}
    assert drawn == set(EVS) - {50_003}


def test_reps_explores_after_the_freeze() -> None:
    paths = RepsPaths(EVS, Random(1), RTT)
    paths.feedback(50_003, PathFeedback.GOOD, 0)
    paths.feedback(50_040, PathFeedback.TIMEOUT, 0)
    assert {paths.next_entropy(DEAD - 1) for _ in range(5)} == {50_003}
    explored = [paths.next_entropy(DEAD)]
    assert not paths.frozen  # and nothing is remembered
    for _ in range(15):
        paths.feedback(50_007, PathFeedback.GOOD, DEAD)
        paths.feedback(50_041, PathFeedback.TIMEOUT, DEAD)  # does not freeze it again meanwhile
        explored.append(paths.next_entropy(DEAD))
    assert len(set(explored)) > 8
    assert not paths.frozen
    assert paths.next_entropy(DEAD) == 50_007
    paths.feedback(50_041, PathFeedback.TIMEOUT, DEAD)
    assert paths.frozen


def test_reps_forgets_with_the_thaw() -> None:
    paths = RepsPaths(EVS, Random(1), RTT)
    for entropy in (50_003, 50_001):
        paths.feedback(entropy, PathFeedback.GOOD, 0)
    paths.feedback(50_040, PathFeedback.TIMEOUT, 0)
    for _ in range(16):
        paths.next_entropy(DEAD)
    paths.feedback(50_041, PathFeedback.TIMEOUT, DEAD)
    assert paths.frozen
    assert len({paths.next_entropy(DEAD) for _ in range(64)}) > 16
