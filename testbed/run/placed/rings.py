"""Rings whose transfers are no steps of a program, on the NICs of a lab: the part that each rank has in one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from testbed.base.errors import ScenarioError
from testbed.endpoints.worker.program import LARGEST_TRANSFER, RingPart
from testbed.workload.steps import Compute, FoldedRing, Slice, Step, Transfer, Workload

if TYPE_CHECKING:
    from testbed.run.placed.placed_workload import PlacedWorkload

_NUMBERS = 1 << 32
"""The numbers of transfers end here: RoCE tells them in immediate data of 32 bits."""
_IN_FLIGHT = 2
"""Chunks that are under way from a rank to the next one at once, as of collectives by default."""


def transfers_of(ring: FoldedRing) -> int:
    """Return how many transfers a ring has."""
    return len(ring.ranks) * ring.rounds * ring.chunks


def ring_parts(ring: FoldedRing, placement: PlacedWorkload, first: int) -> Iterator[tuple[str, RingPart]]:
    """Yield each worker with the part of one of its ranks. The transfers have the numbers from `first` on.

    Raises `ScenarioError` for a ring of more transfers than can be told apart, or of too large ones.
    """
    ranks, between = ring.ranks, placement.channels.between
    count = len(ranks)
    if first + transfers_of(ring) > _NUMBERS:
        raise ScenarioError(
            f"step {ring.number} ({ring.label}) is a ring of {transfers_of(ring):,} transfers, more than 32 bits tell"
            " apart"
        )
    sizes = tuple(piece.length for piece in Slice(offset=0, length=ring.size_bytes).split(ring.chunks))
    if sizes[0] > LARGEST_TRANSFER:
        raise ScenarioError(f"step {ring.number} carries {sizes[0]} bytes; the most is {LARGEST_TRANSFER}")
    for index, rank in enumerate(ranks):
        previous, following = ranks[index - 1], ranks[(index + 1) % count]
        yield (
            placement.worker(rank),
            RingPart(
                step=ring.number,
                first=first,
                rank=rank,
                previous=previous,
                following=following,
                index=index,
                members=count,
                rounds=ring.rounds,
                sizes=sizes,
                in_flight=_IN_FLIGHT,
                outgoing=None if rank in ring.inside else between[rank, following],
                incoming=None if previous in ring.inside else between[previous, rank],
            ),
        )


def waits_by_worker(ring: FoldedRing, workload: Workload, placement: PlacedWorkload) -> Mapping[str, Sequence[int]]:
    """Return the steps that each worker's part of a ring waits for: those in which a rank of its own takes part."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for number in ring.after:
        for worker in dict.fromkeys(placement.worker(rank) for rank in ranks_of(workload.steps[number])):
            found[worker].append(number)
    return found


def ranks_of(step: Step) -> Sequence[int]:
    """Return the ranks that take part in a step."""
    match step:
        case Compute():
            return (step.rank,)
        case Transfer():
            return (step.source, step.destination)
        case FoldedRing():
            return step.ranks
