"""Every collective gives the right result, for any number of ranks and size, in whatever order its steps end."""

import random
from dataclasses import replace

import numpy as np
import pytest
from collective_reference import run_reference
from hypothesis import given, settings
from hypothesis import strategies as st
from local_waits import check_local

from testbed.workload.collectives.algorithms import generate_collective
from testbed.workload.collectives.correctness import count_wrong, make_input
from testbed.workload.collectives.datatype import DataType
from testbed.workload.collectives.operation import ALGORITHMS, Algorithm, CollectiveKind, CollectiveOperation
from testbed.workload.steps import Transfer, Workload

FEW = settings(max_examples=40, deadline=None)
CASES = [(kind, algorithm) for kind, algorithms in ALGORITHMS.items() for algorithm in algorithms]


def wrong_of(workload: Workload, datatype: DataType, *, seed: int, rng: random.Random | None, index: int = 0) -> int:
    collective = workload.collectives[index]
    arrays = {rank: make_input(collective, rank, datatype, seed=seed) for rank in collective.ranks}
    results = run_reference(workload, arrays, datatype, collective=index, rng=rng)
    return sum(count_wrong(collective, rank, results[rank], datatype, seed=seed) for rank in collective.ranks)


@pytest.mark.parametrize(("kind", "algorithm"), CASES)
@FEW
@given(data=st.data())
def test_results_are_right_in_any_order(kind: CollectiveKind, algorithm: Algorithm, data: st.DataObject) -> None:
    per_host = data.draw(st.sampled_from([1, 2, 4]), label="ranks per host")
    hosts = data.draw(st.integers(1, 12 // per_host), label="hosts")
    ranks = per_host * hosts
    datatype = data.draw(st.sampled_from(list(DataType)))
    least = ranks if kind is CollectiveKind.ALL_TO_ALL else 1
    elements = data.draw(st.integers(least, 60), label="elements")
    workload = generate_collective(
        CollectiveOperation(
            kind=kind,
            size_bytes=elements * datatype.size_bytes,
            datatype=datatype,
            algorithm=algorithm,
            chunks=data.draw(st.none() | st.integers(1, 4), label="chunks"),
            in_flight=data.draw(st.integers(1, 3), label="in flight"),
            window=data.draw(st.none() | st.integers(1, 3), label="window"),
            rail_algorithm=data.draw(st.sampled_from([Algorithm.RING, Algorithm.TREE, Algorithm.HALVING_DOUBLING])),
        ),
        ranks=ranks,
        root=data.draw(st.integers(0, ranks - 1), label="root"),
        ranks_per_domain=per_host,
        iterations=data.draw(st.integers(1, 2), label="iterations"),
    )
    check_local(workload)
    seed = data.draw(st.integers(0, 2**32), label="seed")
    for index in range(len(workload.collectives)):
        assert wrong_of(workload, datatype, seed=seed, rng=None, index=index) == 0
        assert wrong_of(workload, datatype, seed=seed, rng=random.Random(seed), index=index) == 0


@pytest.mark.parametrize(("kind", "algorithm"), CASES)
@pytest.mark.parametrize("datatype", list(DataType))
def test_a_lost_transfer_is_counted_wrong(kind: CollectiveKind, algorithm: Algorithm, datatype: DataType) -> None:
    size = 96 * datatype.size_bytes
    workload = generate_collective(
        CollectiveOperation(kind=kind, size_bytes=size, datatype=datatype, algorithm=algorithm),
        ranks=6,
        root=2,
        ranks_per_domain=2,
    )
    collective = workload.collectives[0]
    inputs = {rank: make_input(collective, rank, datatype, seed=7) for rank in range(6)}
    whole = run_reference(workload, inputs, datatype)
    for lost in random.Random(3).sample(workload.transfers, 3):
        steps = list(workload.steps)
        steps[lost.number] = Transfer(
            number=lost.number,
            source=lost.source,
            destination=lost.destination,
            size_bytes=lost.size_bytes,
            after=lost.after,
        )
        broken = Workload(name="", ranks=6, steps=tuple(steps), collectives=workload.collectives)
        results = run_reference(broken, inputs, datatype)
        wrong = sum(count_wrong(collective, rank, results[rank], datatype, seed=7) for rank in range(6))
        assert wrong > 0
    # a single bit is enough
    rank = next(rank for rank in range(6) if count_wrong(collective, rank, inputs[rank], datatype, seed=7))
    bits = whole[rank].view(np.dtype(f"u{datatype.size_bytes}")).copy()
    place = (
        collective.elements - 1
        if kind
        in (CollectiveKind.ALL_TO_ALL, CollectiveKind.SEND_RECV, CollectiveKind.GATHER, CollectiveKind.ALL_GATHER)
        else rank * 16
    )
    bits[place] ^= 1
    assert count_wrong(collective, rank, bits.view(whole[rank].dtype), datatype, seed=7) == 1


@pytest.mark.parametrize(("kind", "algorithm"), CASES)
def test_the_drawn_orders_find_a_missing_dependency(kind: CollectiveKind, algorithm: Algorithm) -> None:
    """Without any, a collective of more than one hop comes out wrong in some order."""
    workload = generate_collective(
        CollectiveOperation(kind=kind, size_bytes=256, algorithm=algorithm), ranks=8, ranks_per_domain=2
    )
    hops = any(step.after for step in workload.transfers) and kind not in (
        CollectiveKind.GATHER,
        CollectiveKind.SCATTER,
    )
    steps = tuple(replace(step, after=()) for step in workload.steps)
    loose = Workload(name="", ranks=8, steps=steps, collectives=workload.collectives)
    wrong = [wrong_of(loose, DataType.FLOAT32, seed=1, rng=random.Random(seed)) for seed in range(5)]
    assert any(wrong) == hops


@FEW
@given(ranks=st.integers(1, 400), datatype=st.sampled_from(list(DataType)), seed=st.integers(0, 2**63))
def test_sums_are_exact_whatever_the_order(ranks: int, datatype: DataType, seed: int) -> None:
    workload = generate_collective(
        CollectiveOperation(
            kind=CollectiveKind.REDUCE, size_bytes=5 * datatype.size_bytes, datatype=datatype, chunks=1
        ),
        ranks=ranks,
        root=0,
    )
    collective = workload.collectives[0]
    arrays = {rank: make_input(collective, rank, datatype, seed=seed) for rank in range(ranks)}
    results = run_reference(workload, arrays, datatype)
    assert count_wrong(collective, 0, results[0], datatype, seed=seed) == 0


def sent_per_rank(workload: Workload, *, scale_up: bool | None = None) -> list[int]:
    sent = [0] * workload.ranks
    for step in workload.transfers:
        if scale_up is None or step.scale_up is scale_up:
            sent[step.source] += step.size_bytes
    return sent


@FEW
@given(ranks=st.integers(1, 24), blocks=st.integers(1, 5))
def test_textbook_totals(ranks: int, blocks: int) -> None:
    size = 4 * ranks * blocks

    def sent(kind: CollectiveKind, algorithm: Algorithm | None = None, *, root: int = 0) -> list[int]:
        operation = CollectiveOperation(kind=kind, size_bytes=size, algorithm=algorithm)
        return sent_per_rank(generate_collective(operation, ranks=ranks, root=root))

    block = size // ranks
    assert sent(CollectiveKind.ALL_REDUCE, Algorithm.RING) == [2 * (ranks - 1) * block] * ranks
    assert sent(CollectiveKind.REDUCE_SCATTER, Algorithm.RING) == [(ranks - 1) * block] * ranks
    assert sent(CollectiveKind.ALL_GATHER, Algorithm.RING) == [(ranks - 1) * block] * ranks
    assert sent(CollectiveKind.ALL_TO_ALL) == [(ranks - 1) * block] * ranks
    assert sum(sent(CollectiveKind.ALL_REDUCE, Algorithm.TREE)) == 2 * (ranks - 1) * size
    assert sent(CollectiveKind.GATHER, root=ranks - 1) == [block] * (ranks - 1) + [0]
    assert sent(CollectiveKind.SCATTER, root=0) == [(ranks - 1) * block] + [0] * (ranks - 1)
    assert sum(sent(CollectiveKind.BROADCAST)) == sum(sent(CollectiveKind.REDUCE)) == (ranks - 1) * size
    assert max(sent(CollectiveKind.BROADCAST)) <= size
    assert sent(CollectiveKind.SEND_RECV) == ([size] * ranks if ranks > 1 else [0])


@pytest.mark.parametrize("power", range(6))
def test_halving_doubling_totals(power: int) -> None:
    ranks = 2**power
    size = 4 * ranks * 3
    each = (ranks - 1) * size // ranks
    for kind, factor in (
        (CollectiveKind.ALL_REDUCE, 2),
        (CollectiveKind.REDUCE_SCATTER, 1),
        (CollectiveKind.ALL_GATHER, 1),
    ):
        workload = generate_collective(
            CollectiveOperation(kind=kind, size_bytes=size, algorithm=Algorithm.HALVING_DOUBLING), ranks=ranks
        )
        assert sent_per_rank(workload) == [factor * each] * ranks
        assert len(workload.transfers) == factor * power * ranks


@FEW
@given(hosts=st.integers(1, 6), gpus=st.integers(1, 6))
def test_hierarchical_totals(hosts: int, gpus: int) -> None:
    """Of S, 2 (h - 1) / h / g crosses the fabric per GPU, and only along rails; 2 (g - 1) / g stays inside."""
    size = 4 * hosts * gpus * 2
    workload = generate_collective(
        CollectiveOperation(kind=CollectiveKind.ALL_REDUCE, size_bytes=size, algorithm=Algorithm.HIERARCHICAL),
        ranks=hosts * gpus,
        ranks_per_domain=gpus,
    )
    assert sent_per_rank(workload, scale_up=False) == [2 * (hosts - 1) * size // hosts // gpus] * hosts * gpus
    assert sent_per_rank(workload, scale_up=True) == [2 * (gpus - 1) * size // gpus] * hosts * gpus
    for step in workload.transfers:
        assert step.scale_up == (step.source // gpus == step.destination // gpus)
        assert step.scale_up or step.source % gpus == step.destination % gpus


@FEW
@given(gpus=st.integers(2, 6), domains=st.integers(1, 4), blocks=st.integers(1, 3))
def test_pxn_keeps_to_the_rails(gpus: int, domains: int, blocks: int) -> None:
    """A NIC has m - 1 peers instead of g (m - 1), and sends what it did; (g - 1) / g of that went inside before."""
    ranks = gpus * domains

    def build(algorithm: Algorithm) -> Workload:
        operation = CollectiveOperation(
            kind=CollectiveKind.ALL_TO_ALL, size_bytes=4 * ranks * blocks, algorithm=algorithm
        )
        return generate_collective(operation, ranks=ranks, ranks_per_domain=gpus)

    direct, relayed = build(Algorithm.DIRECT), build(Algorithm.PXN)
    over = [step for step in relayed.transfers if not step.scale_up]
    assert all(step.source % gpus == step.destination % gpus for step in over)
    for rank in range(ranks):
        assert len({step.destination for step in over if step.source == rank}) == domains - 1
    leaves = 4 * blocks * (ranks - gpus)
    assert sent_per_rank(relayed, scale_up=False) == sent_per_rank(direct, scale_up=False) == [leaves] * ranks
    inside = 4 * blocks * (gpus - 1) + leaves * (gpus - 1) // gpus
    assert sent_per_rank(relayed, scale_up=True) == [inside] * ranks


@FEW
@given(gpus=st.integers(2, 8), chunks=st.integers(1, 4))
def test_nvls_has_every_piece_pass_the_switch_once(gpus: int, chunks: int) -> None:
    """Each block is an operation that adds up, and one that copies; every other member has a part in both."""
    size = 4 * gpus * chunks
    workload = generate_collective(
        CollectiveOperation(kind=CollectiveKind.ALL_REDUCE, size_bytes=size, algorithm=Algorithm.NVLS, chunks=chunks),
        ranks=gpus,
        ranks_per_domain=gpus,
    )
    operations: dict[int, list[Transfer]] = {}
    for step in workload.transfers:
        assert step.scale_up and step.in_switch is not None
        operations.setdefault(step.in_switch.operation, []).append(step)
    assert len(operations) == 2 * gpus * chunks
    for parts in operations.values():
        one = parts[0].in_switch
        assert one is not None and len(parts) == one.members == gpus - 1
        ends = {step.source if one.multicast else step.destination for step in parts}
        assert len(ends) == 1 and {step.size_bytes for step in parts} == {4}
