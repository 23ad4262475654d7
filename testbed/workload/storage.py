"""Checkpoints: all ranks write to few storage hosts, periodically: an incast as long as the state is large.

Sizes: 30 GB per GPU every 2 to 4 hours, for about 100 s (Qian et al., "Alibaba HPN", SIGCOMM 2024).
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.errors import WorkloadError
from testbed.workload.builder import StepBuilder
from testbed.workload.choices import require_positive
from testbed.workload.steps import Slice, Workload

OPTIMISER_BYTES_PER_PARAMETER = 14
"""A checkpoint of mixed-precision Adam: 2 for the bf16 weights, 12 for the float32 master copy and both moments.

Rajbhandari et al., "ZeRO: Memory optimizations toward training trillion parameter models", SC 2020, section 3.1; the
gradients, 2 more, are not stored."""


def checkpoint_bytes_per_rank(parameters: int, ranks: int) -> int:
    """The bytes that each of `ranks` writes where the state of a model is spread evenly over them."""
    return -(-parameters * OPTIMISER_BYTES_PER_PARAMETER // ranks)


def generate_checkpoint(
    *,
    ranks: int,
    storage: Sequence[int],
    size_bytes: int,
    writers: Sequence[int] | None = None,
    stripes: int = 1,
    in_flight: int = 2,
    checkpoints: int = 1,
    period_ns: int = 0,
    read_back: bool = False,
) -> Workload:
    """Each writer (all ranks that are not storage, unless told) sends `size_bytes` to the `storage` ranks.

    A file is cut into `stripes` written in turn, `in_flight` at once, to one storage rank after the other; writers
    begin with different ones. `checkpoints` begin `period_ns` apart, each at a rank after its last one. `read_back`
    turns all transfers round: a restart.
    """
    require_positive(size_bytes=size_bytes)
    targets = list(storage)
    sources = [rank for rank in range(ranks) if rank not in targets] if writers is None else list(writers)
    if not targets or not sources or set(targets) & set(sources):
        raise WorkloadError("a checkpoint needs writers, and storage ranks that are none of them", field="storage")
    if stripes < 1 or checkpoints < 1 or period_ns < 0 or in_flight < 1:
        raise WorkloadError("there is at least one stripe, one of them under way, and one checkpoint", field="stripes")
    builder = StepBuilder(ranks)
    name = "restart" if read_back else "checkpoint"
    pieces = [piece for piece in Slice(offset=0, length=size_bytes).split(stripes) if piece.length]
    last: dict[int, tuple[int, ...]] = {}
    for checkpoint in range(checkpoints):
        with builder.watch(sources, last) as written:
            for stripe, piece in enumerate(pieces):
                for position, writer in enumerate(sources):
                    target = targets[(position + stripe) % len(targets)]
                    # reading back, the storage rank sends: what it waits for must be its own
                    source, destination = (target, writer) if read_back else (writer, target)
                    builder.transfer(
                        source,
                        destination,
                        piece.length,
                        after=() if read_back else last.get(writer, ()),
                        start_ns=checkpoint * period_ns,
                        lane=(name, writer),
                        in_flight=in_flight,
                        label=f"{name}[{checkpoint}].{writer}.{stripe}",
                    )
        last = dict(written)
    return builder.build(name)
