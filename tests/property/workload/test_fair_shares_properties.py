"""Rates that follow changes are those of an allocation from nothing, whatever came and went."""

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.workload.oracles.fair_shares import FairShares
from testbed.workload.oracles.linear_program import splittable_max_min
from testbed.workload.oracles.max_min import fill, fill_to_bottlenecks, usage_of

CLOSE = 1e-6
LINKS = 7
Change = tuple[int, list[int], list[float]]


@st.composite
def changes(draw: st.DrawFn) -> tuple[list[float], list[Change]]:
    """Capacities, and flows by number: one that is there goes, another comes with these links and weights."""
    capacities = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 10.0, 1e9]), min_size=LINKS, max_size=LINKS))
    found = []
    for _ in range(draw(st.integers(1, 30))):
        links = draw(st.lists(st.integers(0, LINKS - 1), min_size=1, max_size=4, unique=True))
        weights = [draw(st.sampled_from([0.125, 0.5, 1.0, 3.0])) for _ in links]
        found.append((draw(st.integers(0, 11)), links, weights))
    return capacities, found


@given(changes(), st.integers(1, 4))
@settings(max_examples=300)
def test_after_each_change_rates_are_those_of_filling_all_anew(
    case: tuple[list[float], list[Change]], together: int
) -> None:
    capacities, coming = case
    shares = FairShares(np.array(capacities))
    there: dict[int, tuple[list[int], list[float]]] = {}
    for place, (flow, links, weights) in enumerate(coming, start=1):
        if flow in there:
            shares.remove(flow)
            del there[flow]
        else:
            shares.add(flow, np.array(links), np.array(weights))
            there[flow] = (links, weights)
        if place % together:
            continue
        shares.settle()
        usage = usage_of([links for links, _ in there.values()], [weights for _, weights in there.values()])
        wanted = fill(usage, np.array(capacities))
        assert [shares.rates[flow] for flow in there] == pytest.approx(wanted.tolist(), rel=CLOSE, abs=1e-9)
        assert len(shares) == len(there)


@given(changes())
def test_each_flow_has_a_bottleneck_that_is_full_and_on_which_none_is_faster(
    case: tuple[list[float], list[Change]],
) -> None:
    capacities, coming = case
    usage = usage_of([links for _, links, _ in coming], [weights for _, _, weights in coming])
    rates, bottlenecks = fill_to_bottlenecks(usage, np.array(capacities))
    loads = usage.loads(rates, LINKS)
    assert (loads <= np.array(capacities) * (1 + CLOSE) + 1e-9).all(), "feasible"
    for flow, link in enumerate(bottlenecks.tolist()):
        assert link in coming[flow][1]
        assert loads[link] >= capacities[link] * (1 - CLOSE)
        fastest = max(rates[usage.flow[usage.link == link]])
        assert fastest <= rates[flow] * (1 + CLOSE) + 1e-12


@given(changes())
@settings(max_examples=30)
def test_the_linear_programme_finds_the_same_rates(case: tuple[list[float], list[Change]]) -> None:
    capacities, coming = case
    routes = [links for _, links, _ in coming][:8]
    shares = FairShares(np.array(capacities))
    for flow, links in enumerate(routes):
        shares.add(flow, np.array(links), np.ones(len(links)))
    shares.settle()
    solved = splittable_max_min([[tuple(route)] for route in routes], np.array(capacities), [1] * len(routes))
    assert shares.rates[: len(routes)].tolist() == pytest.approx(list(solved), rel=1e-5, abs=1e-6)


def test_a_change_looks_only_at_what_it_reaches() -> None:
    """A thousand pairs of flows, each on a link of its own: when one ends, its partner alone is looked at."""
    shares = FairShares(np.ones(1000))
    for flow in range(2000):
        shares.add(flow, np.array([flow // 2]), np.ones(1))
    shares.settle()
    assert set(shares.rates[:2000]) == {0.5}
    shares.remove(10)
    assert shares.settle() == 1
    assert shares.rates[11] == 1.0
    assert shares.rates[10] == 0.0


def test_many_flows_on_hashed_paths_have_the_rates_of_filling_all_anew() -> None:
    """Flows of four stripes between two pods come and go, some alone: each change goes through many others."""
    rng = random.Random(7)
    uplinks, ends = 24, 60
    capacity = np.array([1.0] * uplinks + [2.0] * (2 * ends))
    shares = FairShares(capacity)
    there: dict[int, tuple[list[int], list[float]]] = {}
    for turn in range(240):
        flow = rng.randrange(ends)
        if flow in there:
            shares.remove(flow)
            del there[flow]
        else:
            used = Counter(rng.randrange(uplinks) for _ in range(4 if flow % 5 else 0))
            links = [*used, uplinks + flow, uplinks + ends + flow]
            weights = [*(count / 4 for count in used.values()), 1.0, 1.0]
            shares.add(flow, np.array(links), np.array(weights))
            there[flow] = links, weights
        if turn % 3:
            continue
        shares.settle()
        wanted = fill(usage_of([links for links, _ in there.values()], [w for _, w in there.values()]), capacity)
        assert [shares.rates[flow] for flow in there] == pytest.approx(wanted.tolist(), rel=CLOSE, abs=1e-9)


def test_a_change_that_goes_along_a_chain_does_not_fill_it_anew_for_each_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each flow of a chain shares a link with the next one: when one ends, all that follow change, one by another."""
    length = 400
    fills: list[int] = []
    fill_some = FairShares._fill

    def counted(self: FairShares, work: set[int]) -> object:
        fills.append(len(work))
        return fill_some(self, work)

    monkeypatch.setattr(FairShares, "_fill", counted)
    capacity = np.array([1.0 + place for place in range(length + 1)])
    shares = FairShares(np.concatenate((capacity, np.ones(4 * length))))
    for flow in range(length):
        shares.add(flow, np.array([flow, flow + 1]), np.ones(2))
    for other in range(4 * length):  # so that the chain is a small part of all flows
        shares.add(length + other, np.array([length + 1 + other]), np.ones(1))
    shares.settle()
    fills.clear()
    shares.remove(0)
    shares.settle()
    assert len(fills) <= 12, fills
    wanted = fill(usage_of([[flow, flow + 1] for flow in range(1, length)]), capacity)
    assert shares.rates[1:length].tolist() == pytest.approx(wanted.tolist(), rel=CLOSE)


def test_a_flow_that_shares_nothing_has_all_of_its_slowest_link() -> None:
    shares = FairShares(np.array([4.0, 6.0, 1.0]))
    shares.add(3, np.array([0, 1]), np.array([0.5, 2.0]))
    assert shares.settle() == 1
    assert shares.rates[3] == 3.0
    shares.add(4, np.array([1, 2]), np.array([1.0, 0.25]))
    assert shares.settle() == 2
    assert (shares.rates[3], shares.rates[4]) == (2.0, 2.0)
