"""What the transport achieves on fabrics of 100 Gbit/s and 12 us: incast, permutations, a degraded uplink.

Ideals are computed, not measured: the time that the bottleneck needs for all packets with their headers. The figures of
every run are printed.
"""

from collections.abc import Callable, Sequence
from statistics import fmean

import pytest
from simulated_fabric import PAYLOAD, Fabric, config, ideal_ns, jain, port_settings
from simulated_topologies import totals

from testbed.protocols.uet.config import UetConfig

MB = 1_000_000
INCAST_BYTES = 2 * MB // PAYLOAD * PAYLOAD
PERMUTATION_BYTES = 3 * MB // PAYLOAD * PAYLOAD
SEEDS = (1, 2, 3, 4)
Report = Callable[[str], None]


@pytest.fixture(scope="module")
def report() -> Report:
    """Prints a line; pytest shows it with -s, and where a test fails."""
    return print


def incast(senders: int, settings: UetConfig, seed: int) -> Fabric:
    """`senders` hosts write to one."""
    fabric = Fabric(senders + 1, settings, seed=seed).star(port_settings(settings.trimming))
    fabric.incast(INCAST_BYTES)
    fabric.run()
    return fabric


def describe(name: str, fabrics: Sequence[Fabric], flows: int, report: Report) -> tuple[list[float], list[float]]:
    """Last completion over the ideal and Jain's index of the completion rates, for each run; both are reported."""
    ideal = ideal_ns(flows, INCAST_BYTES)
    tails = [max(fabric.finished_ns) / ideal for fabric in fabrics]
    fairness = [jain([1 / (end - begin) for begin, end in fabric.spans_ns]) for fabric in fabrics]
    report(f"{name}: last/ideal {[round(tail, 4) for tail in tails]}, Jain {[round(index, 4) for index in fairness]}")
    return tails, fairness


def test_incast_of_fifteen_with_trimming(report: Report) -> None:
    fabrics = [incast(15, config(trimming=True), seed) for seed in SEEDS]
    tails, fairness = describe("15:1 nscc, trimming", fabrics, 15, report)
    assert max(tails) <= 1.08
    assert fmean(fairness) >= 0.99 and min(fairness) >= 0.98
    for fabric in fabrics:
        found = totals(fabric.network)
        assert found.dropped == found.lost == 0 and found.trimmed > 0
        assert fabric.counted("timeout") == fabric.counted("inferred-loss") == 0
        # Every trimmed packet went again, once for each time it was trimmed, and none besides.
        assert fabric.counted("trimmed") == found.trimmed
        assert fabric.counted("duplicate") == 0


def test_incast_of_eight_without_trimming(report: Report) -> None:
    fabrics = [incast(8, config(trimming=False), seed) for seed in SEEDS]
    tails, fairness = describe("8:1 nscc, no trimming", fabrics, 8, report)
    assert max(tails) <= 1.08
    # Who loses more packets of the first window begins with less.
    assert min(fairness) >= 0.85
    for fabric in fabrics:
        assert totals(fabric.network).dropped > 0
        assert fabric.counted("timeout") <= 8


@pytest.mark.parametrize(
    ("cc", "senders", "trimming", "least_fair"),
    [("rccc", 15, True, 0.998), ("rccc", 8, False, 0.998), ("both", 15, True, 0.985), ("both", 8, False, 0.9)],
)
def test_incast_with_receiver_credits(cc: str, least_fair: float, senders: int, trimming: bool, report: Report) -> None:
    fabrics = [incast(senders, config(cc=cc, trimming=trimming), seed) for seed in SEEDS]
    tails, fairness = describe(f"{senders}:1 {cc}, trimming {trimming}", fabrics, senders, report)
    assert max(tails) <= 1.05
    assert min(fairness) >= least_fair


def test_congestion_control_is_what_achieves_it(report: Report) -> None:
    """The same incast with a fixed window: the figures above are not what any sender would reach."""
    with_it = incast(8, config(trimming=True), 1)
    without = incast(8, config(trimming=True, cc="none"), 1)
    tails, _ = describe("8:1 nscc, none", [with_it, without], 8, report)
    assert tails[0] <= 1.08
    assert tails[1] > 1.15
    assert totals(without.network).trimmed > 20 * totals(with_it.network).trimmed


def permutation(
    paths: str, seed: int, *, slow_uplink: bool = False, trimming: bool = True, recycled_entropy_uses: int = 1
) -> Fabric:
    """16 hosts at 4 leaves under 4 spines, each writes to one of another leaf."""
    settings = config(trimming=trimming, paths=paths, recycled_entropy_uses=recycled_entropy_uses)
    fabric = Fabric(16, settings, seed=seed)
    fabric.leaf_spine(4, 4, port_settings(trimming))
    if slow_uplink:
        fabric.network.lines["leaf0->spine0"].rate_bps //= 2
    fabric.permutation(PERMUTATION_BYTES)
    fabric.run()
    return fabric


def tail(paths: str, seeds: Sequence[int], *, slow_uplink: bool = False, recycled_entropy_uses: int = 1) -> float:
    """Mean over the seeds of the last completion, in units of an unshared link's time."""
    runs = [
        permutation(paths, seed, slow_uplink=slow_uplink, recycled_entropy_uses=recycled_entropy_uses) for seed in seeds
    ]
    return fmean(max(fabric.finished_ns) for fabric in runs) / ideal_ns(1, PERMUTATION_BYTES)


@pytest.mark.thorough
def test_spraying_shortens_the_tail_of_a_permutation(report: Report) -> None:
    single, oblivious, reps, bitmap = (tail(paths, SEEDS[:2]) for paths in ("single", "oblivious", "reps", "bitmap"))
    report(f"permutation: single {single:.3f}, oblivious {oblivious:.3f}, REPS {reps:.3f}, bitmap {bitmap:.3f}")
    assert single >= 2 * oblivious
    assert single >= 2 * reps
    assert single >= 2 * bitmap
    assert max(oblivious, reps, bitmap) < 1.35


@pytest.mark.thorough
def test_recycled_entropies_avoid_a_slow_uplink(report: Report) -> None:
    """Used once a value steers a quarter of the packets, since one ACK covers four; used four times, all of them."""
    seeds = SEEDS[:3]
    oblivious, once, four = (
        tail(paths, seeds, slow_uplink=True, recycled_entropy_uses=uses)
        for paths, uses in (("oblivious", 1), ("reps", 1), ("reps", 4))
    )
    report(f"one uplink at 50 %: oblivious {oblivious:.3f}, REPS {once:.3f}, values used four times {four:.3f}")
    assert oblivious / once >= 1.05
    assert oblivious / four >= 1.3
