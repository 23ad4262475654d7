"""Ring collectives whose transfers are no steps of a program, since there are too many: each is made as it is due.

In each round of a ring every rank sends a block to the next one, in chunks, once it has that chunk of the round before,
and with no more than so many under way. All of that follows from the numbers of the ring: so a rank keeps how far it
is, and of a ring of thousands of ranks, whose transfers are millions, nothing is held but those under way.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from testbed.endpoints.worker.program import RingPart, Step

AHEAD = 8
"""Transfers that a rank is ready to receive, beyond those that may be under way to it."""


class _Places:
    """Places of transfers, which are added mostly in order."""

    def __init__(self) -> None:
        self.all_below = 0
        """All before this place are there."""
        self.highest = -1
        self._beyond: set[int] = set()

    def add(self, place: int) -> None:
        self.highest = max(self.highest, place)
        self._beyond.add(place)
        while self.all_below in self._beyond:
            self._beyond.discard(self.all_below)
            self.all_below += 1

    def has(self, place: int) -> bool:
        return place < self.all_below or place in self._beyond


class RingMember:
    """The part of an own rank in a ring. Transfers have places: that of chunk c in round r is r times the chunks of a
    block, plus c."""

    def __init__(self, part: RingPart) -> None:
        self.part = part
        self.last_ns = 0
        """When the last one arrived so far."""
        self._total = part.rounds * len(part.sizes)
        self._has_begun = False
        self._begun = _Places()
        self._expected = 0
        """The place of the first transfer that nothing is ready for."""
        self._sent = _Places()
        self._arrived = _Places()

    @property
    def ended(self) -> bool:
        """Tell whether all has arrived here, and all that was sent has."""
        return self._has_begun and self._sent.all_below == self._arrived.all_below == self._total

    def begin(self) -> None:
        self._has_begun = True

    def take_due(self) -> list[Step]:
        """Return the transfers that can begin now."""
        part, due = self.part, list[Step]()
        if not self._has_begun:
            return due
        chunks = len(part.sizes)
        place = self._begun.all_below
        while place < self._total and place <= self._begun.highest + part.in_flight:
            waits = place >= chunks and not self._arrived.has(place - chunks)
            blocked = place >= part.in_flight and not self._sent.has(place - part.in_flight)
            if not (waits or blocked or self._begun.has(place)):
                self._begun.add(place)
                due.append(self._transfer(place, part.index, part.rank, part.following, part.outgoing))
            place += 1
        return due

    def take_expected(self) -> list[Step]:
        """Return the transfers that this rank is to be ready for from now on."""
        part = self.part
        upto = min(self._total, self._arrived.highest + 1 + part.in_flight + AHEAD)
        places = range(self._expected, upto)
        self._expected = max(self._expected, upto)
        before = (part.index - 1) % part.members
        return [self._transfer(place, before, part.previous, part.rank, part.incoming) for place in places]

    def on_sent(self, place: int) -> None:
        self._sent.add(place)

    def on_arrived(self, place: int, now: int) -> None:
        self._arrived.add(place)
        self.last_ns = max(self.last_ns, now)

    def _transfer(self, place: int, index: int, source: int, destination: int, channel: int | None) -> Step:
        part = self.part
        return Step(
            number=part.first + place * part.members + index,
            source=source,
            destination=destination,
            size_bytes=part.sizes[place % len(part.sizes)],
            channel=channel,
            acknowledged=True,
        )


class StreamedRings:
    """All rings of a program. What is to be sent and to be ready for is taken from it after others have told it what
    has ended; it calls nobody."""

    def __init__(self, parts: Sequence[RingPart]) -> None:
        self._members: dict[tuple[int, int], RingMember] = {}
        """By the number of the first transfer of a ring, and the rank."""
        self._of_step: dict[int, list[RingMember]] = {}
        for part in parts:
            member = self._members[part.first, part.rank] = RingMember(part)
            self._of_step.setdefault(part.step, []).append(member)
        self._firsts = sorted({part.first for part in parts})
        self._changed: dict[tuple[int, int], RingMember] = dict(self._members)
        """The members of which something may be due or expected."""

    @property
    def first(self) -> int:
        """The lowest number of a transfer of a ring; steps have lower ones."""
        return self._firsts[0]

    def has(self, step: int) -> bool:
        """Tell whether a step is a whole ring."""
        return step in self._of_step

    def begin(self, step: int) -> None:
        """Begin a ring, by the number of its step."""
        for member in self._of_step[step]:
            member.begin()
            self._changed[member.part.first, member.part.rank] = member

    def on_sent(self, transfer: Step) -> int:
        """A transfer has ended at its source. Return the step of its ring if that has ended here with it, else -1."""
        member, place = self._find(transfer.number, transfer.source)
        member.on_sent(place)
        return self._ended(member)

    def on_arrived(self, transfer: Step, now: int) -> int:
        """A transfer has arrived. Return the step of its ring if that has ended here with it, else -1."""
        assert transfer.destination is not None
        member, place = self._find(transfer.number, transfer.destination)
        member.on_arrived(place, now)
        return self._ended(member)

    def arrived_ns(self, step: int) -> int:
        """Return when the last transfer of a ring arrived here so far."""
        return max(member.last_ns for member in self._of_step[step])

    def take(self) -> tuple[list[Step], list[Step]]:
        """Return the transfers to be ready for from now on, and those that begin now."""
        changed, self._changed = self._changed, {}
        expected = [step for member in changed.values() for step in member.take_expected()]
        return expected, [step for member in changed.values() for step in member.take_due()]

    def _find(self, number: int, rank: int) -> tuple[RingMember, int]:
        """Return the member of a ring that a transfer is of, to which something has happened, and its place."""
        first = self._firsts[bisect_right(self._firsts, number) - 1]
        member = self._changed[first, rank] = self._members[first, rank]
        return member, (number - first) // member.part.members

    def _ended(self, member: RingMember) -> int:
        step = member.part.step
        return step if all(one.ended for one in self._of_step[step]) else -1
