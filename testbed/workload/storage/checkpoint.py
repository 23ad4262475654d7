"""Checkpoints: all ranks write to few storage hosts, periodically: an incast as long as the state is large.

Sizes: 30 GB per GPU every 2 to 4 hours, for about 100 s (Qian et al., "Alibaba HPN", SIGCOMM 2024).
"""

from __future__ import annotations

from dataclasses import dataclass

from testbed.base.errors import WorkloadError
from testbed.workload.builder import Lane, StepBuilder
from testbed.workload.models.language_models import language_model, model_choice
from testbed.workload.parameters import asked, duration, flag, number, size, some_ranks, whole
from testbed.workload.steps import Slice, Workload
from testbed.workload.storage.places import STORAGE, storage_and_users

OPTIMISER_BYTES_PER_PARAMETER = 14
"""A checkpoint of mixed-precision Adam: 2 for the bf16 weights, 12 for the float32 master copy and both moments.

Rajbhandari et al., "ZeRO: Memory optimizations toward training trillion parameter models", SC 2020, section 3.1; the
gradients, 2 more, are not stored."""


def checkpoint_bytes_per_rank(parameters: int, ranks: int) -> int:
    """The bytes that each of `ranks` writes where the state of a model is spread evenly over them."""
    return -(-parameters * OPTIMISER_BYTES_PER_PARAMETER // ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint that is written to storage, or read back, and by whom."""

    size_bytes: int = asked(size("bytes", "16MB", "Says what each writer writes."))
    storage: int | tuple[int, ...] = asked(STORAGE)
    writers: int | tuple[int, ...] | None = asked(
        some_ranks("writers", None, "Says how many ranks write, or which; by default all that are not storage.")
    )
    stripes: int = asked(
        whole(
            "stripes",
            1,
            "Says in how many parts a file is written, to one storage rank after the other.",
            high=100_000,
        )
    )
    in_flight: int = asked(
        whole("in_flight", 2, "Says how many stripes of a writer are under way at once.", high=100_000)
    )
    checkpoints: int = asked(
        whole("checkpoints", 1, "Says how many checkpoints there are; a tenant may have none.", low=0, high=100_000)
    )
    period_ns: int = asked(
        duration("period", "0ns", "Gives the time from the begin of one checkpoint to that of the next.")
    )
    read_back: bool = asked(flag("read_back", "Turns the transfers round: a restart."))
    restore: bool = asked(
        flag(
            "restore", "Has each writer read its last checkpoint when it is written; NVMe/TCP checks those very bytes."
        )
    )
    model: str | None = asked(
        model_choice("Takes the bytes from the optimiser's state of this model, spread over the writers.")
    )
    bytes_factor: float = asked(
        number("bytes_factor", 0.001, "Multiplies, with a model, its bytes.", low=1e-9, high=1000)
    )


def generate_checkpoint(checkpoint: Checkpoint, *, ranks: int) -> Workload:
    """Each writer sends its file to the storage ranks.

    A file is cut into stripes written in turn, `in_flight` at once, to one storage rank after the other; writers begin
    with different ones. Checkpoints begin `period_ns` apart, each at a rank after its last one. `read_back` turns all
    transfers round. With `restore` a writer whose last checkpoint is written reads it, stripe by stripe, from where it
    is.
    """
    targets, sources = storage_and_users(
        checkpoint.storage, checkpoint.writers, ranks=ranks, name="writers", what="a checkpoint"
    )
    stripes, in_flight, period_ns = checkpoint.stripes, checkpoint.in_flight, checkpoint.period_ns
    if checkpoint.read_back and checkpoint.restore:
        raise WorkloadError("with read_back nothing is written that could be restored", field="restore")
    if checkpoint.restore and not checkpoint.checkpoints:
        raise WorkloadError("of no checkpoint nothing is restored", field="restore")
    builder = StepBuilder(ranks)
    size_bytes = _size_bytes(checkpoint, len(sources), builder)
    name = "restart" if checkpoint.read_back else "checkpoint"
    pieces = [piece for piece in Slice(offset=0, length=size_bytes).split(stripes) if piece.length]
    last: dict[int, tuple[int, ...]] = {}
    latest: list[tuple[int, int, int]] = []
    for turn in range(checkpoint.checkpoints):
        latest.clear()
        with builder.watch(sources, last) as written:
            for stripe, piece in enumerate(pieces):
                for position, writer in enumerate(sources):
                    target = targets[(position + stripe) % len(targets)]
                    # reading back, the storage rank sends: what it waits for must be its own
                    source, destination = (target, writer) if checkpoint.read_back else (writer, target)
                    number = builder.transfer(
                        source,
                        destination,
                        piece.length,
                        after=() if checkpoint.read_back else last.get(writer, ()),
                        start_ns=turn * period_ns,
                        lane=Lane(name=(name, writer), in_flight=in_flight),
                        label=f"{name}[{turn}].{writer}.{stripe}",
                    )
                    latest.append((number, source, stripe))
        last = dict(written)
    if checkpoint.restore:
        for number, writer, stripe in latest:
            builder.transfer(
                targets[(sources.index(writer) + stripe) % len(targets)],
                writer,
                pieces[stripe].length,
                after=last[writer],
                lane=Lane(name=("restore", writer), in_flight=in_flight),
                pulled=True,
                restores=number,
                label=f"restore.{writer}.{stripe}",
            )
    return builder.build(name)


def _size_bytes(checkpoint: Checkpoint, writers: int, builder: StepBuilder) -> int:
    """The bytes of a writer's file; where a model says them, the share that is modelled is noted."""
    if checkpoint.model is None:
        return checkpoint.size_bytes
    model = language_model(checkpoint.model)
    builder.note(f"Of the bytes of a checkpoint of {model.name} {checkpoint.bytes_factor:g} are modelled.")
    return max(1, round(checkpoint_bytes_per_rank(model.parameters, writers) * checkpoint.bytes_factor))
