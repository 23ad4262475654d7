"""The clock of a run of flows: what begins when what it waits for has ended, and how fast it moves meanwhile.

Between two events all rates are constant. An event is the end or the begin of a step; those that lie within `merge_s`
of each other are taken together, each with its own time: others get what a flow leaves, or lose what it takes, too
early by no more than that. A flow that shares nothing takes exactly as long as it does alone.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from testbed.run.flows.paths import Route
from testbed.run.flows.sending import sending_over
from testbed.workload.oracles.max_min import Floats
from testbed.workload.steps import Compute, Step

TOLD_EVERY_S = 0.2
_NO_STEPS: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The bits that a step moves over a route, and how long it is on its way behind the last of them.

    `alone_s` is the time that it takes at least, its ways included, where ends wait for each other: a ring's.
    """

    route: Route
    bits: float
    way_s: float
    alone_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class StepTimes:
    """When each step began and ended (s), by its number; NaN for one that did not."""

    started_s: Floats
    ended_s: Floats
    events: int = 0
    """The number of times that rates were made fair."""
    looked_at: int = 0
    """The number of flows that were looked at for that, over all events."""
    stopped: bool = False
    """Somebody asked for an end."""
    steps_left: int = 0


def run_steps(
    steps: Sequence[Step],
    capacity: Floats,
    move_of: Callable[[Step], Move],
    *,
    k: float,
    limit_s: float,
    merge_s: float,
    on_progress: Callable[[float], bool] = lambda _: False,
) -> StepTimes:
    """Run all steps. `move_of` is asked for each that is no computing, when it begins; `k` multiplies their own times.

    It ends at `limit_s` of the lab's time, or where `on_progress`, which gets the share of steps that have ended,
    returns that it is to stop.
    """
    return _Run(steps, capacity, move_of, k, merge_s).run(limit_s, on_progress)


class _Run:
    """The queues of one run: steps that are ready to begin, and steps whose end is known. Times are s."""

    def __init__(
        self, steps: Sequence[Step], capacity: Floats, move_of: Callable[[Step], Move], k: float, merge_s: float
    ) -> None:
        self._steps = steps
        self._move_of = move_of
        self._scale = k * 1e-9
        self._merge_s = merge_s
        self._sending = sending_over(capacity)
        self._waits = [len(step.after) for step in steps]
        self._heirs = _heirs(steps)
        self._ready = [(step.start_ns * self._scale, step.number) for step in steps if not step.after]
        heapq.heapify(self._ready)
        self._due: list[tuple[float, int]] = []
        self._moves: dict[int, Move] = {}
        nothing = np.full(len(steps), np.nan)
        self._started, self._ended = nothing.tolist(), nothing.tolist()
        self._over = 0
        self._changed = False
        """A flow has ended since rates were made fair."""

    def run(self, limit_s: float, on_progress: Callable[[float], bool]) -> StepTimes:
        now, events, looked_at, stopped = 0.0, 0, 0, False
        told_at = time.monotonic()
        while True:
            if self._take(now + self._merge_s) or events == 0:
                looked_at += self._sending.settle(now)
                events += 1
            at_s = self._next(now)
            if at_s > limit_s:
                break
            if time.monotonic() > told_at + TOLD_EVERY_S:
                told_at = time.monotonic()
                if on_progress(self._over / max(1, len(self._steps))):
                    stopped = True
                    break
            now = at_s
            self._sent(now + self._merge_s)
        left = len(self._steps) - self._over
        return StepTimes(
            started_s=np.array(self._started),
            ended_s=np.array(self._ended),
            events=events,
            looked_at=looked_at,
            stopped=stopped,
            steps_left=left,
        )

    def _take(self, until_s: float) -> bool:
        """Begin and end what is due until then; tell whether flows have begun or ended since rates were made."""
        changed = self._changed
        ready, due = self._ready, self._due
        while True:
            if due and due[0][0] <= until_s:
                at_s, number = heapq.heappop(due)
                self._end(number, at_s)
            elif ready and ready[0][0] <= until_s:
                at_s, number = heapq.heappop(ready)
                changed = self._begin(number, at_s) or changed
            else:
                self._changed = False
                return changed

    def _begin(self, number: int, at_s: float) -> bool:
        step = self._steps[number]
        self._started[number] = at_s
        if isinstance(step, Compute):
            heapq.heappush(self._due, (at_s + step.duration_ns * self._scale, number))
            return False
        move = self._move_of(step)
        if not len(move.route.links) or move.bits <= 0:
            heapq.heappush(self._due, (at_s + max(move.alone_s, move.way_s), number))
            return False
        self._moves[number] = move
        self._sending.add(number, move.route.links, move.route.weights, move.bits, at_s)
        return True

    def _end(self, number: int, at_s: float) -> None:
        self._ended[number] = at_s
        self._over += 1
        for heir in self._heirs[number]:
            self._waits[heir] -= 1
            if not self._waits[heir]:
                heapq.heappush(self._ready, (max(at_s, self._steps[heir].start_ns * self._scale), heir))

    def _next(self, now: float) -> float:
        """Return when the next event is."""
        at_s = self._sending.next_s()
        for queue in (self._due, self._ready):
            if queue:
                at_s = min(at_s, queue[0][0])
        return max(now, at_s)

    def _sent(self, until_s: float) -> None:
        """Take out the flows that have sent all until then; their steps end once the last bit has arrived."""
        for number, sent_s in self._sending.take(until_s):
            move = self._moves.pop(number)
            end_s = max(sent_s + move.way_s, self._started[number] + move.alone_s)
            heapq.heappush(self._due, (end_s, number))
            self._changed = True


def _heirs(steps: Sequence[Step]) -> list[Sequence[int]]:
    """The steps that wait for each one."""
    found: list[Sequence[int]] = [_NO_STEPS] * len(steps)
    for step in steps:
        for before in step.after:
            mine = found[before]
            if isinstance(mine, list):
                mine.append(step.number)
            else:
                found[before] = [step.number]
    return found
