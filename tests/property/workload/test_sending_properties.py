"""Flows that come and go have the rates of an allocation from nothing, and end when these say; in Python and in C."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_sending import native_sending

from testbed.run.flows.sending import Sending
from testbed.workload.oracles.max_min import Floats, fill, fluid_completion_times, usage_of

CLOSE = 1e-6
LINKS = 7
Flow = tuple[list[int], list[float], float]
Make = Callable[[Floats], Any]
KINDS = pytest.mark.parametrize("kind", ["python", "native"])
NATIVE_FIRST = pytest.mark.parametrize("kind", [pytest.param("python", marks=pytest.mark.thorough), "native"])


def maker(kind: str) -> Make:
    return Sending if kind == "python" else native_sending()


@st.composite
def flows(draw: st.DrawFn, least: int = 1) -> tuple[list[float], list[Flow]]:
    """Capacities, and flows: links, weights and bits."""
    some = st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 10.0, 1e9] if not least else [0.5, 1.0, 1.5, 2.0, 10.0, 1e9])
    capacities = draw(st.lists(some, min_size=LINKS, max_size=LINKS))
    found = []
    for _ in range(draw(st.integers(1, 40))):
        links = draw(st.lists(st.integers(0, LINKS - 1), min_size=1, max_size=4, unique=True))
        weights = [draw(st.sampled_from([0.125, 0.25, 0.5, 1.0, 3.0])) for _ in links]
        found.append((links, weights, draw(st.sampled_from([1.0, 2.0, 3.5, 100.0]))))
    return capacities, found


def add(sending: Any, step: int, flow: Flow, at_s: float) -> None:
    links, weights, bits = flow
    sending.add(step, np.array(links), np.array(weights), bits, at_s)


def wanted_rates(there: dict[int, Flow], capacities: Floats) -> dict[int, float]:
    usage = usage_of([links for links, _, _ in there.values()], [weights for _, weights, _ in there.values()])
    return dict(zip(there, fill(usage, capacities).tolist(), strict=True))


@KINDS
@given(flows(least=0), st.integers(1, 5), st.randoms(use_true_random=False))
@settings(max_examples=300, deadline=None)
def test_after_each_change_rates_are_those_of_filling_all_anew(
    kind: str, case: tuple[list[float], list[Flow]], together: int, rng: random.Random
) -> None:
    """Some flows come at once; then the clock goes to the next end, and others come in the place of what has ended."""
    capacity = np.array(case[0])
    sending, there, now, coming = maker(kind)(capacity), dict[int, Flow](), 0.0, list(enumerate(case[1]))
    while coming:
        for step, flow in coming[:together]:
            add(sending, step, flow, now)
            there[step] = flow
        del coming[:together]
        sending.settle(now)
        assert sending.rates() == pytest.approx(wanted_rates(there, capacity), rel=CLOSE, abs=1e-9)
        assert len(sending) == len(there)
        due = sending.next_s()
        if rng.random() < 0.7 and due < 1e12:
            now = due
            for step, ended_s in sending.take(now):
                assert ended_s == pytest.approx(now)
                del there[step]


@NATIVE_FIRST
@given(flows())
@settings(max_examples=200, deadline=None)
def test_flows_that_begin_together_end_when_the_fluid_says(kind: str, case: tuple[list[float], list[Flow]]) -> None:
    capacity, all_flows = np.array(case[0]), case[1]
    sending, ended = maker(kind)(capacity), dict[int, float]()
    for step, flow in enumerate(all_flows):
        add(sending, step, flow, 0.0)
    now = 0.0
    while len(sending):
        sending.settle(now)
        now = sending.next_s()
        ended |= dict(sending.take(now))
    usage = usage_of([links for links, _, _ in all_flows], [weights for _, weights, _ in all_flows])
    wanted = fluid_completion_times([bits for _, _, bits in all_flows], usage, capacity)
    assert [ended[step] for step in range(len(all_flows))] == pytest.approx(wanted.tolist(), rel=1e-5)


@NATIVE_FIRST
def test_hundreds_of_striped_flows_have_the_rates_of_filling_all_anew(kind: str) -> None:
    """Flows of four stripes between two pods come and go, some alone, and rings over many links: a change goes through
    many others."""
    rng = random.Random(7)
    uplinks, ends = 48, 300
    capacity = np.array([1.0] * uplinks + [2.0] * (2 * ends))
    sending, there, now, step = maker(kind)(capacity), dict[int, Flow](), 0.0, 0
    for turn in range(400):
        for _ in range(rng.randrange(1, 6)):
            end = rng.randrange(ends)
            used = Counter(rng.randrange(uplinks) for _ in range(0 if end % 5 == 0 else 40 if end % 50 == 1 else 4))
            links = [*used, uplinks + end, uplinks + ends + rng.randrange(ends)]
            weights = [*(count / 4 for count in used.values()), 1.0, 1.0]
            there[step] = links, weights, rng.uniform(0.5, 1.5)
            add(sending, step, there[step], now)
            step += 1
        sending.settle(now)
        if turn % 5 == 0:
            assert sending.rates() == pytest.approx(wanted_rates(there, capacity), rel=CLOSE, abs=1e-9)
        if turn > 40:
            now = sending.next_s()
            for gone, _ in sending.take(now + 0.01):
                del there[gone]
    assert len(there) > 100


@KINDS
def test_a_change_looks_only_at_what_it_reaches(kind: str) -> None:
    """A thousand pairs of flows, each on a link of its own: when one ends, its partner alone is looked at."""
    sending = maker(kind)(np.ones(1000))
    for step in range(2000):
        add(sending, step, ([step // 2], [1.0], 1.0 if step == 10 else 2.0), 0.0)
    sending.settle(0.0)
    assert set(sending.rates().values()) == {0.5}
    assert sending.take(sending.next_s()) == [(10, 2.0)]
    assert sending.settle(2.0) == 1
    assert sending.rates()[11] == 1.0
    assert 10 not in sending.rates()


@KINDS
def test_nobody_sends_and_nothing_ends(kind: str) -> None:
    sending = maker(kind)(np.ones(2))
    assert sending.settle(0.0) == 0
    assert (sending.next_s(), sending.take(1.0), sending.rates(), len(sending)) == (float("inf"), [], {}, 0)


@KINDS
def test_a_flow_that_begins_late_sends_from_its_own_begin_on(kind: str) -> None:
    sending = maker(kind)(np.ones(2))
    add(sending, 0, ([0], [1.0], 1.0), 0.25)
    sending.settle(0.0)
    assert sending.next_s() == 1.25
    add(sending, 1, ([0], [1.0], 1.0), 0.25)
    sending.settle(0.25)
    assert sending.next_s() == 2.25
    assert sending.take(2.25) == [(0, 2.25), (1, 2.25)]
    assert sending.next_s() == float("inf")


@pytest.mark.parametrize(
    ("links", "weights"), [([2], [1.0]), ([-1], [1.0]), ([0], [0.0]), ([0], [float("nan")]), ([0, 1], [1.0]), ([], [])]
)
def test_the_compiled_module_takes_no_links_that_are_not_there(links: list[int], weights: list[float]) -> None:
    sending = native_sending()(np.ones(2))
    with pytest.raises(ValueError, match=r"link|length"):
        sending.add(0, np.array(links, dtype=np.int64), np.array(weights), 1.0, 0.0)
    with pytest.raises((TypeError, ValueError, BufferError)):
        sending.add(0, "no array", np.ones(1), 1.0, 0.0)
    assert len(sending) == 0
