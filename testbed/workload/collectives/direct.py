"""Collectives in which every piece goes straight from where it is to where it is wanted.

This is how NCCL and nccl-tests do all-to-all, gather, scatter and send/receive: grouped point-to-point calls.
"""

from __future__ import annotations

from testbed.workload.collectives.group import Group
from testbed.workload.steps import Combine, Slice


def direct_all_to_all(group: Group, elements: int, *, window: int | None) -> None:
    """Block j of member i becomes block i of member j.

    An array is the send buffer (`elements`, a multiple of n) and the receive buffer behind it. Member i sends to
    i + 1, i + 2, ... in turn, `window` transfers at a time: 1 is serial, None is all at once.
    """
    blocks = Slice(offset=0, length=elements).split(group.size)
    for distance in range(1, group.size):
        for index in range(group.size):
            destination = (index + distance) % group.size
            piece = blocks[destination]
            group.send(
                index,
                destination,
                piece,
                target=Slice(offset=elements + blocks[index].offset, length=piece.length),
                what=f"{distance}",
                lane="all-to-all",
                window=group.size if window is None else window,
            )


def direct_rooted(group: Group, blocks: tuple[Slice, ...], *, root: int, gather: bool) -> None:
    """Member i's block i comes together at the root, an incast; or the root's block i goes to member i, an outcast."""
    for distance in range(1, group.size):
        index = (root + distance) % group.size
        ends = (index, root) if gather else (root, index)
        for chunk in blocks[index].split(group.chunks):
            group.send(*ends, chunk, what=f"{distance}", lane="gather" if gather else "scatter")


def direct_send_recv(group: Group, elements: int) -> None:
    """Member i sends its array to i + 1: nccl-tests' `sendrecv_perf`. The receive buffer stands behind the array."""
    if group.size < 2:
        return
    for chunk in Slice(offset=0, length=elements).split(group.chunks):
        target = Slice(offset=elements + chunk.offset, length=chunk.length)
        for index in range(group.size):
            following = (index + 1) % group.size
            group.send(index, following, chunk, target=target, what="send-recv", lane="send-recv")


def direct_reduce_scatter(group: Group, blocks: tuple[Slice, ...]) -> None:
    """Every member sends block i to member i, which adds it: one step, over a switch that joins all (NVSwitch)."""
    for distance in range(1, group.size):
        for index in range(group.size):
            destination = (index + distance) % group.size
            group.send(index, destination, blocks[destination], combine=Combine.REDUCE, what=f"{distance}")


def direct_all_gather(group: Group, blocks: tuple[Slice, ...]) -> None:
    """Every member sends its block to all others."""
    for distance in range(1, group.size):
        for index in range(group.size):
            group.send(index, (index + distance) % group.size, blocks[index], what=f"{distance}")
