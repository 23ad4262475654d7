"""The ranks that take part in one collective, and how a piece of their arrays goes from one to another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.base.errors import WorkloadError
from testbed.workload.builder import NOTHING, ArrayData, Frontier, Lane, StepBuilder
from testbed.workload.collectives.datatype import DataType
from testbed.workload.steps import Combine, InSwitch, Slice


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Ranks in the order of a collective, which names them by their index here.

    `entry` is what each rank waits for before its first transfer; `chunks` into how many parts a block is cut so that
    they follow one another; `in_flight` how many chunks may be under way at once from one rank to another.
    """

    builder: StepBuilder
    ranks: tuple[int, ...]
    datatype: DataType
    entry: Frontier
    chunks: int
    in_flight: int
    label: str
    token: int
    """Makes the lanes of this collective its own."""

    @property
    def size(self) -> int:
        return len(self.ranks)

    def send(  # noqa: PLR0913  # what a transfer of a collective has
        self,
        source: int,
        destination: int,
        piece: Slice,
        *,
        what: str,
        target: Slice | None = None,
        combine: Combine = Combine.COPY,
        after: tuple[int, ...] = (),
        lane: str = "",
        window: int | None = None,
        in_switch: InSwitch | None = None,
    ) -> tuple[int, ...]:
        """Send `piece` between members once the source takes part, to `target` or to where it is in the source's array.

        Returns the step to wait for, or nothing where the piece is empty. `window` limits what the source has under way
        to all destinations together, and not what it has to each.
        """
        if piece.length == 0:
            return ()
        rank = self.ranks[source]
        to_each = Lane(name=(self.token, lane, destination), in_flight=self.in_flight)
        number = self.builder.carry(
            rank,
            self.ranks[destination],
            ArrayData(piece=piece, datatype=self.datatype, target=target, combine=combine),
            after=(*after, *self.entry.get(rank, ())),
            lane=to_each if window is None else Lane(name=(self.token, lane), in_flight=window),
            in_switch=in_switch,
            label=f"{self.label}.{what}" if self.label else what,
        )
        return (number,)

    def follow(self, ranks: Sequence[int], after: Mapping[int, tuple[int, ...]], *, label: str) -> Group:
        """A group of some ranks of the same collective that begins when `after` has ended."""
        return make_group(
            self.builder,
            ranks,
            datatype=self.datatype,
            after=after,
            chunks=self.chunks,
            in_flight=self.in_flight,
            label=f"{self.label}.{label}" if self.label else label,
        )


def make_group(
    builder: StepBuilder,
    ranks: Sequence[int],
    *,
    datatype: DataType,
    after: Mapping[int, tuple[int, ...]] = NOTHING,
    chunks: int = 1,
    in_flight: int = 2,
    label: str = "",
) -> Group:
    """Check the ranks and collapse what each waits for to at most one step."""
    if not ranks:
        raise WorkloadError("a collective has at least one rank", field="ranks")
    if len(set(ranks)) != len(ranks):
        raise WorkloadError("a rank stands twice in one collective", field="ranks")
    entry = builder.join_all(ranks, after)
    return Group(
        builder=builder,
        ranks=tuple(ranks),
        datatype=datatype,
        entry=entry,
        chunks=chunks,
        in_flight=in_flight,
        label=label,
        token=builder.next_number,
    )
