"""A collective as a trace asks for it, and what turns it into steps: a function handed in, or the one here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from testbed.workload.builder import Frontier, StepBuilder
from testbed.workload.collectives.algorithms import add_collective
from testbed.workload.collectives.datatype import DataType
from testbed.workload.collectives.operation import CollectiveOperation


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRequest:
    """A collective between two ranks or more.

    `kind` is one of `Collective.kind`; `size_bytes` is S as nccl-tests has it for that kind (of `all_gather` and
    `reduce_scatter` the whole array, of `all_to_all` a rank's whole buffer); `root` is a rank, not an index of `ranks`.
    `after` says what each rank waits for before it takes part.
    """

    kind: str
    ranks: tuple[int, ...]
    size_bytes: int
    after: Mapping[int, tuple[int, ...]]
    root: int | None = None
    label: str = ""


class CollectiveExpander(Protocol):
    """Adds a collective's steps to `builder`, and says for each of its ranks which steps end it there."""

    def __call__(self, builder: StepBuilder, request: CollectiveRequest) -> Frontier: ...


def expand_collective(builder: StepBuilder, request: CollectiveRequest) -> Frontier:
    """Each kind with its default algorithm (`collectives.operation`) on float32.

    Traces count bytes and not elements: a size is rounded up to whole elements, of an all-to-all to one for each rank.
    """
    unit = DataType.FLOAT32.size_bytes * (len(request.ranks) if request.kind == "all_to_all" else 1)
    size_bytes = -(-request.size_bytes // unit) * unit
    if size_bytes != request.size_bytes:
        builder.note("sizes of collectives were rounded up to whole float32 elements")
    return add_collective(
        builder,
        CollectiveOperation(kind=request.kind, size_bytes=size_bytes),
        members=request.ranks,
        root=request.root,
        after=request.after,
        label=request.label,
    )
