"""Collectives as described to users: factors, NCCL's trees, sizes, wrong parameters."""

import numpy as np
import pytest
from collective_reference import run_reference
from local_waits import check_local

from testbed.base.errors import WorkloadError
from testbed.workload import builder as builder_module
from testbed.workload.builder import StepBuilder
from testbed.workload.collectives.algorithms import add_collective, generate_collective, split_ranks
from testbed.workload.collectives.correctness import PERIOD, count_wrong, expected_output, make_input
from testbed.workload.collectives.datatype import DataType
from testbed.workload.collectives.halving_doubling import fold
from testbed.workload.collectives.operation import Algorithm, CollectiveKind, CollectiveOperation
from testbed.workload.collectives.tree import binary_tree, double_binary_tree
from testbed.workload.steps import Compute, Slice, Transfer, Workload


def test_the_binary_tree_is_that_of_nccls_comment() -> None:
    """The picture above `ncclGetBtree` in trees.cc, 14 ranks."""
    tree = binary_tree(14)
    assert dict(enumerate(tree.children)) == {
        0: (8,),
        8: (4, 12),
        4: (2, 6),
        12: (10, 13),
        2: (1, 3),
        6: (5, 7),
        10: (9, 11),
        **dict.fromkeys((1, 3, 5, 7, 9, 11, 13), ()),
    }


def test_the_second_tree_is_that_of_nccls_comment() -> None:
    """The pictures above `ncclGetDtree`: mirrored for 12 ranks, moved by one for 13."""
    mirrored = double_binary_tree(12)[1]
    assert mirrored.root == 11
    assert set(mirrored.children[11]) == {3}
    assert set(mirrored.children[3]) == {1, 7}
    assert set(mirrored.children[7]) == {5, 9}
    moved = double_binary_tree(13)[1]
    assert moved.root == 1
    assert set(moved.children[1]) == {9}
    assert set(moved.children[9]) == {5, 0}
    assert set(moved.children[0]) == {11}


@pytest.mark.parametrize("size", range(2, 40))
def test_a_leaf_of_one_tree_is_inside_the_other(size: int) -> None:
    first, second = double_binary_tree(size)
    assert len(first.from_root()) == len(second.from_root()) == size
    assert all(len(children) <= 2 for tree in (first, second) for children in tree.children)
    inside_both = [i for i in range(size) if first.children[i] and second.children[i]]
    assert inside_both == ([0] if size % 2 else [])
    assert all(first.children[i] or second.children[i] for i in range(size))


def test_fold_of_ranks_that_are_no_power_of_two() -> None:
    assert fold(8).pairs == ()
    assert fold(6).pairs == ((0, 1), (2, 3))
    assert fold(6).participants == (1, 3, 4, 5)
    assert fold(1).participants == (0,)


def test_a_ring_of_four_step_by_step() -> None:
    workload = generate_collective(CollectiveOperation(kind="all_reduce", size_bytes=16), ranks=4)
    assert len(workload.steps) == 2 * 3 * 4
    first = workload.transfers[0]
    assert (first.source, first.destination, first.piece) == (0, 1, Slice(offset=3, length=1))
    assert first.label == "all_reduce[0].reduce-scatter.0"
    depth = [0] * len(workload.steps)
    for step in workload.steps:
        depth[step.number] = 1 + max((depth[before] for before in step.after), default=0)
    assert max(depth) == 6


def test_one_rank_has_nothing_to_send() -> None:
    for kind in CollectiveKind:
        workload = generate_collective(CollectiveOperation(kind=kind, size_bytes=8), ranks=1)
        assert workload.steps == ()
        assert workload.collectives[0].steps == range(0)


def test_iterations_follow_one_another_at_each_rank() -> None:
    workload = generate_collective(CollectiveOperation(kind="all_gather", size_bytes=12), ranks=3, iterations=3)
    check_local(workload)
    assert [collective.steps for collective in workload.collectives] == [range(6), range(6, 15), range(15, 24)]
    begun = workload.steps[workload.collectives[1].steps.start]
    assert isinstance(begun, Compute)
    assert begun.duration_ns == 0


def test_all_to_all_rounds_down_as_nccl_tests_does() -> None:
    collective = generate_collective(CollectiveOperation(kind="all_to_all", size_bytes=4 * 11), ranks=4).collectives[0]
    assert collective.size_bytes == 4 * 8
    assert collective.elements == 16


def test_a_collective_of_some_ranks_in_a_larger_workload() -> None:
    builder = StepBuilder(8)
    ready = {rank: (builder.compute(rank, 100),) for rank in (6, 2, 4)}
    done = add_collective(
        builder, CollectiveOperation(kind="all_reduce", size_bytes=12), members=[6, 2, 4], after=ready
    )
    workload = builder.build("some")
    assert {step.source for step in workload.transfers} == {2, 4, 6}
    assert set(done) == {2, 4, 6}
    for rank, last in done.items():
        assert all(
            rank in (step.source, step.destination)
            for step in map(workload.steps.__getitem__, last)
            if isinstance(step, Transfer)
        )
    # every rank's first transfer waits for its own computing
    for rank, (before,) in ready.items():
        first = next(step for step in workload.transfers if step.source == rank)
        assert before in first.after


def test_collectives_side_by_side_as_nccl_tests_splits() -> None:
    workload = generate_collective(
        CollectiveOperation(kind="reduce", size_bytes=16), ranks=8, split="MOD 4", root=1, iterations=2
    )
    check_local(workload)
    rails = [(0, 4), (1, 5), (2, 6), (3, 7)]
    assert [collective.ranks for collective in workload.collectives] == rails * 2
    assert [collective.root for collective in workload.collectives] == [4, 5, 6, 7] * 2
    assert all(step.source % 4 == step.destination % 4 for step in workload.transfers)
    assert split_ranks("DIV 4", 6) == [[0, 1, 2, 3], [4, 5]]
    for text in ("MOD", "MOD 0", "AND 8", "DIV -1", ""):
        with pytest.raises(WorkloadError, match="MOD or DIV"):
            split_ranks(text, 8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "all_reducee"}, "no kind is called 'all_reducee'"),
        ({"algorithm": "bush"}, "no algorithm is called 'bush'"),
        ({"kind": "broadcast", "algorithm": "tree"}, "broadcast has no algorithm tree"),
        ({"size_bytes": 6}, "not a whole number of float32"),
        ({"size_bytes": 0}, "or none"),
        ({"kind": "all_to_all", "size_bytes": 8}, "has at least 12 bytes"),
        ({"kind": "reduce", "root": 3}, "the root 3"),
        ({"algorithm": "hierarchical", "ranks_per_domain": 2}, "same number of ranks in every scale-up domain"),
        ({"algorithm": "hierarchical", "rail_algorithm": "hierarchical"}, "cannot be hierarchical"),
    ],
)
def test_wrong_parameters(options: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"kind": "all_reduce", "ranks": 3, "size_bytes": 24} | options
    of_ranks = {
        name: arguments.pop(name) for name in ("ranks", "ranks_per_domain", "root", "iterations") if name in arguments
    }
    with pytest.raises(WorkloadError, match=message):
        generate_collective(CollectiveOperation(**arguments), **of_ranks)  # type: ignore[arg-type]


def test_too_many_steps_end_in_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder_module, "MAX_STEPS", 50)
    with pytest.raises(WorkloadError, match="more than 50 steps"):
        generate_collective(CollectiveOperation(kind="all_reduce", size_bytes=64), ranks=8)


def test_a_dependency_on_others_alone_is_found() -> None:
    steps = (
        Transfer(number=0, source=0, destination=1, size_bytes=1),
        Transfer(number=1, source=2, destination=0, size_bytes=1, after=(0,)),
    )
    with pytest.raises(ValueError, match="step 1 of rank 2 waits for step 0"):
        check_local(Workload(name="", ranks=3, steps=steps))


@pytest.mark.parametrize("datatype", list(DataType))
@pytest.mark.parametrize("kind", list(CollectiveKind))
def test_data_beyond_its_period(kind: CollectiveKind, datatype: DataType) -> None:
    """Right results of more elements than the data's period; blocks that change places are found."""
    size = 3 * PERIOD * datatype.size_bytes
    workload = generate_collective(CollectiveOperation(kind=kind, size_bytes=size, datatype=datatype), ranks=3)
    collective = workload.collectives[0]
    arrays = {rank: make_input(collective, rank, datatype, seed=9) for rank in range(3)}
    results = run_reference(workload, arrays, datatype)
    for rank in range(3):
        assert count_wrong(collective, rank, results[rank], datatype, seed=9) == 0
    where, expected = expected_output(collective, 0, datatype, seed=9)
    assert np.array_equal(results[0][where.offset : where.end], expected)
    moved = results[0].copy()
    moved[where.offset : where.end] = np.roll(expected, 4096)
    assert count_wrong(collective, 0, moved, datatype, seed=9) > 0.9 * where.length


def test_slices() -> None:
    assert [part.length for part in Slice(offset=3, length=7).split(3)] == [3, 2, 2]
    assert [part.offset for part in Slice(offset=3, length=7).split(3)] == [3, 6, 8]
    assert [part.length for part in Slice(offset=0, length=1).split(3)] == [1, 0, 0]
    assert Algorithm.RING == "ring"
    assert DataType("bfloat16").size_bytes == 2
