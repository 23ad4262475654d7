"""Whatever the network and the hosts do: what an operation says has happened has, once, and nothing is left behind."""

import pytest
from simulated_chaos import Chaos
from simulated_topologies import totals

BLOCKS = [pytest.param(block, marks=[pytest.mark.thorough] if block >= 4 else []) for block in range(10)]


@pytest.mark.parametrize("block", BLOCKS)
def test_everything_succeeds_on_a_network_that_loses_repeats_and_reorders(block: int) -> None:
    for seed in range(block * 120, block * 120 + 120):
        Chaos(seed, 2 + seed % 5, 12, calm=True).run()


@pytest.mark.parametrize("block", BLOCKS)
def test_what_is_said_is_true_where_hosts_die_and_paths_end(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        Chaos(seed, 2 + seed % 5, 12, calm=False).run()


@pytest.mark.parametrize(("hosts", "seed"), [(16, 1), (33, 2), (64, 3), (64, 4)])
def test_many_hosts(hosts: int, seed: int) -> None:
    Chaos(seed, hosts, 4 * hosts, calm=True).run()
    Chaos(seed, hosts, 4 * hosts, calm=False).run()


@pytest.mark.parametrize("calm", [True, False])
def test_the_same_holds_under_tss(calm: bool) -> None:
    """Where every PDC starts with the PSN that its target demands, and who begins anew demands others."""
    for seed in range(60):
        Chaos(seed, 2 + seed % 5, 12, calm=calm, secure=True).run()


@pytest.mark.soak
@pytest.mark.parametrize("calm", [True, False])
def test_many_seeds(calm: bool) -> None:
    for seed in range(10_000, 13_000):
        Chaos(seed, 2 + seed % 7, 20, calm=calm).run()


def test_a_run_repeats_itself() -> None:
    first, second = (Chaos(5, 4, 12, calm=False) for _ in range(2))
    first.run()
    second.run()
    assert totals(first.network) == totals(second.network)
    statuses = [[issued.operation.status for issued in chaos.issued] for chaos in (first, second)]
    assert statuses[0] == statuses[1]
