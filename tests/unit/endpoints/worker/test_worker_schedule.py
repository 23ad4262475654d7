"""When steps begin: dependencies, start times, computing, and a whole workload on fake hosts with a fake clock."""

import heapq
import random
from collections.abc import Sequence

import pytest

from testbed.endpoints.worker.curves import MOST_SAMPLES, ChannelState, Curves, mean_state
from testbed.endpoints.worker.program import Step
from testbed.endpoints.worker.schedule import Schedule
from testbed.workload.collectives.algorithms import generate_collective
from testbed.workload.collectives.operation import CollectiveOperation
from testbed.workload.steps import Transfer

OWN = frozenset({0})


def transfer(number: int, after: Sequence[int] = (), *, source: int = 0, to: int = 1, start_ns: int = 0) -> Step:
    return Step(
        number=number, source=source, destination=to, size_bytes=8, after=tuple(after), start_ns=start_ns, channel=0
    )


def compute(number: int, duration_ns: int, after: Sequence[int] = ()) -> Step:
    return Step(number=number, source=0, duration_ns=duration_ns, after=tuple(after))


def numbers(steps: Sequence[Step]) -> list[int]:
    return [step.number for step in steps]


def test_what_waits_for_nothing_begins_at_once_or_at_its_time() -> None:
    schedule = Schedule([transfer(0), transfer(1, start_ns=50)], OWN)
    schedule.begin(1000)
    assert numbers(schedule.take(999)) == []
    assert numbers(schedule.take(1000)) == [0]
    assert schedule.next_due() == 1050
    assert numbers(schedule.take(1060)) == [1]
    assert schedule.started_ns == {0: 1000, 1: 1050}  # due, not noticed
    assert schedule.latest_ns == 10


def test_a_step_begins_when_all_that_it_waits_for_has_ended() -> None:
    schedule = Schedule([transfer(0), transfer(1, source=1, to=0), transfer(2, [0, 1])], OWN)
    schedule.begin(0)
    assert numbers(schedule.take(0)) == [0]
    schedule.end(1, 5)
    assert schedule.take(5) == []
    schedule.end(0, 9)
    assert numbers(schedule.take(9)) == [2]
    assert schedule.left == 1
    schedule.end(2, 11)
    assert schedule.left == 0


def test_computing_takes_its_time_from_when_it_was_due() -> None:
    schedule = Schedule([compute(0, 100), compute(1, 0, [0]), compute(2, 20, [1]), transfer(3, [2])], OWN)
    schedule.begin(10)
    assert schedule.take(15) == []
    assert schedule.next_due() == 110
    assert numbers(schedule.take(140)) == [3]
    assert schedule.started_ns == {0: 10, 1: 110, 2: 110, 3: 130}


def test_what_arrives_before_the_begin_starts_nothing_twice() -> None:
    schedule = Schedule([transfer(0, source=1, to=0), transfer(1, [0])], OWN)
    schedule.end(0, 3)  # its sender was told of the begin before us
    assert schedule.take(3) == []
    schedule.begin(5)
    assert numbers(schedule.take(5)) == [1]
    assert schedule.take(6) == []


def test_what_ends_twice_is_a_mistake() -> None:
    schedule = Schedule([transfer(0)], OWN)
    schedule.begin(0)
    schedule.end(0, 1)
    with pytest.raises(KeyError):
        schedule.end(0, 2)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("algorithm", ["ring", "tree", "halving_doubling"])
def test_a_collective_on_hosts_that_see_only_their_own(seed: int, algorithm: str) -> None:
    """Each host has its own schedule; a fake network delivers after random times, and tells the source still later."""
    rng = random.Random(seed)
    workload = generate_collective(
        CollectiveOperation(kind="all_reduce", size_bytes=600, algorithm=algorithm, chunks=2), ranks=6, iterations=2
    )
    hosts = []
    for rank in range(6):
        steps = []
        for step in workload.steps:
            if isinstance(step, Transfer):
                if rank in (step.source, step.destination):
                    after = step.after if rank == step.source else ()
                    steps.append(transfer(step.number, after, source=step.source, to=step.destination))
            elif step.rank == rank:
                steps.append(Step(number=step.number, source=rank, after=step.after))
        hosts.append(Schedule(steps, frozenset({rank})))
    events: list[tuple[int, int, int]] = []  # time, host, step that has ended there
    ended: dict[int, dict[int, int]] = {rank: {} for rank in range(6)}

    def start(rank: int, now: int) -> None:
        for step in hosts[rank].take(now):
            assert all(ended[rank].get(before, now + 1) <= now for before in step.after if before in transfers)
            arrives = now + rng.randrange(1, 50)
            heapq.heappush(events, (arrives, step.destination or 0, step.number))
            heapq.heappush(events, (arrives + rng.randrange(1, 20), rank, step.number))

    transfers = {step.number for step in workload.transfers}
    for rank, host in enumerate(hosts):
        host.begin(0)
        start(rank, 0)
    while events:
        now, rank, number = heapq.heappop(events)
        ended[rank][number] = now
        hosts[rank].end(number, now)
        start(rank, now)
    assert all(host.left == 0 for host in hosts)


def test_long_curves_are_thinned_evenly() -> None:
    curves = Curves(10)
    for at_ns in range(0, 10 * (MOST_SAMPLES + 1), 10):
        curves.add(at_ns, [(3, ChannelState(at_ns, 1000, 5.0, 0))])
    columns = curves.columns(3)
    assert curves.interval_ns == 20
    assert columns["at_ns"] == list(range(0, 10 * (MOST_SAMPLES + 1), 20))
    assert columns["acked_bytes"] == columns["at_ns"]


def test_a_channel_that_stands_still_is_not_sampled_again() -> None:
    curves = Curves(10)
    for at_ns in (0, 10, 20):
        curves.add(at_ns, [(0, ChannelState(5, 1000, 5.0, 0))])
    assert curves.columns(0)["at_ns"] == [0]
    assert curves.columns(1) == {"at_ns": [], "acked_bytes": [], "cwnd_bytes": [], "rtt_us": [], "retransmits": []}


def test_what_congestion_control_knows_is_a_column_each() -> None:
    curves = Curves(10)
    for at_ns, acked, alpha in ((0, 0, 1.0), (10, 5, 0.5), (20, 5, 0.25), (30, 6, float("inf"))):
        state = ChannelState(acked, 1000, 5.0, 0, rate_bps=1e9 * alpha, control=(("alpha", alpha),))
        curves.add(at_ns, [(0, state)])
    columns = curves.columns(0)
    assert columns["at_ns"] == [0, 10, 30], "what time does to a controller alone is no news"
    assert columns["rate_bps"] == [1e9, 5e8, None] and columns["control"] == {"alpha": [1.0, 0.5, None]}


def test_several_controllers_of_a_channel_are_their_mean() -> None:
    assert mean_state([]) == ()
    assert mean_state([{"alpha": 1.0}, {"alpha": 0.5, "beta": 3.0}]) == (("alpha", 0.75), ("beta", 3.0))
