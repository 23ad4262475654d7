"""Front-end mice, their sizes and bursts."""

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.base.errors import WorkloadError
from testbed.workload.flow_sizes import FB_HDP, FLOW_SIZES, WEB_SEARCH, FlowSizes
from testbed.workload.frontend import Mice, generate_mice, regular_bursts

SMALL = FlowSizes(name="small", points=((0, 0), (2000, 100)))


def test_means_of_the_published_distributions() -> None:
    """By `getAvg` of custom_rand.py: the sum of the mean of each step times its share."""
    assert WEB_SEARCH.mean_bytes == pytest.approx(1_711_250)
    assert FB_HDP.mean_bytes == pytest.approx(120_420.75)


@pytest.mark.parametrize("sizes", FLOW_SIZES.values(), ids=str)
def test_sizes_at_the_published_points(sizes: FlowSizes) -> None:
    for size, percent in sizes.points:
        assert sizes.size_at(percent) == max(1, size)
    assert all(sizes.size_at(p / 10) <= sizes.size_at(p / 10 + 0.1) for p in range(1000))


@given(seed=st.integers(0, 2**32))
def test_drawn_sizes_follow_the_distribution(seed: int) -> None:
    rng = random.Random(seed)
    drawn = [FB_HDP.draw(rng) for _ in range(2000)]
    assert all(1 <= size <= 10_000_000 for size in drawn)
    assert sum(size <= 700 for size in drawn) / 2000 == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("points", [((0, 0),), ((0, 1), (5, 100)), ((0, 0), (5, 99)), ((0, 0), (5, 50), (5, 100))])
def test_a_distribution_that_is_none(points: tuple[tuple[int, float], ...]) -> None:
    with pytest.raises(ValueError, match="distribution x"):
        FlowSizes(name="x", points=points)


def test_mice_offer_their_load() -> None:
    mice = Mice(sizes=SMALL, load=0.2, duration_ns=50_000_000)
    workload = generate_mice(mice, ranks=8, rate_bps=10**9, rng=random.Random(1))
    starts = [step.start_ns for step in workload.transfers]
    assert starts == sorted(starts)
    assert all(not step.after and step.source != step.destination for step in workload.transfers)
    offered = sum(step.size_bytes for step in workload.transfers) * 8 / 50e-3 / 8
    assert offered == pytest.approx(0.2e9, rel=0.05)
    gaps = [b - a for a, b in pairwise(starts)]
    mean = sum(gaps) / len(gaps)
    deviation = (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5
    assert deviation / mean == pytest.approx(1, abs=0.05)  # of an exponential distribution


def test_bursts_multiply_arrivals_in_their_time_alone() -> None:
    bursts = regular_bursts(on_ns=5_000_000, off_ns=15_000_000, factor=10, duration_ns=40_000_000)
    assert [(b.start_ns, b.end_ns) for b in bursts] == [(15_000_000, 20_000_000), (35_000_000, 40_000_000)]
    mice = Mice(sizes=SMALL, load=0.2, duration_ns=40_000_000, bursts=bursts)
    workload = generate_mice(mice, ranks=4, rate_bps=10**9, rng=random.Random(3))
    inside = sum(any(b.start_ns <= s.start_ns < b.end_ns for b in bursts) for s in workload.transfers)
    outside = len(workload.transfers) - inside
    assert inside / 10e6 / (outside / 30e6) == pytest.approx(10, rel=0.1)
    assert "200%" in workload.notes[0]


def test_the_same_seed_gives_the_same_mice() -> None:
    def make(seed: int) -> object:
        mice = Mice(sizes=WEB_SEARCH, load=0.5, duration_ns=20_000_000)
        return generate_mice(mice, ranks=3, rate_bps=10**10, rng=random.Random(seed))

    assert make(1) == make(1)
    assert make(1) != make(2)


def test_sources_and_destinations() -> None:
    mice = Mice(sizes=SMALL, load=0.1, duration_ns=5_000_000, sources=(0, 1), destinations=(1, 4))
    workload = generate_mice(mice, ranks=5, rate_bps=10**9, rng=random.Random(1))
    assert {(s.source, s.destination) for s in workload.transfers} == {(0, 1), (0, 4), (1, 4)}


@pytest.mark.parametrize(
    ("options", "message"), [({"duration_ns": 10**15}, "flows are more than"), ({"ranks": 1}, "another rank")]
)
def test_wrong_parameters(options: dict[str, Any], message: str) -> None:
    arguments = {"ranks": 2, "load": 0.1, "duration_ns": 1000} | options
    ranks = arguments.pop("ranks")
    with pytest.raises(WorkloadError, match=message):
        generate_mice(Mice(sizes=SMALL, **arguments), ranks=ranks, rate_bps=10**9, rng=random.Random(0))


def test_a_distribution_without_its_large_flows() -> None:
    whole = FLOW_SIZES["FbHdp"]
    small = whole.up_to(100_000)
    rng = random.Random(1)
    drawn = [small.draw(rng) for _ in range(2000)]
    assert max(drawn) <= 100_000
    kept = sorted(size for size in (whole.draw(rng) for _ in range(4000)) if size <= 100_000)
    assert small.size_at(50) == pytest.approx(kept[len(kept) // 2], rel=0.15), "what is left is as before"
    assert small.mean_bytes == pytest.approx(sum(drawn) / len(drawn), rel=0.15) and small.mean_bytes < whole.mean_bytes
    assert whole.up_to(1 << 40) is whole
    with pytest.raises(ValueError, match="FbHdp has no flows of 0 bytes"):
        whole.up_to(0)
