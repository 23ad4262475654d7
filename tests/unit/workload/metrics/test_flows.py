"""Collectives' factors, slowdown by size, and what cannot be."""

import pytest

from testbed.workload.metrics import busbw_factor, fct_slowdowns, slowdown_by_size
from testbed.workload.metrics.collectives import jct, overlap_fraction
from testbed.workload.metrics.flows import aggregate_share, fct_slowdown, slowest_share, tail_fct_ratio


@pytest.mark.parametrize(
    ("kind", "ranks", "factor"),
    [
        ("all_reduce", 2, 1.0),
        ("all_reduce", 8, 1.75),
        ("reduce_scatter", 8, 0.875),
        ("all_gather", 8, 0.875),
        ("all_to_all", 4, 0.75),
        ("gather", 4, 0.75),
        ("scatter", 4, 0.75),
        ("broadcast", 8, 1.0),
        ("reduce", 8, 1.0),
        ("send_recv", 2, 1.0),
        ("hypercube", 8, 1.0),
        ("all_reduce", 1, 0.0),
    ],
)
def test_busbw_factors_of_nccl_tests(kind: str, ranks: int, factor: float) -> None:
    assert busbw_factor(kind, ranks) == pytest.approx(factor)


def test_what_is_no_collective() -> None:
    with pytest.raises(ValueError, match="not a collective"):
        busbw_factor("allreduce", 8)
    with pytest.raises(ValueError, match="at least one rank"):
        busbw_factor("all_reduce", 0)


def test_slowdown_is_never_below_one() -> None:
    assert fct_slowdowns([1.0, 4.0], [2.0, 2.0]) == [1.0, 2.0]
    with pytest.raises(ValueError, match="alone"):
        fct_slowdowns([1.0], [0.0])
    with pytest.raises(ValueError, match="2 values against 1"):
        fct_slowdowns([1.0, 2.0], [1.0])
    assert fct_slowdown([], []) is None


def test_slowdown_by_size_in_bands_of_equal_numbers() -> None:
    sizes = [float(100 - n) for n in range(100)]
    slowdowns = [size if size > 95 else 1.0 for size in sizes]  # the five largest are slow
    bands = slowdown_by_size(sizes, slowdowns, [1.0] * 100)
    assert [band.flows for band in bands] == [5] * 20
    assert (bands[0].smallest_bytes, bands[0].largest_bytes) == (1, 5)
    assert (bands[-1].from_share, bands[-1].to_share) == (0.95, 1.0)
    assert [band.p99 for band in bands[:-1]] == [1.0] * 19
    assert (bands[-1].p50, bands[-1].p95, bands[-1].p99) == (98, 100, 100)


def test_fewer_flows_than_bands() -> None:
    bands = slowdown_by_size([1.0, 2.0, 3.0], [2.0, 2.0, 2.0], [1.0, 1.0, 1.0])
    assert [band.largest_bytes for band in bands] == [1.0, 2.0, 3.0]
    assert slowdown_by_size([], [], []) == []


def test_nothing_measured_is_none_not_zero() -> None:
    assert aggregate_share([], []) is None
    assert slowest_share([1.0], [0.0]) is None
    assert tail_fct_ratio([], 1.0) is None
    assert jct([], []) is None
    assert overlap_fraction(1.0, 1.0, 0.0) is None


def test_an_iteration_does_not_end_before_it_began() -> None:
    with pytest.raises(ValueError, match="before it began"):
        jct([5.0], [4.0])
