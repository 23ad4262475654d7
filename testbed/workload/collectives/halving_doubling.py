"""Recursive halving and doubling: log2(n) exchanges with partners at distances that are powers of two.

AllReduce is ReduceScatter by recursive halving of the vector at doubling distance, then AllGather the same way back
("butterfly"). Where n is not a power of two, the first 2 (n - 2^k) ranks work in pairs: the even one hands its array to
the odd one first and gets the result last. Source: Thakur, Rabenseifner and Gropp, "Optimization of collective
communication operations in MPICH", Int. J. High Perform. Comput. Appl. 19(1), 2005, section 4.5; Rabenseifner, 2004.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.workload.collectives.group import Group
from testbed.workload.steps import Combine, Slice


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """A power of two of the members ("participants") for the exchanges; the others hand over to a neighbour."""

    participants: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]
    """Who hands over, and to which participant."""


def fold(size: int) -> Fold:
    """The first 2 r of `size` members are pairs, r being what `size` is above a power of two."""
    power = 1 << (size.bit_length() - 1)
    extra = size - power
    pairs = tuple((2 * i, 2 * i + 1) for i in range(extra))
    return Fold(participants=tuple(2 * i + 1 if i < extra else i + extra for i in range(power)), pairs=pairs)


def halving_doubling_all_reduce(group: Group, array: Slice) -> None:
    """Each chunk of the array by itself: 2 (n - 1) / n of it per rank where n is a power of two."""
    folded = fold(group.size)
    masks = [1 << bit for bit in range(len(folded.participants).bit_length() - 1)]
    for number, chunk in enumerate(array.split(group.chunks)):
        parts = chunk.split(len(folded.participants))
        have: dict[int, tuple[int, ...]] = {}
        for giver, taker in folded.pairs:
            what = f"fold.{number}"
            have[taker] = group.send(giver, taker, chunk, combine=Combine.REDUCE, what=what, lane="fold")
        for halving in (True, False):
            _exchange(group, folded.participants, parts, masks, have, chunk=number, halving=halving)
        for giver, taker in folded.pairs:
            group.send(taker, giver, chunk, after=have[taker], what=f"unfold.{number}", lane="unfold")


def halving_reduce_scatter(group: Group, blocks: tuple[Slice, ...]) -> None:
    """The member with index i ends with the sum of block i. Distances halve, so that the blocks stay in order."""
    folded = fold(group.size)
    have: dict[int, tuple[int, ...]] = {}
    whole = _span(blocks)
    for giver, taker in folded.pairs:
        have[taker] = group.send(giver, taker, whole, combine=Combine.REDUCE, what="fold", lane="fold")
    _exchange(group, folded.participants, _merged(folded, blocks), _from_far(folded), have, halving=True)
    for giver, taker in folded.pairs:
        group.send(taker, giver, blocks[giver], after=have[taker], what="unfold", lane="unfold")


def doubling_all_gather(group: Group, blocks: tuple[Slice, ...]) -> None:
    """The member with index i begins with block i; all end with all blocks."""
    folded = fold(group.size)
    have: dict[int, tuple[int, ...]] = {}
    for giver, taker in folded.pairs:
        have[taker] = group.send(giver, taker, blocks[giver], what="fold", lane="fold")
    _exchange(group, folded.participants, _merged(folded, blocks), _from_far(folded), have, halving=False)
    whole = _span(blocks)
    for giver, taker in folded.pairs:
        group.send(taker, giver, whole, after=have[taker], what="unfold", lane="unfold")


def _exchange(
    group: Group,
    participants: Sequence[int],
    parts: Sequence[Slice],
    masks: Sequence[int],
    have: dict[int, tuple[int, ...]],
    *,
    chunk: int = 0,
    halving: bool,
) -> None:
    """In every round partners p and p ^ mask share an interval of parts. Halving, each sends the half that it gives up;
    doubling goes the same way back, and each sends all that it has."""
    rounds = list(enumerate(masks))
    for position, mask in rounds if halving else reversed(rounds):
        arrived: dict[int, tuple[int, ...]] = {}
        for p, member in enumerate(participants):
            partner = participants[p ^ mask]
            piece = _span(_interval(parts, p ^ mask if halving else p, masks[: position + 1]))
            # what came in earlier rounds is part of what is sent in later ones
            arrived[partner] = have.get(partner, ()) + group.send(
                member,
                partner,
                piece,
                after=have.get(member, ()),
                combine=Combine.REDUCE if halving else Combine.COPY,
                what=f"{'halve' if halving else 'double'}.{chunk}.{position}",
                lane="exchange",
            )
        have.update(arrived)


def _interval(parts: Sequence[Slice], p: int, masks: Sequence[int]) -> Sequence[Slice]:
    """The parts that participant p still keeps after rounds with `masks`: the upper half where its bit is set."""
    low, high = 0, len(parts)
    for mask in masks:
        middle = (low + high) // 2
        low, high = (middle, high) if p & mask else (low, middle)
    return parts[low:high]


def _from_far(folded: Fold) -> list[int]:
    return [1 << bit for bit in reversed(range(len(folded.participants).bit_length() - 1))]


def _merged(folded: Fold, blocks: tuple[Slice, ...]) -> list[Slice]:
    """The blocks of each participant and of whoever hands over to it, which stand side by side."""
    partner = {taker: giver for giver, taker in folded.pairs}
    return [_span(blocks[partner.get(member, member) : member + 1]) for member in folded.participants]


def _span(slices: Sequence[Slice]) -> Slice:
    return Slice(offset=slices[0].offset, length=slices[-1].end - slices[0].offset)
