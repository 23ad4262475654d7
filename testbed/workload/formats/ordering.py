"""An order of things that wait for each other, and the cycle where there is none (Kahn, CACM 5(11), 1962)."""

from __future__ import annotations

import heapq
from collections.abc import Sequence


class CycleError(Exception):
    """Things wait for each other in a circle: `cycle` names them, each waiting for the one before it."""

    def __init__(self, cycle: Sequence[int]) -> None:
        super().__init__(f"cycle of {len(cycle)}")
        self.cycle = tuple(cycle)


def stable_order(after: Sequence[Sequence[int]]) -> list[int]:
    """Return all numbers of `after`, each behind those that it waits for, otherwise ascending. Raises `CycleError`."""
    waits = [len(before) for before in after]
    followers: list[list[int]] = [[] for _ in after]
    for number, before in enumerate(after):
        for one in before:
            followers[one].append(number)
    ready = [number for number, count in enumerate(waits) if count == 0]
    order: list[int] = []
    while ready:
        number = heapq.heappop(ready)
        order.append(number)
        for follower in followers[number]:
            waits[follower] -= 1
            if waits[follower] == 0:
                heapq.heappush(ready, follower)
    if len(order) < len(after):
        raise CycleError(_cycle(after, waits))
    return order


def _cycle(after: Sequence[Sequence[int]], waits: Sequence[int]) -> list[int]:
    """Find a circle: each thing that waits has one before it that waits, so walk back until one comes again."""
    number = next(number for number, count in enumerate(waits) if count > 0)
    place: dict[int, int] = {}
    walk: list[int] = []
    while number not in place:
        place[number] = len(walk)
        walk.append(number)
        number = next(before for before in after[number] if waits[before] > 0)
    return walk[place[number] :][::-1]


def cycle_text(names: Sequence[str], limit: int = 8) -> str:
    """`a -> b -> a`, the middle left out when it is long."""
    if len(names) > limit:
        names = [*names[: limit - 1], f"... {len(names) - limit} more ...", names[-1]]
    return " -> ".join([*names, names[0]])
