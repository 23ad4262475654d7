"""Adding steps one after another: numbers, lanes, and what each rank must wait for next.

Every step waits only for steps in which its own rank (the one that begins a transfer) takes part, at either end,
so that a rank can execute its steps from what it sees itself, with nobody in the middle. `check_local` proves it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from testbed.base.errors import WorkloadError
from testbed.workload.collectives.datatype import DataType
from testbed.workload.steps import (
    Collective,
    Combine,
    Compute,
    FirstToken,
    FoldedRing,
    InSwitch,
    IoJob,
    Slice,
    Step,
    Transfer,
    Workload,
)

Frontier = dict[int, tuple[int, ...]]
"""For a rank: steps whose end means that everything of that rank so far has ended."""

NOTHING: Mapping[int, tuple[int, ...]] = {}
"""No rank waits for anything."""

MAX_STEPS = 1 << 20
"""An all-to-all of 1,024 ranks fits. It is more than any emulated fabric carries in one run; a wrong parameter ends in
a message, not in swapping."""

MOST_FOLDED_STEPS = 4 << 20
"""The most steps of flows, whose rings are one step each: a training step of 24,576 ranks has 1.6 million."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Transfers that one rank begins, one behind the other, of which at most `in_flight` are under way at once.

    A rank has one for each `name`, as NCCL has slots for each connection (NCCL_STEPS, there 8).
    """

    name: Hashable
    in_flight: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayData:
    """The elements of its source's array that a transfer carries.

    They come to the same place of the destination's array unless `target` is another one, and `combine` says what
    happens to them there.
    """

    piece: Slice
    datatype: DataType
    combine: Combine = Combine.COPY
    target: Slice | None = None

    @property
    def size_bytes(self) -> int:
        return self.piece.length * self.datatype.size_bytes


class StepBuilder:
    """Collects the steps of a workload of `ranks` ranks.

    `ranks_per_domain` says which ranks share a scale-up domain (consecutive ones): transfers between those go over its
    network. 0 means that every rank is a domain of its own. With `folds` a ring collective is one step
    (`testbed.workload.steps.FoldedRing`), with `folds_large` one of more transfers than `MAX_STEPS`.
    """

    def __init__(
        self, ranks: int, *, ranks_per_domain: int = 0, folds: bool = False, folds_large: bool = False
    ) -> None:
        if ranks < 1:
            raise WorkloadError(f"a workload has at least one rank, not {ranks}", field="ranks")
        self.ranks = ranks
        self.ranks_per_domain = ranks_per_domain
        self.folds = folds
        self.folds_large = folds_large
        self._steps: list[Step] = []
        self._collectives: list[Collective] = []
        self._notes: list[str] = []
        self._lanes: dict[Hashable, list[int]] = {}
        self._open: list[dict[int, set[int]]] = []

    def transfer(  # noqa: PLR0913  # what a transfer has
        self,
        source: int,
        destination: int,
        size_bytes: int,
        *,
        after: Iterable[int] = (),
        start_ns: int = 0,
        lane: Lane | None = None,
        vc: int | None = None,
        pulled: bool = False,
        restores: int | None = None,
        withdraws: bool = False,
        job: IoJob | None = None,
        label: str = "",
    ) -> int:
        """Add a transfer of bytes that mean nothing, not before `start_ns`, and return its number.

        One that is `pulled` is begun by its destination, whose lane and whose steps it waits for; it may read back what
        the transfer `restores` has written; with one that `withdraws`, others lose their view of what its source keeps.
        fio moves it as `job` says. Inside a scale-up domain its frames are of the
        virtual channel `vc`.
        """
        self._check_transfer(source, destination, size_bytes)
        return self._add(
            Transfer(
                number=len(self._steps),
                source=source,
                destination=destination,
                size_bytes=size_bytes,
                after=self._behind(destination if pulled else source, after, lane),
                start_ns=start_ns,
                scale_up=self.same_domain(source, destination),
                vc=vc,
                pulled=pulled,
                restores=restores,
                withdraws=withdraws,
                job=job,
                label=label,
            ),
            (source, destination),
        )

    def carry(
        self,
        source: int,
        destination: int,
        data: ArrayData,
        *,
        after: Iterable[int] = (),
        lane: Lane | None = None,
        in_switch: InSwitch | None = None,
        label: str = "",
    ) -> int:
        """Add a transfer of elements of an array and return its number.

        `in_switch` is its part in an operation of the switch of the domain that both ranks are in.
        """
        self._check_transfer(source, destination, data.size_bytes)
        return self._add(
            Transfer(
                number=len(self._steps),
                source=source,
                destination=destination,
                size_bytes=data.size_bytes,
                after=self._behind(source, after, lane),
                piece=data.piece,
                target=data.target,
                combine=data.combine,
                scale_up=self.same_domain(source, destination),
                in_switch=in_switch,
                label=label,
            ),
            (source, destination),
        )

    def compute(
        self,
        rank: int,
        duration_ns: int,
        *,
        after: Iterable[int] = (),
        start_ns: int = 0,
        is_batch: bool = False,
        label: str = "",
    ) -> int:
        """Add a time in which a rank computes, not before `start_ns`, on a batch that was read for it or on anything
        else, and return its number."""
        if not 0 <= rank < self.ranks:
            raise WorkloadError(f"rank {rank} is not one of the {self.ranks} ranks", field="ranks")
        if duration_ns < 0:
            raise WorkloadError(f"computing cannot take {duration_ns} ns", field="compute")
        before = tuple(sorted(set(after)))
        step = Compute(
            number=len(self._steps),
            rank=rank,
            duration_ns=duration_ns,
            after=before,
            start_ns=start_ns,
            is_batch=is_batch,
            label=label,
        )
        return self._add(step, (rank,))

    def ring(
        self,
        ranks: tuple[int, ...],
        size_bytes: int,
        *,
        rounds: int,
        chunks: int = 1,
        after: Iterable[int] = (),
        label: str = "",
    ) -> int:
        """Add all rounds of a ring of several ranks, each of which sends `size_bytes` in a round, and return its
        number."""
        step = FoldedRing(
            number=len(self._steps),
            ranks=ranks,
            size_bytes=size_bytes,
            rounds=rounds,
            chunks=chunks,
            inside=frozenset(
                source
                for source, destination in zip(ranks, (*ranks[1:], ranks[0]), strict=True)
                if self.same_domain(source, destination)
            ),
            after=tuple(sorted(set(after))),
            label=label,
        )
        return self._add(step, ranks)

    def join(self, rank: int, after: Iterable[int]) -> tuple[int, ...]:
        """Steps as at most one: computing of no time, where there are several to wait for."""
        before = tuple(sorted(set(after)))
        return before if len(before) < 2 else (self.compute(rank, 0, after=before, label="join"),)

    def join_all(self, ranks: Iterable[int], after: Mapping[int, tuple[int, ...]]) -> Frontier:
        """`join` for each of `ranks`."""
        return {rank: self.join(rank, after.get(rank, ())) for rank in ranks}

    def same_domain(self, a: int, b: int) -> bool:
        return self.ranks_per_domain > 0 and a // self.ranks_per_domain == b // self.ranks_per_domain

    @contextmanager
    def watch(self, ranks: Iterable[int], after: Mapping[int, tuple[int, ...]] = NOTHING) -> Iterator[Frontier]:
        """The frontier of what is added inside, filled in at its end; for a rank without steps it is `after`."""
        frontier: Frontier = {}
        opened: dict[int, set[int]] = {}
        self._open.append(opened)
        try:
            yield frontier
        finally:
            self._open.pop()
        for rank in ranks:
            frontier[rank] = tuple(sorted(opened[rank])) if rank in opened else after.get(rank, ())

    def collective(self, collective: Collective) -> None:
        """Say what the steps of `collective.steps` amount to."""
        self._collectives.append(collective)

    def note(self, text: str) -> None:
        """Record an approximation for the report, once."""
        if text not in self._notes:
            self._notes.append(text)

    @property
    def next_number(self) -> int:
        return len(self._steps)

    def build(self, name: str, *, first_tokens: Iterable[FirstToken] = ()) -> Workload:
        return Workload(
            name=name,
            ranks=self.ranks,
            steps=tuple(self._steps),
            collectives=tuple(self._collectives),
            notes=tuple(self._notes),
            first_tokens=tuple(first_tokens),
        )

    def _check_transfer(self, source: int, destination: int, size_bytes: int) -> None:
        for rank in (source, destination):
            if not 0 <= rank < self.ranks:
                raise WorkloadError(f"rank {rank} is not one of the {self.ranks} ranks", field="ranks")
        if source == destination:
            raise WorkloadError(f"rank {source} cannot send to itself", field="ranks", hint="another rank")
        if size_bytes < 1:
            raise WorkloadError(f"a transfer carries at least one byte, not {size_bytes}", field="size_bytes")

    def _behind(self, rank: int, after: Iterable[int], lane: Lane | None) -> tuple[int, ...]:
        """Puts the next step into a lane of the rank that begins it; returns what it waits for."""
        before = set(after)
        if lane is not None:
            sent = self._lanes.setdefault((rank, lane.name), [])
            if len(sent) >= lane.in_flight:
                before.add(sent[-lane.in_flight])
            sent.append(len(self._steps))
        return tuple(sorted(before))

    def _add(self, step: Step, ranks: tuple[int, ...]) -> int:
        most = MOST_FOLDED_STEPS if self.folds else MAX_STEPS
        if len(self._steps) >= most:
            raise WorkloadError(
                f"the workload has more than {most} steps", hint="fewer ranks, chunks, flows or iterations"
            )
        self._steps.append(step)
        for opened in self._open:
            for rank in ranks:
                # what the new step waited for has ended when it ends
                mine = opened.setdefault(rank, set())
                mine.difference_update(step.after)
                mine.add(step.number)
        return step.number
