"""What holds of every fair allocation, and of metrics, whatever the network and the samples."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.workload.metrics import jain_index, max_mean_ratio, percentile, weighted_percentile
from testbed.workload.metrics.links import hill_number
from testbed.workload.metrics.reordering import reorder_buffer, reordering_extent
from testbed.workload.oracles.linear_program import splittable_max_min
from testbed.workload.oracles.max_min import fluid_completion_times, max_min_shares, usage_of

CLOSE = 1e-7


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[list[int]], list[list[float]], list[float]]:
    """Routes, weights and capacities."""
    links = draw(st.integers(1, 8))
    capacities = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0, 10.0, 1e9]), min_size=links, max_size=links))
    routes = draw(
        st.lists(st.lists(st.integers(0, links - 1), min_size=1, max_size=4, unique=True), min_size=1, max_size=10)
    )
    weights = [[draw(st.sampled_from([0.25, 0.5, 1.0])) for _ in route] for route in routes]
    return routes, weights, capacities


@given(networks())
def test_no_link_carries_more_than_it_can_and_no_flow_can_have_more_without_taking_it(
    network: tuple[list[list[int]], list[list[float]], list[float]],
) -> None:
    """Max-min fair is feasible, with a bottleneck to every flow: a full link on which no other flow has more."""
    routes, weights, capacities = network
    rates = max_min_shares(routes, capacities, weights=weights)
    loads = usage_of(routes, weights).loads(rates, len(capacities))
    for load, capacity in zip(loads, capacities, strict=True):
        assert load <= capacity * (1 + CLOSE) + CLOSE * 1e-3
    for flow, route in enumerate(routes):
        assert any(
            loads[link] >= capacities[link] * (1 - CLOSE)
            and all(
                rates[other] <= rates[flow] * (1 + CLOSE) + CLOSE for other, way in enumerate(routes) if link in way
            )
            for link in route
        )


@given(networks(), st.floats(0.001, 1000))
def test_twice_the_network_is_twice_the_rates(
    network: tuple[list[list[int]], list[list[float]], list[float]], factor: float
) -> None:
    routes, weights, capacities = network
    once = max_min_shares(routes, capacities, weights=weights)
    scaled = max_min_shares(routes, [capacity * factor for capacity in capacities], weights=weights)
    assert scaled == pytest.approx(once * factor, rel=1e-6, abs=1e-9)


@given(networks(), st.randoms(use_true_random=False))
def test_the_order_of_flows_does_not_matter(
    network: tuple[list[list[int]], list[list[float]], list[float]], rng: random.Random
) -> None:
    routes, weights, capacities = network
    order = list(range(len(routes)))
    rng.shuffle(order)
    rates = max_min_shares(routes, capacities, weights=weights)
    shuffled = max_min_shares([routes[n] for n in order], capacities, weights=[weights[n] for n in order])
    assert shuffled == pytest.approx(rates[order], rel=1e-6, abs=1e-9)


@given(networks())
def test_a_fluid_delivers_all_and_no_faster_than_alone(
    network: tuple[list[list[int]], list[list[float]], list[float]],
) -> None:
    routes, _, capacities = network
    sizes = [float(1 + n) for n in range(len(routes))]
    ended = fluid_completion_times(sizes, usage_of(routes), capacities)
    for flow, route in enumerate(routes):
        slowest = min(capacities[link] for link in route)
        assert ended[flow] >= (sizes[flow] / slowest if slowest else np.inf) * (1 - CLOSE)
    for link, capacity in enumerate(capacities):
        crossing = [flow for flow, route in enumerate(routes) if link in route]
        if crossing and capacity and np.isfinite(ended[crossing]).all():
            assert max(ended[crossing]) >= sum(sizes[flow] for flow in crossing) / capacity * (1 - CLOSE)


@st.composite
def splittable(draw: st.DrawFn) -> tuple[list[list[tuple[int, ...]]], list[float]]:
    """Paths of each flow, and capacities."""
    links = draw(st.integers(2, 7))
    capacities = draw(st.lists(st.sampled_from([0.25, 0.5, 1.0, 2.0, 3.0]), min_size=links, max_size=links))
    path = st.lists(st.integers(0, links - 1), min_size=1, max_size=3, unique=True).map(lambda p: tuple(sorted(p)))
    return draw(st.lists(st.lists(path, min_size=1, max_size=3, unique=True), min_size=1, max_size=6)), capacities


@settings(max_examples=60)
@given(splittable(), st.randoms(use_true_random=False))
def test_no_division_over_paths_is_fairer_than_the_adaptive_one(
    network: tuple[list[list[tuple[int, ...]]], list[float]], rng: random.Random
) -> None:
    """Lexicographically: the sorted rates of no fixed division come after those of the linear programmes."""
    paths, capacities = network
    best = sorted(splittable_max_min(paths, capacities, [1] * len(paths)).tolist())
    for _ in range(8):
        routes, weights = [], []
        for ways in paths:
            shares = [rng.choice([0.0, 0.1, 0.5, 1.0]) for _ in ways]
            shares[rng.randrange(len(ways))] += 0.1
            use: dict[int, float] = {}
            for way, share in zip(ways, shares, strict=True):
                for link in way:
                    use[link] = use.get(link, 0.0) + share / sum(shares)
            routes.append(list(use))
            weights.append(list(use.values()))
        fixed = sorted(max_min_shares(routes, capacities, weights=weights).tolist())
        for adaptive_rate, fixed_rate in zip(best, fixed, strict=True):
            assert fixed_rate <= adaptive_rate + 1e-6
            if fixed_rate < adaptive_rate - 1e-6:
                break


@settings(max_examples=60)
@given(splittable())
def test_a_flow_with_one_path_is_no_different(network: tuple[list[list[tuple[int, ...]]], list[float]]) -> None:
    paths, capacities = network
    single = [ways[:1] for ways in paths]
    expected = max_min_shares([ways[0] for ways in single], capacities)
    assert splittable_max_min(single, capacities, [1] * len(single)) == pytest.approx(expected, rel=1e-6)


@settings(max_examples=60)
@given(splittable(), st.integers(1, 4))
def test_flows_that_are_alike_may_be_counted(
    network: tuple[list[list[tuple[int, ...]]], list[float]], copies: int
) -> None:
    paths, capacities = network
    counted = splittable_max_min(paths, capacities, [copies] * len(paths))
    listed = splittable_max_min([ways for ways in paths for _ in range(copies)], capacities, [1] * len(paths) * copies)
    assert np.repeat(counted, copies) == pytest.approx(listed, rel=1e-6, abs=1e-9)


LOADS = st.lists(st.floats(0, 1e12), min_size=1, max_size=30)


@given(LOADS)
def test_indexes_stay_in_their_bounds(loads: list[float]) -> None:
    jain, mmr, paths = jain_index(loads), max_mean_ratio(loads), hill_number(loads)
    if jain is not None:
        assert 1 / len(loads) - CLOSE <= jain <= 1 + CLOSE
    if mmr is not None and sum(loads) > 1e-300:
        assert 1 - CLOSE <= mmr <= len(loads) + CLOSE
    if paths is not None:
        assert 1 - CLOSE <= paths <= sum(load > 0 for load in loads) + CLOSE


@given(st.lists(st.integers(-100, 100), min_size=1), st.floats(0, 1))
def test_a_percentile_is_a_sample_with_enough_below_it(samples: list[int], share: float) -> None:
    found = percentile(samples, share)
    assert found in samples
    assert sum(sample <= found for sample in samples) >= share * len(samples) - 1e-6
    assert sum(sample < found for sample in samples) <= share * len(samples) + 1e-6
    assert weighted_percentile(samples, [1.0] * len(samples), share) == found


@given(st.lists(st.integers(0, 40), min_size=1, max_size=60))
def test_reordering_measures_agree_on_what_is_in_order(sequence: list[int]) -> None:
    once = list(dict.fromkeys(sequence))
    late = sum(number < max(once[: place + 1]) for place, number in enumerate(once))
    by_definition = [
        place - min(j for j in range(place) if once[j] > number)
        for place, number in enumerate(once)
        if any(earlier > number for earlier in once[:place])
    ]
    assert reordering_extent(sequence) == max(by_definition, default=0)
    held = reorder_buffer(sequence, [1] * len(sequence))
    assert held is not None and (held == 0) == (late == 0)
    assert held <= len(once) - 1
