"""Executing a collective in memory: what every worker must arrive at, and a proof that its dependencies suffice.

Transfers take time here as they do on a wire. In the order of `rng` they begin, once all that they wait for has ended,
read what they carry at their beginning or at their end, and are applied at their end; whatever the order, the result
must be the same.
"""

import random
from collections.abc import Mapping
from typing import TypeVar

from testbed.workload.collectives.arithmetic import Array, add
from testbed.workload.collectives.datatype import DataType
from testbed.workload.draws import draw_below
from testbed.workload.steps import Combine, Step, Transfer, Workload

Item = TypeVar("Item")


def run_reference(
    workload: Workload,
    arrays: Mapping[int, Array],
    datatype: DataType,
    *,
    collective: int = 0,
    rng: random.Random | None = None,
) -> dict[int, Array]:
    """The arrays of every rank, by rank, after one collective of the workload that began with `arrays`.

    Dependencies on steps outside of the collective count as met. Without `rng`, steps run one by one in their order;
    with it, many at once in an order that it draws. Raises `ValueError` if a step never becomes ready.
    """
    result = {rank: array.copy() for rank, array in arrays.items()}
    span = workload.collectives[collective].steps
    steps = [workload.steps[number] for number in span]
    if rng is None:
        for step in steps:
            _apply(step, _read(step, result), result, datatype)
        return result
    waiting = {step.number: {before for before in step.after if before in span} for step in steps}
    followers: dict[int, list[int]] = {}
    for number, before in waiting.items():
        for one in before:
            followers.setdefault(one, []).append(number)
    ready = [number for number, before in waiting.items() if not before]
    under_way: list[tuple[int, Array | None]] = []
    ended = 0
    while ready or under_way:
        if ready and (not under_way or rng.random() < 0.6):
            number = _take(ready, rng)
            reads_early = rng.random() < 0.5
            under_way.append((number, _read(workload.steps[number], result) if reads_early else None))
            continue
        number, data = _take(under_way, rng)
        step = workload.steps[number]
        _apply(step, _read(step, result) if data is None else data, result, datatype)
        ended += 1
        for follower in followers.get(number, ()):
            waiting[follower].discard(number)
            if not waiting[follower]:
                ready.append(follower)
    if ended != len(steps):
        raise ValueError(f"{len(steps) - ended} steps wait for each other")
    return result


def _take(items: list[Item], rng: random.Random) -> Item:
    position = draw_below(rng, len(items))
    items[position], items[-1] = items[-1], items[position]
    return items.pop()


def _read(step: Step, arrays: Mapping[int, Array]) -> Array | None:
    if not isinstance(step, Transfer) or step.piece is None:
        return None
    return arrays[step.source][step.piece.offset : step.piece.end].copy()


def _apply(step: Step, data: Array | None, arrays: Mapping[int, Array], datatype: DataType) -> None:
    if not isinstance(step, Transfer) or data is None or step.piece is None:
        return
    target = step.target or step.piece
    there = arrays[step.destination][target.offset : target.end]
    match step.combine:
        case Combine.COPY:
            there[:] = data
        case Combine.REDUCE:
            there[:] = add(there, data, datatype)
        case Combine.NONE:
            pass
