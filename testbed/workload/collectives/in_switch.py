"""AllReduce in the switches of a scale-up domain: NVLink SHARP, which NCCL calls NVLS (H100 and later).

Each GPU owns a block of the array. It reads the sum of all GPUs' copies of it, which the switch forms (multimem
load-reduce), and stores it to all at once (multimem store, which the switch multiplies). A GPU so sends, and receives,
S for the sums of all or the copies of all, and S / g for its own: S (1 + 1/g) each way, instead of 2 (g - 1) / g S with
a ring.
"""

from __future__ import annotations

from testbed.workload.collectives.group import Group
from testbed.workload.steps import Combine, InSwitch, Slice

OPERATIONS = 256
"""About how many pieces an array is cut into, so that sums and copies of different pieces overlap."""
IN_FLIGHT = 16
"""The number of sums that a GPU has its part of under way at once: few against `OPERATIONS`, and more than the links'
latency needs."""


def in_switch_chunks(gpus: int) -> int:
    """Return how many chunks make about `OPERATIONS` pieces, of which a chunk has one for each GPU."""
    return max(1, OPERATIONS // gpus)


def in_switch_all_reduce(group: Group, array: Slice, *, chunks: int) -> None:
    """Every block is stored to all as soon as its sum is there, chunk by chunk."""
    for number, part in enumerate(array.split(chunks)):
        blocks = part.split(group.size)
        for owner, block in enumerate(blocks):
            summed = in_switch_reduce(group, block, owner=owner, what=f"load-reduce.{number}")
            in_switch_store(group, block, owner=owner, what=f"store.{number}", after=summed)


def in_switch_reduce_scatter(group: Group, blocks: tuple[Slice, ...]) -> None:
    """The member with index i ends with the sum of block i."""
    for owner, block in enumerate(blocks):
        in_switch_reduce(group, block, owner=owner, what=f"load-reduce.{owner}")


def in_switch_all_gather(group: Group, blocks: tuple[Slice, ...]) -> None:
    """The member with index i begins with block i; all end with all blocks."""
    for owner, block in enumerate(blocks):
        in_switch_store(group, block, owner=owner, what=f"store.{owner}")


def in_switch_reduce(group: Group, block: Slice, *, owner: int, what: str) -> tuple[int, ...]:
    """The owner gets the sum of a block; returns what it waits for to have it.

    All members' parts begin in the order of the owners, so that the switch has those of one sum at about one time.
    """
    part = _part(group, multicast=False)
    steps: tuple[int, ...] = ()
    for source in range(group.size):
        if source != owner:
            steps += group.send(
                source,
                owner,
                block,
                combine=Combine.REDUCE,
                what=what,
                lane="load-reduce",
                window=IN_FLIGHT,
                in_switch=part,
            )
    return steps


def in_switch_store(group: Group, block: Slice, *, owner: int, what: str, after: tuple[int, ...] = ()) -> None:
    """The owner's block goes to all others."""
    part = _part(group, multicast=True)
    ready = group.builder.join(group.ranks[owner], after)
    for destination in range(group.size):
        if destination != owner:
            group.send(
                owner,
                destination,
                block,
                after=ready,
                what=what,
                lane="store",
                window=group.size * IN_FLIGHT,
                in_switch=part,
            )


def _part(group: Group, *, multicast: bool) -> InSwitch:
    return InSwitch(operation=group.builder.next_number, members=group.size - 1, multicast=multicast)
