"""A workload of NICs with a port in each plane of a fabric, as one of their ports: ranks become ports.

A transport that spreads a message over planes (`striped`) has each transfer cut into parts of equal size, one for each
plane, and what waits for it waits for all of them. Any other one sends a flow by one port: which, is drawn when the
flow begins, as the hash of a bond would have it, and what follows on it stays there.

Collectives carry arrays of ranks, and are not cut: whoever builds them does so for each plane, with its share of the
bytes (NCCL has channels for each port, and gives each its part of an array).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from testbed.base.errors import WorkloadError
from testbed.workload.draws import draw_below
from testbed.workload.steps import Compute, FoldedRing, Slice, Step, Transfer, Workload

RankPorts = Sequence[int]
"""The ports of a NIC, as ranks of the whole, in the order of planes."""


def over_planes(
    workload: Workload, ports: Sequence[RankPorts], *, ranks: int, striped: bool, rng: random.Random
) -> Workload:
    """The workload whose rank r has the ports `ports[r]`, as one of `ranks` ports. Steps stay in their order.

    Raises `WorkloadError` for a collective.
    """
    if workload.collectives or any(isinstance(step, FoldedRing) for step in workload.steps):
        raise WorkloadError(f"{workload.name} is a collective, whose arrays are not cut", field="ranks")
    planes = len(ports[0])
    steps: list[Step] = []
    moved: list[tuple[int, ...]] = []
    plane_of: dict[int, int] = {}
    """The plane of each flow, by the number of its last step."""
    for old in workload.steps:
        after = tuple(number for before in old.after for number in moved[before])
        if isinstance(old, Compute):
            moved.append((len(steps),))
            steps.append(replace(old, number=len(steps), rank=ports[old.rank][0], after=after))
            continue
        assert not isinstance(old, FoldedRing), "collectives are refused"
        if old.scale_up:
            parts = [(0, old.size_bytes)]
        elif striped:
            parts = [
                (plane, one.length) for plane, one in enumerate(Slice(offset=0, length=old.size_bytes).split(planes))
            ]
            parts = [part for part in parts if part[1]] or parts[:1]
        else:
            plane = _follows(old, workload, plane_of)
            plane_of[old.number] = draw_below(rng, planes) if plane is None else plane
            parts = [(plane_of[old.number], old.size_bytes)]
        moved.append(tuple(range(len(steps), len(steps) + len(parts))))
        for place, (plane, size_bytes) in enumerate(parts):
            steps.append(
                replace(
                    old,
                    number=len(steps),
                    source=ports[old.source][plane],
                    destination=ports[old.destination][plane],
                    size_bytes=size_bytes,
                    after=after,
                    restores=None if old.restores is None else _part(moved[old.restores], place),
                )
            )
    return replace(
        workload,
        ranks=ranks,
        steps=tuple(steps),
        requests=tuple(
            replace(one, client=ports[one.client][plane], server=ports[one.server][plane])
            for one in workload.requests
            for plane in [draw_below(rng, planes)]
        ),
        first_tokens=tuple(replace(one, step=moved[one.step][-1]) for one in workload.first_tokens),
        tenant_ranks=tuple(tuple(port for rank in ranks for port in ports[rank]) for ranks in workload.tenant_ranks),
        notes=(*workload.notes, _note(planes, striped=striped)),
    )


def _part(numbers: Sequence[int], place: int) -> int:
    return numbers[min(place, len(numbers) - 1)]


def _follows(step: Transfer, workload: Workload, plane_of: dict[int, int]) -> int | None:
    """The plane of the flow that a transfer goes on with: of one that it waits for, and that has the same ends."""
    for before in step.after:
        other = workload.steps[before]
        if isinstance(other, Transfer) and (other.source, other.destination) == (step.source, step.destination):
            return plane_of.get(before)
    return None


def _note(planes: int, *, striped: bool) -> str:
    if striped:
        return f"Each transfer is cut into {planes} parts, one for each plane, before it is sent: not packet by packet."
    return f"A flow rides one of {planes} planes, which is drawn when it begins."
