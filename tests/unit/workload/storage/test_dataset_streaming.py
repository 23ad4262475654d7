"""Datasets that are read while accelerators compute: which bytes, from where, in which order, how far ahead."""

import random
from collections import Counter, defaultdict
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from local_waits import check_local

from testbed.base.errors import WorkloadError
from testbed.workload.steps import Compute, Transfer, Workload
from testbed.workload.storage import DATASETS, DatasetStreaming, generate_dataset_streaming
from testbed.workload.storage.datasets import ACCELERATORS, Read, batches_of, deal_epoch


def make(ranks: int = 5, seed: int = 1, **choice: object) -> Workload:
    streaming = DatasetStreaming(**({"storage": 2, "batches": 4} | choice))  # type: ignore[arg-type]
    return generate_dataset_streaming(streaming, ranks=ranks, rng=random.Random(seed))


def files_read(workload: Workload, epoch: int, host: int) -> list[str]:
    begin = f"epoch{epoch}."
    mine = [step for step in workload.transfers if step.label.startswith(begin) and step.destination == host]
    return [step.label.partition(".file")[2] for step in mine]


def test_rates_are_those_of_mlperf_storage() -> None:
    """What an accelerator reads in a second when it never waits, in GB/s."""
    found = {
        (dataset.name, accelerator): dataset.sample_bytes * dataset.batch / dataset.compute_ns[accelerator]
        for dataset in DATASETS.values()
        for accelerator in ACCELERATORS
    }
    assert found == pytest.approx(
        {
            ("unet3d", "h100"): 3.177,
            ("unet3d", "a100"): 1.614,
            ("cosmoflow", "h100"): 0.808,
            ("cosmoflow", "a100"): 0.513,
            ("resnet50", "h100"): 0.2048,
            ("resnet50", "a100"): 0.1054,
        },
        rel=2e-3,
    )


@given(
    name=st.sampled_from(sorted(DATASETS)),
    hosts=st.integers(1, 3),
    targets=st.integers(1, 3),
    accelerators=st.integers(1, 3),
    batches=st.integers(1, 4),
    epochs=st.integers(1, 2),
    readers=st.integers(1, 5),
    prefetch=st.integers(0, 3),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
def test_every_host_reads_whole_batches_and_nothing_twice(
    name: str,
    hosts: int,
    targets: int,
    accelerators: int,
    batches: int,
    epochs: int,
    readers: int,
    prefetch: int,
    seed: int,
) -> None:
    dataset = DATASETS[name]
    workload = make(
        hosts + targets,
        seed,
        dataset=name,
        storage=targets,
        accelerators=accelerators,
        batches=batches,
        epochs=epochs,
        readers=readers,
        prefetch=prefetch,
    )
    check_local(workload)
    assert all(step.pulled and step.source >= hosts > step.destination for step in workload.transfers)
    for epoch in range(epochs):
        mine = [step for step in workload.transfers if step.label.startswith(f"epoch{epoch}.")]
        pieces = Counter(step.label.partition(".file")[2] for step in mine)
        assert set(pieces.values()) == {1}
        for step in mine:
            file = int(step.label.partition(".file")[2].split(".")[0])
            assert step.source == hosts + file % targets, "a file is on one target"
        share = dataset.sample_bytes * dataset.batch * accelerators * batches * 0.001
        for host in range(hosts):
            read_bytes = sum(step.size_bytes for step in mine if step.destination == host)
            assert read_bytes == pytest.approx(share, rel=2 * dataset.stdev_bytes / dataset.sample_bytes + 0.01)
    computed = [step for step in workload.steps if isinstance(step, Compute)]
    assert len(computed) == hosts * batches * epochs
    assert all(step.is_batch and step.duration_ns == dataset.compute_ns["h100"] // 1000 for step in computed)


def test_a_batch_waits_for_its_reads_and_reads_wait_for_their_turn() -> None:
    workload = make(3, storage=1, hosts=(0, 1), dataset="cosmoflow", batches=6, accelerators=4, readers=1, prefetch=1)
    mine = [step for step in workload.steps if not isinstance(step, Transfer) or step.destination == 0]
    reads = [step for step in mine if isinstance(step, Transfer)]
    batches = [step for step in mine if isinstance(step, Compute) and step.rank == 0]
    assert len(reads) == 24 and len(batches) == 6
    for number, batch in enumerate(batches):
        there = {read.number for read in reads[4 * number : 4 * number + 4]}
        assert set(batch.after) == there | ({batches[number - 1].number} if number else set())
    for number, read in enumerate(reads):
        ahead = {batches[number // 4 - 2].number} if number >= 8 else set()
        before = {reads[number - 4].number} if number >= 4 else set()
        assert set(read.after) == ahead | before, "one batch ahead, four reads at once"


def test_without_prefetch_reading_and_computing_take_turns() -> None:
    workload = make(2, storage=1, dataset="cosmoflow", batches=3, prefetch=0)
    steps = [(type(step).__name__, step.after) for step in workload.steps]
    assert steps == [
        ("Transfer", ()),
        ("Compute", (0,)),
        ("Transfer", (1,)),
        ("Compute", (1, 2)),
        ("Transfer", (3,)),
        ("Compute", (3, 4)),
    ]


def test_each_epoch_has_an_order_of_its_own_which_the_seed_says() -> None:
    workload, again, other = make(epochs=2), make(epochs=2), make(epochs=2, seed=2)
    assert workload == again != other
    orders = [[files_read(workload, epoch, host) for host in range(3)] for epoch in range(2)]
    assert orders[0] != orders[1]
    assert sorted(chain(*orders[0])) == sorted(chain(*orders[1])), "the same files, which are dealt anew"
    assert sorted(orders[0][0]) != sorted(orders[1][0])


def test_sizes_differ_from_file_to_file_and_stay_over_epochs() -> None:
    workload = make(2, storage=1, batches=200, epochs=2)
    sizes: dict[str, set[int]] = defaultdict(set)
    for step in workload.transfers:
        sizes[step.label.partition(".file")[2]].add(step.size_bytes)
    assert all(len(one) == 1 for one in sizes.values())
    drawn = [one for (one,) in sizes.values()]
    assert sum(drawn) / len(drawn) == pytest.approx(146_600, rel=0.05)
    assert min(drawn) > 9_900 and len(set(drawn)) > 1000


def test_reads_of_a_file_with_many_samples_are_cut_where_it_ends_and_where_a_batch_does() -> None:
    dataset = DATASETS["resnet50"]
    dealt = deal_epoch(dataset, files=2, shares=2, samples=1200, samples_per_read=40, rng=random.Random(3))
    for reads in dealt:
        assert sum(read.samples for read in reads) == 1200
        batches = list(batches_of(reads, 400))
        assert [sum(read.samples for read in batch) for batch in batches] == [400, 400, 400]
    seen = [(read.file, read.first + n) for reads in dealt for read in reads for n in range(read.samples)]
    assert len(set(seen)) == 2400 and all(sample < 1251 for _, sample in seen)
    assert list(batches_of([Read(0, 0, 5)], 2)) == [[Read(0, 0, 2)], [Read(0, 2, 2)]], "what is left is dropped"


@pytest.mark.parametrize(("choice", "field"), [({"hosts": (4,)}, "storage"), ({"storage": 5}, "storage")])
def test_what_does_not_fit_names_its_parameter(choice: dict[str, object], field: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        make(**choice)  # type: ignore[arg-type]
    assert caught.value.field == field
