"""Ring collectives: every rank receives from the one before and sends to the next.

ReduceScatter and AllGather take n - 1 steps of a block each, AllReduce one after the other: 2 (n - 1) / n of the array
per rank, the least possible (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
workstations", J. Parallel Distrib. Comput. 69, 2009). Broadcast and Reduce are NCCL's pipelined chains.
"""

from __future__ import annotations

from testbed.workload.collectives.group import Group
from testbed.workload.steps import Combine, Slice

Arrivals = dict[tuple[int, int, int], tuple[int, ...]]
"""For a rank's index, a block and a chunk of it: the step that brought it."""


def ring_reduce_scatter(group: Group, blocks: tuple[Slice, ...]) -> None:
    """The member with index i ends with the sum of block i. A member sends all blocks but its own, once."""
    _circulate(group, _cut(group, blocks), shift=1, combine=Combine.REDUCE, arrived={}, phase="reduce-scatter")


def ring_all_gather(group: Group, blocks: tuple[Slice, ...]) -> None:
    """The member with index i begins with block i; all end with all blocks."""
    _circulate(group, _cut(group, blocks), shift=0, combine=Combine.COPY, arrived={}, phase="all-gather")


def ring_all_reduce(group: Group, array: Slice) -> None:
    """ReduceScatter, then AllGather of what it left, block by block as they are done."""
    cut = _cut(group, array.split(group.size))
    arrived: Arrivals = {}
    _circulate(group, cut, shift=1, combine=Combine.REDUCE, arrived=arrived, phase="reduce-scatter")
    _circulate(group, cut, shift=0, combine=Combine.COPY, arrived=arrived, phase="all-gather")


def folded_ring(group: Group, elements: int, *, passes: int) -> None:
    """All rounds of ReduceScatter or AllGather (one pass), or of both (two), in one step. Blocks are as large as the
    largest."""
    block = -(-elements // group.size)
    entry = {number for before in group.entry.values() for number in before}
    group.builder.ring(
        group.ranks,
        block * group.datatype.size_bytes,
        rounds=passes * (group.size - 1),
        chunks=min(group.chunks, block),
        after=entry,
        label=group.label,
    )


def ring_broadcast(group: Group, array: Slice, *, root: int) -> None:
    """The root's array goes down a chain to all, chunk after chunk. `root` is an index of the group."""
    for number, chunk in enumerate(array.split(group.chunks)):
        arrived: tuple[int, ...] = ()
        for hop in range(group.size - 1):
            source, destination = (root + hop) % group.size, (root + hop + 1) % group.size
            what = f"broadcast.{number}"
            arrived = group.send(source, destination, chunk, after=arrived, what=what, lane="chain")


def ring_reduce(group: Group, array: Slice, *, root: int) -> None:
    """A chain that ends at the root adds each member's array on the way, chunk after chunk."""
    for number, chunk in enumerate(array.split(group.chunks)):
        arrived: tuple[int, ...] = ()
        for hop in range(1, group.size):
            source, destination = (root + hop) % group.size, (root + hop + 1) % group.size
            what = f"reduce.{number}"
            arrived = group.send(
                source, destination, chunk, after=arrived, combine=Combine.REDUCE, what=what, lane="chain"
            )


def _cut(group: Group, blocks: tuple[Slice, ...]) -> list[tuple[Slice, ...]]:
    return [block.split(group.chunks) for block in blocks]


def _circulate(
    group: Group,
    cut: list[tuple[Slice, ...]],
    *,
    shift: int,
    combine: Combine,
    arrived: Arrivals,
    phase: str,
) -> None:
    """n - 1 steps in which member i sends block i - step - `shift` to the next one, once it has it."""
    for step in range(group.size - 1):
        for chunk in range(group.chunks):
            for index in range(group.size):
                block = (index - step - shift) % group.size
                following = (index + 1) % group.size
                arrived[following, block, chunk] = group.send(
                    index,
                    following,
                    cut[block][chunk],
                    after=arrived.get((index, block, chunk), ()),
                    combine=combine,
                    what=f"{phase}.{step}",
                    lane="ring",
                )
