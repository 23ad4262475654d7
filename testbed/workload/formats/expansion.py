"""The steps of a collective as a trace asks for it."""

from __future__ import annotations

from collections.abc import Mapping

from testbed.workload.builder import Frontier, StepBuilder
from testbed.workload.collectives.algorithms import add_collective
from testbed.workload.collectives.datatype import DataType
from testbed.workload.collectives.operation import CollectiveOperation


def expand_collective(
    builder: StepBuilder,
    kind: str,
    ranks: tuple[int, ...],
    size_bytes: int,
    *,
    after: Mapping[int, tuple[int, ...]],
    root: int | None = None,
    label: str = "",
) -> Frontier:
    """Add a collective between two ranks or more, with its default algorithm on float32; return what ends it at each.

    `kind` is one of `Collective.kind`; `size_bytes` is S as nccl-tests has it for that kind (of `all_gather` and
    `reduce_scatter` the whole array, of `all_to_all` a rank's whole buffer); `root` is a rank, not an index of `ranks`.
    `after` says what each rank waits for before it takes part. Traces count bytes and not elements: a size is rounded
    up to whole elements, of an all-to-all to one for each rank.
    """
    unit = DataType.FLOAT32.size_bytes * (len(ranks) if kind == "all_to_all" else 1)
    whole_bytes = -(-size_bytes // unit) * unit
    if whole_bytes != size_bytes:
        builder.note("sizes of collectives were rounded up to whole float32 elements")
    operation = CollectiveOperation(kind=kind, size_bytes=whole_bytes)
    return add_collective(builder, operation, members=ranks, root=root, after=after, label=label)
