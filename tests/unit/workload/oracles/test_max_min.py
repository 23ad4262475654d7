"""Max-min fair shares and what they finish when, against textbook cases."""

import math
import time

import numpy as np
import pytest

from testbed.workload.oracles.max_min import fluid_completion_times, max_min_shares, usage_of


def test_the_example_of_bertsekas_and_gallager() -> None:
    # Data Networks, section 6.5.2: links of 1; sessions 2, 3 and 5 share a link, 1 and 3 another, 4 has one alone.
    routes = [[1], [0], [0, 1], [2], [0]]
    assert max_min_shares(routes, [1, 1, 1]) == pytest.approx([2 / 3, 1 / 3, 1 / 3, 1, 1 / 3])


def test_a_parking_lot() -> None:
    # One long flow over three links, a short one on each.
    assert max_min_shares([[0, 1, 2], [0], [1], [2]], [10, 10, 10]) == pytest.approx([5, 5, 5, 5])
    assert max_min_shares([[0, 1, 2], [0], [1], [2]], [4, 10, 20]) == pytest.approx([2, 2, 8, 18])


def test_outcast_and_incast() -> None:
    # A sends to B..E, F to E, links of 10: A's flows get 2.5 each, F's the rest of E's link (htsim's example: 7.55).
    routes = [[0, 1], [0, 2], [0, 3], [0, 4], [5, 4]]
    assert max_min_shares(routes, [10] * 6) == pytest.approx([2.5, 2.5, 2.5, 2.5, 7.5])


def test_weights() -> None:
    # Half of a sprayed flow crosses each of two links, one of them at half rate: it gets what that half allows.
    assert max_min_shares([[0, 1]], [10, 5], weights=[[0.5, 0.5]]) == pytest.approx([10])
    assert max_min_shares([[0, 1], [0]], [10, 5], weights=[[0.5, 0.5], [1]]) == pytest.approx([20 / 3, 20 / 3])


def test_a_dead_link_gives_nothing() -> None:
    assert max_min_shares([[0], [0, 1], [1]], [10, 0]) == pytest.approx([10, 0, 0])
    assert max_min_shares([], [1.0]).tolist() == []


def test_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="not among the 1"):
        max_min_shares([[1]], [1.0])
    with pytest.raises(ValueError, match="nothing limits flow 1"):
        max_min_shares([[0], []], [1.0])
    with pytest.raises(ValueError, match="negative"):
        max_min_shares([[0]], [-1.0])
    with pytest.raises(ValueError, match="negative"):
        max_min_shares([[0]], [math.nan])
    with pytest.raises(ValueError, match="weight"):
        max_min_shares([[0]], [1.0], weights=[[-1.0]])
    with pytest.raises(ValueError, match="shape"):
        max_min_shares([[0]], [1.0], weights=[[1.0, 1.0]])


@pytest.mark.parametrize("shape", ["random", "crowded", "chain"])
def test_1000_flows_on_5000_links_take_less_than_200_ms(shape: str) -> None:
    rng = np.random.default_rng(1)
    capacities = rng.random(5000) + 0.1
    if shape == "chain":  # every bottleneck hangs on the one before
        routes = [[n, n + 1] for n in range(1000)]
        capacities[:1001] = 2.0 ** np.linspace(0, 300, 1001)
    else:
        routes = [rng.choice(5000 if shape == "random" else 50, size=6, replace=False).tolist() for _ in range(1000)]
    took = []
    for _ in range(3):
        begun = time.process_time()
        shares = max_min_shares(routes, capacities)
        took.append(time.process_time() - begun)
    assert shares.min() > 0
    assert min(took) < 0.2


def test_rates_rise_when_a_flow_has_ended() -> None:
    # 10 bit at 5 bit/s each; then the second has 20 left at 10 bit/s.
    assert fluid_completion_times([10, 30], usage_of([[0], [0]]), [10]) == pytest.approx([2, 4])
    assert fluid_completion_times([0, 30], usage_of([[0], [0]]), [10]) == pytest.approx([0, 3])


def test_a_flow_over_a_dead_link_never_ends() -> None:
    assert fluid_completion_times([10, 10], usage_of([[0], [1]]), [10, 0]).tolist() == [1, math.inf]
