"""Rings whose transfers are made as they are due: the same transfers, in the same order, as those that are steps."""

from random import Random

import pytest

from testbed.endpoints.worker.program import RingPart, Step
from testbed.endpoints.worker.rings import AHEAD, StreamedRings
from testbed.workload.builder import MAX_STEPS
from testbed.workload.collectives.algorithms import generate_collective
from testbed.workload.collectives.operation import CollectiveOperation
from testbed.workload.steps import Transfer

RING = 7
"""The number of the ring's step."""


def parts(ranks: int, rounds: int, chunks: int, *, in_flight: int = 2) -> list[RingPart]:
    return [
        RingPart(
            step=RING,
            first=MAX_STEPS,
            rank=rank,
            previous=(rank - 1) % ranks,
            following=(rank + 1) % ranks,
            index=rank,
            members=ranks,
            rounds=rounds,
            sizes=(10,) * chunks,
            in_flight=in_flight,
            outgoing=rank,
            incoming=(rank - 1) % ranks,
        )
        for rank in range(ranks)
    ]


class Network:
    """Carries what hosts of a ring send, one transfer at a time, in any order."""

    def __init__(self, hosts: list[StreamedRings], host_of: dict[int, int], seed: int) -> None:
        self.hosts, self.host_of = hosts, host_of
        self.under_way: list[Step] = []
        self.ready: set[int] = set()
        self.begun: list[int] = []
        self.ended: set[int] = set()
        self.over: list[int] = []
        self.random = Random(seed)
        self.most = 0

    def look(self) -> None:
        for host in self.hosts:
            expected, due = host.take()
            self.ready |= {one.number for one in expected}
            self.under_way += due
            self.begun += [one.number for one in due]
        self.most = max(self.most, len(self.ready - self.ended))

    def carry_one(self) -> None:
        transfer = self.under_way.pop(self.random.randrange(len(self.under_way)))
        assert transfer.number in self.ready, "its destination was not ready for it"
        assert transfer.destination is not None
        self.ended.add(transfer.number)
        source, destination = (self.hosts[self.host_of[rank]] for rank in (transfer.source, transfer.destination))
        self.over += [step for step in (destination.on_arrived(transfer, len(self.ended)),) if step >= 0]
        self.over += [step for step in (source.on_sent(transfer),) if step >= 0]


@pytest.mark.parametrize(
    ("ranks", "chunks", "per_host", "seed"), [(4, 1, 1, 1), (5, 3, 1, 2), (6, 2, 3, 3), (8, 1, 2, 4)]
)
def test_a_ring_begins_what_its_steps_would_and_no_sooner(ranks: int, chunks: int, per_host: int, seed: int) -> None:
    operation = CollectiveOperation(kind="all_reduce", size_bytes=4 * ranks * chunks, chunks=chunks)
    steps = [step for step in generate_collective(operation, ranks=ranks).steps if isinstance(step, Transfer)]
    every = parts(ranks, 2 * (ranks - 1), chunks)
    hosts = [StreamedRings(every[first : first + per_host]) for first in range(0, ranks, per_host)]
    network = Network(hosts, {rank: rank // per_host for rank in range(ranks)}, seed)
    network.look()
    assert not network.begun, "the ring has not begun"
    for host in hosts:
        host.begin(RING)
    network.look()
    while network.under_way:
        network.carry_one()
        network.look()
        for number in network.begun:
            waits = {MAX_STEPS + before for before in steps[number - MAX_STEPS].after}
            assert waits <= network.ended, "it has begun before what it waits for had ended"
        network.begun = [number for number in network.begun if number not in network.ended]
        due = {
            step.number + MAX_STEPS for step in steps if {MAX_STEPS + before for before in step.after} <= network.ended
        }
        assert due - network.ended <= {one.number for one in network.under_way}, "something that is due has not begun"
    assert network.ended == {MAX_STEPS + step.number for step in steps}
    assert network.over == [RING] * len(hosts), "each host is told once that its part has ended"
    assert network.most <= ranks * (AHEAD + 2 * chunks + 4), "no more is held than what is about to come"


def test_transfers_are_those_of_the_steps() -> None:
    steps = generate_collective(CollectiveOperation(kind="reduce_scatter", size_bytes=60, chunks=3), ranks=5).steps
    ring = StreamedRings(parts(5, 4, 3))
    ring.begin(RING)
    _, due = ring.take()
    assert [(one.source, one.destination) for one in due] == [
        (step.source, step.destination)
        for step in (steps[one.number - MAX_STEPS] for one in due)
        if isinstance(step, Transfer)
    ]
    assert len({one.number for one in due}) == len(due) == 5 * 2, "two chunks of each rank are under way at once"


def test_two_rings_of_a_program_are_told_apart() -> None:
    first = parts(3, 2, 1)
    second = [part.changed(step=RING + 1, first=MAX_STEPS + 6) for part in first]
    rings = StreamedRings([*first[:1], *second[:1]])
    assert rings.has(RING) and rings.has(RING + 1) and not rings.has(RING + 2)
    rings.take()
    rings.begin(RING + 1)
    _, [due] = rings.take()
    assert due.number == MAX_STEPS + 6
    assert rings.first == MAX_STEPS
