"""What paths, receiver credits and switch settings do for congestion in the fabric: the figures of the internals' page
on congestion control, and the relations among them that hold.

All fabrics are of 100 Gbit/s and 12 us. The figures of every run are printed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import pytest
from simulated_fabric import Fabric, config, port_settings
from simulated_topologies import totals

PERMUTATION_BYTES = 2 << 20
INCAST_BYTES = 256 << 10
SEEDS = (1, 2, 3, 4)
SHAPES = {"non-blocking": (4, 4), "oversubscribed 4:1": (2, 2)}
"""Leaves and spines under 16 hosts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Means over some runs."""

    last_us: float
    """Completion of the slowest transfer."""
    trimmed: float
    dropped: float
    marked: float
    timeouts: float


def measured(name: str, fabrics: Sequence[Fabric]) -> Figures:
    """The figures of these runs, which are printed as a row of a table, too."""
    found = [totals(fabric.network) for fabric in fabrics]
    figures = Figures(
        last_us=fmean(max(fabric.finished_ns) for fabric in fabrics) / 1000,
        trimmed=fmean(each.trimmed for each in found),
        dropped=fmean(each.dropped for each in found),
        marked=fmean(each.marked for each in found),
        timeouts=fmean(fabric.counted("timeout") for fabric in fabrics),
    )
    print(
        f"| {name} | {figures.last_us:.1f} | {figures.trimmed:.0f} | {figures.dropped:.0f} | {figures.marked:.0f} "
        f"| {figures.timeouts:.0f} |"
    )
    return figures


def permutation(shape: str, seeds: Sequence[int] = SEEDS, **settings: Any) -> Figures:
    """16 hosts, each writes to one of another leaf."""
    fabrics = []
    for seed in seeds:
        leaves, spines = SHAPES[shape]
        fabric = Fabric(16, config(trimming=True, **settings), seed=seed)
        fabric.leaf_spine(leaves, spines, port_settings(trimming=True))
        fabric.permutation(PERMUTATION_BYTES)
        fabric.run()
        fabrics.append(fabric)
    return measured(f"{shape}, {', '.join(f'{name} {value}' for name, value in settings.items())}", fabrics)


@pytest.mark.parametrize("shape", ["non-blocking", pytest.param("oversubscribed 4:1", marks=pytest.mark.thorough)])
def test_what_paths_learn_does_no_harm_where_all_are_equal(shape: str) -> None:
    oblivious, bitmap, reps = (permutation(shape, paths=paths) for paths in ("oblivious", "bitmap", "reps"))
    assert max(bitmap.last_us, reps.last_us) <= 1.02 * oblivious.last_us
    assert oblivious.dropped == bitmap.dropped == reps.dropped == 0


@pytest.mark.thorough
def test_packets_of_one_recycled_value_in_a_row_meet_in_queues() -> None:
    """The reason why a recycled value serves one choice (`recycled_entropy_uses`)."""
    once, often = (permutation("non-blocking", paths="reps", recycled_entropy_uses=uses) for uses in (1, 4))
    assert often.last_us >= 1.05 * once.last_us
    assert often.marked >= 1.3 * once.marked


@pytest.mark.thorough
def test_credit_follows_what_an_oversubscribed_fabric_carries() -> None:
    fixed, follows = (
        permutation("oversubscribed 4:1", SEEDS[:2], cc="rccc", oversubscribed_cc=on) for on in (False, True)
    )
    assert follows.trimmed * 10 <= fixed.trimmed
    assert follows.last_us <= fixed.last_us


@pytest.mark.thorough
def test_credit_follows_a_fabric_that_carries_everything() -> None:
    """It costs little where there is nothing to follow."""
    fixed, follows = (
        permutation("non-blocking", paths="reps", cc="rccc", oversubscribed_cc=on) for on in (False, True)
    )
    assert follows.last_us <= 1.03 * fixed.last_us


def test_headers_of_a_large_incast_need_more_than_the_advised_queue() -> None:
    """127 first windows of 1.5 BDP arrive at one port within a base RTT: each trimmed header that finds no room costs
    a time-out. The advice is one Plane_BDP for them."""
    found = []
    for bdps in (1, 2, 5):
        fabric = Fabric(128, config(trimming=True)).star(port_settings(trimming=True, medium_planes=bdps))
        fabric.incast(INCAST_BYTES)
        fabric.run()
        found.append(measured(f"127:1, medium class of {bdps} BDP", [fabric]))
    assert [figures.dropped > 0 for figures in found] == [True, True, False]
    assert all(figures.timeouts == pytest.approx(figures.dropped, abs=5) for figures in found)
    assert found[1].timeouts <= 0.75 * found[0].timeouts
    # The port is busy all the time: what is lost costs the lost transfers their time, and the last one little.
    assert found[1].last_us == pytest.approx(found[0].last_us, rel=0.02)
