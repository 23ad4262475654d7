"""Which step begins when: counting down what each waits for. No I/O and no clock: time comes in with every call."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Set

from testbed.endpoints.worker.program import Step


class Schedule:
    """Tells which steps of one host begin when.

    Times are ns of any clock; a step that is due late begins at the time it was due.

    A transfer between two own ranks ends once. `started_ns` tells when each step that begins here began.
    """

    def __init__(self, steps: Iterable[Step], own: Set[int]) -> None:
        self.started_ns: dict[int, int] = {}
        self.latest_ns = 0
        """The most by which a timer was noticed late (ns)."""
        self._steps: dict[int, Step] = {}
        self._waiting: dict[int, int] = {}
        self._followers: dict[int, list[int]] = {}
        self._open: set[int] = set()
        self._timers: list[tuple[int, int]] = []
        self._begin_ns: int | None = None
        self._order: list[int] = []
        """The numbers of all steps, ascending."""
        self._first_open = 0
        """The place in it of the first step that has not ended, as far as was looked."""
        for step in steps:
            self._open.add(step.number)
            if step.begins_at in own:
                self._steps[step.number] = step
                self._waiting[step.number] = len(step.after)
                for before in step.after:
                    self._followers.setdefault(before, []).append(step.number)
        self._order = sorted(self._open)

    @property
    def oldest(self) -> int:
        """Return the number of the first step that has not ended, in the order of the workload; -1 where none is left.

        What has ended is passed over once in a run, however often this is asked.
        """
        order, number_of_steps = self._order, len(self._order)
        while self._first_open < number_of_steps and order[self._first_open] not in self._open:
            self._first_open += 1
        return order[self._first_open] if self._first_open < number_of_steps else -1

    @property
    def left(self) -> int:
        """Return how many steps have not ended."""
        return len(self._open)

    def begin(self, now: int) -> None:
        """Begin the workload at this time; `take` then tells what is due."""
        self._begin_ns = now
        for number, waiting in self._waiting.items():
            if waiting == 0:
                heapq.heappush(self._timers, (now + self._steps[number].start_ns, number))

    def end(self, number: int, now: int) -> None:
        """Note that a step has ended, as far as a rank of this host can see.

        Raises `KeyError` if there is none of this number, or it has ended already.

        What another host has sent may arrive before `begin` is called here: it was told a little later.
        """
        self._open.remove(number)
        for follower in self._followers.pop(number, ()):
            self._waiting[follower] -= 1
            if self._waiting[follower] == 0 and self._begin_ns is not None:
                due = max(now, self._begin_ns + self._steps[follower].start_ns)
                heapq.heappush(self._timers, (due, follower))

    def take(self, now: int) -> list[Step]:
        """Return the transfers that begin by `now`. Computing begins and ends in here."""
        timers = self._timers
        begun: list[Step] = []
        while timers and timers[0][0] <= now:
            due, number = heapq.heappop(timers)
            self.latest_ns = max(self.latest_ns, now - due)
            step = self._steps[number]
            if number in self.started_ns:  # computing that ends
                self.end(number, due)
                continue
            self.started_ns[number] = due
            if step.destination is not None:
                begun.append(step)
            elif step.duration_ns:
                heapq.heappush(timers, (due + step.duration_ns, number))
            else:
                self.end(number, due)
        return begun

    def next_due(self) -> int | None:
        """Return when to call `take` again; None where nothing is timed."""
        return self._timers[0][0] if self._timers else None
