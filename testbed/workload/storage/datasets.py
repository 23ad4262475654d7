"""Training hosts that read batches of a dataset from storage, in a new order in each epoch, while they compute.

The shapes are those of MLPerf Storage, which emulates the accelerators, too: a batch is a time in which nothing is
computed. Each host has readers, of which every one reads one piece of a file after the other, and they read ahead by
some batches. Where storage is too slow, accelerators wait: `accelerator_utilisation` says how much.

The order is drawn as DLIO's `file_shuffle: seed` and `sample_shuffle: seed` have it: in each epoch the files are
shuffled and dealt to the hosts, and each host shuffles what it got.

Source: MLPerf Storage v2.0, Submission_guidelines.md; argonne-lcf/dlio_benchmark, configs/workload.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from testbed.workload.builder import Lane, StepBuilder
from testbed.workload.draws import draw_normal, draw_order
from testbed.workload.parameters import asked, choice, number, some_ranks, whole
from testbed.workload.steps import Workload
from testbed.workload.storage.places import STORAGE, storage_and_users

MOST_DEVIATIONS = 2.0
"""Sizes of files are drawn from a normal distribution that is cut off at so many standard deviations on both sides, so
that all are above 0 and their mean stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A dataset as MLPerf Storage has it, and what an accelerator does with a batch of it."""

    name: str
    sample_bytes: float
    """The mean over all samples."""
    stdev_bytes: float
    """The standard deviation of the size from file to file."""
    samples_per_file: int
    samples_per_read: int
    """The number of neighbouring samples of a file that a reader gets at once."""
    batch: int
    """Samples of a batch, for each accelerator."""
    compute_ns: Mapping[str, int]
    """The time of a batch, by accelerator."""
    pass_mark: float
    """The least utilisation with which a submission passes."""


DATASETS: Mapping[str, Dataset] = {
    "unet3d": Dataset(
        name="unet3d",
        sample_bytes=146_600_628,
        stdev_bytes=68_341_808,
        samples_per_file=1,
        samples_per_read=1,
        batch=7,
        compute_ns={"h100": 323_000_000, "a100": 636_000_000},
        pass_mark=0.9,
    ),
    "cosmoflow": Dataset(
        name="cosmoflow",
        sample_bytes=2_828_486,
        stdev_bytes=71_311,
        samples_per_file=1,
        samples_per_read=1,
        batch=1,
        compute_ns={"h100": 3_500_000, "a100": 5_510_000},
        pass_mark=0.7,
    ),
    "resnet50": Dataset(
        name="resnet50",
        sample_bytes=114_660.07,
        stdev_bytes=0,
        samples_per_file=1251,
        samples_per_read=40,
        batch=400,
        compute_ns={"h100": 224_000_000, "a100": 435_000_000},
        pass_mark=0.9,
    ),
}
"""By name. A read of ResNet-50 is of 4.6 MB: its files (TFRecord) are read from begin to end, not sample by sample."""
ACCELERATORS = ("h100", "a100")


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetStreaming:
    """Datasets that are read: which, by whom, and how far ahead."""

    dataset: str = asked(choice("dataset", "unet3d", tuple(DATASETS), "Names the dataset, as MLPerf Storage has it."))
    accelerator: str = asked(choice("accelerator", "h100", ACCELERATORS, "Names what computes on the batches."))
    accelerators: int = asked(
        whole("accelerators", 1, "Says how many accelerators a host has; they go in step.", high=1024)
    )
    storage: int | tuple[int, ...] = asked(STORAGE)
    hosts: int | tuple[int, ...] | None = asked(
        some_ranks("hosts", None, "Says how many ranks train, or which; by default all that are not storage.")
    )
    batches: int = asked(whole("batches", 8, "Says how many batches of an epoch each accelerator has.", high=100_000))
    epochs: int = asked(
        whole("epochs", 1, "Says how often the dataset is read, in a new order each time.", high=10_000)
    )
    readers: int = asked(
        whole("readers", 4, "Says how many reads are under way at once, for each accelerator.", high=100_000)
    )
    prefetch: int = asked(
        whole("prefetch", 2, "Says how many batches are read ahead of the one that is computed.", low=0, high=100_000)
    )
    samples_per_read: int | None = asked(
        whole(
            "samples_per_read",
            None,
            "Says how many neighbouring samples of a file are read at once; by default 40 of resnet50, else 1.",
        )
    )
    bytes_factor: float = asked(
        number(
            "bytes_factor",
            0.001,
            "Multiplies the bytes of the dataset and the times of its batches, so that the rate stays.",
            low=1e-9,
            high=1000,
        )
    )


@dataclass(frozen=True, slots=True)
class Read:
    """Neighbouring samples of one file."""

    file: int
    first: int
    samples: int

    def split(self, samples: int) -> tuple[Read, Read]:
        """The first so many samples, and the rest."""
        return Read(self.file, self.first, samples), Read(self.file, self.first + samples, self.samples - samples)


def generate_dataset_streaming(streaming: DatasetStreaming, *, ranks: int, rng: random.Random) -> Workload:
    """Each host reads its batches, and computes on one when all of it is there and the one before is done.

    The files are spread over the storage ranks, one on each in turn. A reader begins its next read when its last one
    has ended; a batch is not begun to be read before the one that stands `prefetch` + 1 before it is computed. Epochs
    follow each other without a pause. The hosts do not wait for each other.
    """
    targets, hosts = storage_and_users(
        streaming.storage, streaming.hosts, ranks=ranks, name="hosts", what="reading a dataset"
    )
    dataset, factor = DATASETS[streaming.dataset], streaming.bytes_factor
    samples = dataset.batch * streaming.accelerators
    files = _draw_sample_bytes(dataset, -(-samples * streaming.batches * len(hosts) // dataset.samples_per_file), rng)
    compute_ns = round(dataset.compute_ns[streaming.accelerator] * factor)
    builder = StepBuilder(ranks)
    computed: dict[int, list[int]] = {host: [] for host in hosts}
    for epoch in range(streaming.epochs):
        dealt = deal_epoch(
            dataset,
            files=len(files),
            shares=len(hosts),
            samples=samples * streaming.batches,
            samples_per_read=streaming.samples_per_read or dataset.samples_per_read,
            rng=rng,
        )
        cut = [list(batches_of(reads, samples)) for reads in dealt]
        for batch in range(streaming.batches):
            for host, batches in zip(hosts, cut, strict=True):
                done = computed[host]
                ahead = done[-streaming.prefetch - 1 :][:1] if len(done) > streaming.prefetch else []
                label = f"epoch{epoch}.batch{batch}"
                there = [
                    builder.transfer(
                        targets[read.file % len(targets)],
                        host,
                        max(1, round(read.samples * files[read.file] * factor)),
                        after=ahead,
                        lane=Lane(name="reads", in_flight=streaming.readers * streaming.accelerators),
                        pulled=True,
                        label=f"{label}.file{read.file}.{read.first}",
                    )
                    for read in batches[batch]
                ]
                done.append(builder.compute(host, compute_ns, after=[*there, *done[-1:]], is_batch=True, label=label))
    builder.note("Accelerators wait a time for each batch and compute nothing, as in MLPerf Storage.")
    if factor != 1:
        builder.note(f"Of the bytes of {dataset.name}, and of the times of its batches, {factor:g} are modelled.")
    return builder.build("dataset-streaming")


def deal_epoch(
    dataset: Dataset, *, files: int, shares: int, samples: int, samples_per_read: int, rng: random.Random
) -> list[list[Read]]:
    """Draw an order of the files, deal `samples` of them to each of `shares`, and draw an order of each one's reads.

    No sample is dealt twice. What is left of the last files is not read in this epoch.
    """
    order = draw_order(rng, range(files))
    dealt = []
    for share in range(shares):
        at, end = share * samples, (share + 1) * samples
        reads = []
        while at < end:
            place, first = divmod(at, dataset.samples_per_file)
            count = min(samples_per_read, dataset.samples_per_file - first, end - at)
            reads.append(Read(order[place], first, count))
            at += count
        dealt.append(draw_order(rng, reads))
    return dealt


def batches_of(reads: Sequence[Read], samples: int) -> Iterator[list[Read]]:
    """Yield the reads of one batch of so many samples after the other; one that belongs to two is cut."""
    batch: list[Read] = []
    missing = samples
    for read in reads:
        rest = read
        while rest.samples >= missing:
            part, rest = rest.split(missing)
            yield [*batch, part]
            batch, missing = [], samples
        if rest.samples:
            batch.append(rest)
            missing -= rest.samples


def _draw_sample_bytes(dataset: Dataset, files: int, rng: random.Random) -> list[float]:
    """The mean size of a sample in each file."""
    found: list[float] = []
    while len(found) < files:
        deviation = draw_normal(rng) if dataset.stdev_bytes else 0.0
        if abs(deviation) <= MOST_DEVIATIONS:
            found.append(dataset.sample_bytes + deviation * dataset.stdev_bytes)
    return found
