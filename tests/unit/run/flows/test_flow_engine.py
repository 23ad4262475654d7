"""The clock of flows: who shares what, and for how long."""

import numpy as np
import pytest

from testbed.run.flows.engine import Move, StepTimes, run_steps
from testbed.run.flows.paths import NOWHERE, Route
from testbed.workload.steps import Compute, FoldedRing, Step, Transfer


def run(
    steps: list[Step], moves: dict[int, Move], capacity: list[float], limit_s: float = 1e9, merge_s: float = 0.0
) -> StepTimes:
    return run_steps(
        steps, np.array(capacity), lambda step: moves[step.number], k=1.0, limit_s=limit_s, merge_s=merge_s
    )


def over(*links: int, bits: float, way_s: float = 0.0) -> Move:
    return Move(route=Route(np.array(links), np.ones(len(links))), bits=bits, way_s=way_s)


def transfer(number: int, *, after: tuple[int, ...] = (), start_ns: int = 0) -> Transfer:
    return Transfer(number=number, source=0, destination=1, size_bytes=1, after=after, start_ns=start_ns)


def test_what_is_left_has_all_of_a_link_when_another_ends() -> None:
    """10 and 30 bits on a link of 10 bit/s: half each until 2 s, then the rest of the longer one for 2 s."""
    times = run([transfer(0), transfer(1)], {0: over(0, bits=10), 1: over(0, bits=30)}, [10.0])
    assert times.ended_s.tolist() == pytest.approx([2.0, 4.0])


def test_a_step_begins_when_all_that_it_waits_for_has_arrived() -> None:
    steps = [
        transfer(0),
        Compute(number=1, rank=1, duration_ns=3_000_000_000),
        transfer(2, after=(0, 1)),
        transfer(3, after=(2,), start_ns=9_000_000_000),
    ]
    moves = {number: over(0, bits=10, way_s=0.5) for number in (0, 2, 3)}
    times = run(steps, moves, [10.0])
    assert times.started_s.tolist() == pytest.approx([0.0, 0.0, 3.0, 9.0])
    assert times.ended_s.tolist() == pytest.approx([1.5, 3.0, 4.5, 10.5])
    assert times.steps_left == 0


def test_a_ring_takes_its_rounds_at_the_rate_of_its_slowest_link_and_not_less_than_its_ways_allow() -> None:
    ring = FoldedRing(number=0, ranks=(0, 1, 2), size_bytes=1, rounds=4)
    route = Route(np.array([0, 1, 2]), np.ones(3))
    slow = {0: Move(route=route, bits=40.0, way_s=0.5, alone_s=1.0)}
    assert run([ring], slow, [10.0, 4.0, 10.0]).ended_s[0] == pytest.approx(10.5), "40 bits at 4 bit/s, and a way"
    waiting = {0: Move(route=route, bits=40.0, way_s=0.5, alone_s=20.0)}
    assert run([ring], waiting, [10.0, 4.0, 10.0]).ended_s[0] == pytest.approx(20.0)


def test_what_is_nowhere_takes_its_way_alone() -> None:
    times = run([transfer(0)], {0: Move(route=NOWHERE, bits=0.0, way_s=0.25)}, [])
    assert times.ended_s.tolist() == [0.25]


def test_a_flow_without_a_rate_never_ends_and_a_limit_ends_the_run() -> None:
    times = run([transfer(0), transfer(1, after=(0,))], {0: over(0, bits=1), 1: over(0, bits=1)}, [0.0])
    assert times.steps_left == 2
    assert np.isnan(times.ended_s).all()
    late = run([transfer(0)], {0: over(0, bits=100)}, [1.0], limit_s=50.0)
    assert late.steps_left == 1


def test_what_is_taken_together_takes_as_long_as_alone() -> None:
    """A flow that begins while another event is taken sends from its own begin on, however short it is."""
    steps: list[Step] = [transfer(0), transfer(1, start_ns=400_000_000), transfer(2, after=(1,))]
    moves = {0: over(0, bits=100), 1: over(1, bits=1), 2: over(1, bits=1)}
    times = run(steps, moves, [10.0, 10.0], merge_s=0.5)
    assert times.started_s.tolist() == pytest.approx([0.0, 0.4, 0.5])
    assert times.ended_s.tolist() == pytest.approx([10.0, 0.5, 0.6])


def test_somebody_may_stop_it() -> None:
    steps = [Compute(number=0, rank=0, duration_ns=1)]
    steps += [Compute(number=number, rank=0, duration_ns=1, after=(number - 1,)) for number in range(1, 300_000)]
    times = run_steps(
        steps, np.zeros(0), lambda step: over(bits=0), k=1.0, limit_s=1.0, merge_s=0.0, on_progress=lambda share: True
    )
    assert times.stopped
    assert 0 < times.steps_left < 300_000
