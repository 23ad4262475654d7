"""Transfers inside a scale-up domain: copies in memory that take the time of the links to its switches.

A rank has one link each way into switches that join all ranks of the domain (NVSwitch). A transfer begins as soon as
both its links are free, and holds them for its bytes; its data arrives one way later. Nothing is reserved for what
waits, so that a link does not stand idle while any waiting transfer could use it. Of those that could begin at one
time, as many do as can at once (a maximum matching of free links): an all-to-all of n ranks takes n - 1 transfers'
time in whatever order it is asked for.

An operation in the switch (NVLink SHARP) is made of steps that share links. The sum of one piece of all ranks leaves
every rank once, and comes to its destination once; a copy to all leaves its source once, and comes to every rank once.
The rank at the other end takes part with its own piece, as `multimem` instructions read and write every copy.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from testbed.endpoints.worker.program import Step
from testbed.workload.steps import InSwitch


@dataclass(slots=True, eq=False)
class _Use:
    """A use of a link out of `source`, of one into `destination`, or of both at once (-1: of none)."""

    source: int
    destination: int
    duration_ns: int
    step: Step | None
    operation: _Operation | None
    sequence: int = 0


@dataclass(slots=True, eq=False)
class _Operation:
    """An operation in the switch: the steps of it that have begun, and how many uses of links out are to end."""

    outgoing: int
    steps: list[Step] = field(default_factory=list)
    delivered: int = 0


class InsideCopies:
    """Calls `deliver` when a transfer's data has arrived, with the time at which that was due (ns of any clock).

    `rate_bps` is the rate of a rank's link, each way, and `in_switch_bps` that of operations in the switch; with 0 they
    take no time. `one_way_ns` lies between the end of a transfer on its links and its arrival.
    """

    def __init__(
        self, rate_bps: int, deliver: Callable[[Step, int], None], *, one_way_ns: int = 0, in_switch_bps: int = 0
    ) -> None:
        self._rate_bps = rate_bps
        self._in_switch_bps = in_switch_bps or rate_bps
        self._one_way_ns = one_way_ns
        self._deliver = deliver
        self._now = 0
        self._sequence = 0
        self._asked: list[tuple[int, int, _Use]] = []
        self._ends: list[tuple[int, int, _Use]] = []
        self._arrivals: list[tuple[int, int, Step]] = []
        self._sending: set[int] = set()
        self._receiving: set[int] = set()
        self._waiting: dict[int, dict[int, deque[_Use]]] = {}
        """By source and destination, -1 for none; only where something waits."""
        self._operations: dict[int, _Operation] = {}

    def send(self, step: Step, now: int) -> None:
        """Ask for a transfer at `now`; `turn` begins it as soon as its links are free."""
        assert step.destination is not None
        if step.in_switch is not None:
            self._send_in_switch(step, step.in_switch, step.destination, now)
        else:
            self._ask(_Use(step.source, step.destination, self._duration_ns(step, self._rate_bps), step, None), now)

    def turn(self, now: int) -> None:
        """Begin and end whatever is due by now."""
        while (due := self.next_due()) is not None and due <= now:
            self.step(due)

    def step(self, at: int) -> None:
        """Begin and end whatever is due at this time, which is that of `next_due`."""
        self._now = max(self._now, at)
        changed = False
        while self._ends and self._ends[0][0] <= at:
            end, _, use = heapq.heappop(self._ends)
            self._sending.discard(use.source)
            self._receiving.discard(use.destination)
            self._end(use, end)
            changed = True
        while self._asked and self._asked[0][0] <= at:
            _, _, use = heapq.heappop(self._asked)
            self._waiting.setdefault(use.source, {}).setdefault(use.destination, deque()).append(use)
            changed = True
        if changed and self._waiting:
            self._begin_waiting()
        while self._arrivals and self._arrivals[0][0] <= at:
            due, _, step = heapq.heappop(self._arrivals)
            self._deliver(step, due)

    def next_due(self) -> int | None:
        """Return when to call `turn` again; None where nothing is under way."""
        times = [queue[0][0] for queue in (self._asked, self._ends, self._arrivals) if queue]
        return min(times) if times else None

    # --- operations in the switch ------------------------------------------------------------------------

    def _send_in_switch(self, step: Step, part: InSwitch, destination: int, now: int) -> None:
        duration_ns = self._duration_ns(step, self._in_switch_bps)
        operation = self._operations.get(part.operation)
        first = operation is None
        if operation is None:
            operation = self._operations[part.operation] = _Operation(1 if part.multicast else part.members + 1)
        if part.multicast:
            if first:
                self._ask(_Use(step.source, -1, duration_ns, step, operation), now)
            if operation.outgoing:
                operation.steps.append(step)
            else:
                self._ask(_Use(-1, destination, duration_ns, step, operation), now)
            return
        operation.steps.append(step)
        if first:
            self._ask(_Use(destination, -1, duration_ns, step, operation), now)
        self._ask(_Use(step.source, -1, duration_ns, step, operation), now)

    def _end_in_switch(self, use: _Use, operation: _Operation, now: int) -> None:
        assert use.step is not None and use.step.in_switch is not None and use.step.destination is not None
        part = use.step.in_switch
        if use.destination < 0:
            operation.outgoing -= 1
            if operation.outgoing:
                return
            if part.multicast:
                self._ask(_Use(-1, use.source, use.duration_ns, None, None), now)
                for step in operation.steps:
                    assert step.destination is not None
                    self._ask(_Use(-1, step.destination, use.duration_ns, step, operation), now)
            else:
                self._ask(_Use(-1, use.step.destination, use.duration_ns, use.step, operation), now)
            return
        for step in (use.step,) if part.multicast else operation.steps:
            self._arrive(step, now)
            operation.delivered += 1
        if operation.delivered == part.members:
            del self._operations[part.operation]

    # --- links -------------------------------------------------------------------------------------------

    def _duration_ns(self, step: Step, rate_bps: int) -> int:
        return -(-step.size_bytes * 8 * 10**9 // rate_bps) if rate_bps else 0

    def _ask(self, use: _Use, now: int) -> None:
        use.sequence = self._next()
        heapq.heappush(self._asked, (max(now, self._now), use.sequence, use))

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence

    def _end(self, use: _Use, now: int) -> None:
        if use.operation is not None:
            self._end_in_switch(use, use.operation, now)
        elif use.step is not None:
            self._arrive(use.step, now)

    def _arrive(self, step: Step, now: int) -> None:
        heapq.heappush(self._arrivals, (now + self._one_way_ns, self._next(), step))

    def _begin_waiting(self) -> None:
        """Begin what can begin now: what uses one link alone first, then as many of the others as can at once."""
        for source, waiting in list(self._waiting.items()):
            if source in self._sending:
                continue
            for destination in [-1] if source >= 0 else list(waiting):
                if destination in waiting and destination not in self._receiving:
                    self._begin(source, destination)
        chosen: dict[int, int] = {}
        """By destination, the source that it is matched with."""
        for source in self._free_sources():
            self._match(source, chosen, set())
        for destination, source in chosen.items():
            self._begin(source, destination)

    def _free_sources(self) -> list[int]:
        """Return the sources that something waits for, and nothing uses; whoever has waited longest comes first."""
        found: list[tuple[int, int]] = []
        for source, waiting in self._waiting.items():
            if source >= 0 and source not in self._sending:
                found.append((min(queue[0].sequence for queue in waiting.values()), source))
        return [source for _, source in sorted(found)]

    def _match(self, source: int, chosen: dict[int, int], seen: set[int]) -> bool:
        """Find a free destination for a source, and another one for whoever has it (an augmenting path)."""
        waiting = self._waiting[source]
        open_ones = [
            destination
            for destination in waiting
            if destination >= 0 and destination not in self._receiving and destination not in seen
        ]
        for destination in open_ones:
            if destination not in chosen:
                chosen[destination] = source
                return True
        for destination in open_ones:
            if destination not in seen:
                seen.add(destination)
                if self._match(chosen[destination], chosen, seen):
                    chosen[destination] = source
                    return True
        return False

    def _begin(self, source: int, destination: int) -> None:
        waiting = self._waiting[source]
        queue = waiting[destination]
        use = queue.popleft()
        if not queue:
            del waiting[destination]
            if not waiting:
                del self._waiting[source]
        if source >= 0:
            self._sending.add(source)
        if destination >= 0:
            self._receiving.add(destination)
        heapq.heappush(self._ends, (self._now + use.duration_ns, self._next(), use))
