"""Which NIC is which rank."""

from __future__ import annotations

import pytest
from fake_lab import small_lab

from testbed.errors import ScenarioError
from testbed.model.scenario import RankOrder, Ranks
from testbed.scenario.run.placement import RankPlacement, place_ranks

LAB, PLAN = small_lab(segments=2, hosts=2, rails=2, spines=2)


def placed(seed: int = 1, **choice: object) -> RankPlacement:
    return place_ranks(LAB, PLAN, Ranks(**choice), seed=seed)  # type: ignore[arg-type]


def names(placement: RankPlacement) -> list[str]:
    return [f"{nic.node.removeprefix('p1-')}:{nic.name.removeprefix('rail')}" for nic in placement.nics]


def test_host_by_host() -> None:
    found = placed()
    assert names(found) == ["s1-h1:1", "s1-h1:2", "s1-h2:1", "s1-h2:2", "s2-h1:1", "s2-h1:2", "s2-h2:1", "s2-h2:2"]
    assert found.ranks_per_host == 2
    assert found.rails == ((0, 2, 4, 6), (1, 3, 5, 7))
    assert found.leaf(2) == "p1-s1-rail1" and found.host(2) == "p1-s1-h2"


def test_rail_by_rail() -> None:
    found = placed(order=RankOrder.RAIL)
    assert names(found) == ["s1-h1:1", "s1-h2:1", "s2-h1:1", "s2-h2:1", "s1-h1:2", "s1-h2:2", "s2-h1:2", "s2-h2:2"]
    assert found.ranks_per_host == 0


def test_spread_over_leaves() -> None:
    found = placed(order=RankOrder.SPREAD, rails=(1,))
    assert names(found) == ["s1-h1:1", "s2-h1:1", "s1-h2:1", "s2-h2:1"]
    neighbours = zip(found.nics, found.nics[1:], strict=False)
    assert all(a.peer.partition(":")[0] != b.peer.partition(":")[0] for a, b in neighbours)


def test_shuffled_by_the_seed() -> None:
    one, same, other = (placed(seed, order=RankOrder.SHUFFLED) for seed in (3, 3, 4))
    assert names(one) == names(same) != names(other)
    assert sorted(names(one)) == sorted(names(placed()))


def test_some_hosts_rails_and_a_number() -> None:
    assert names(placed(hosts=("p1-s2-*",), rails=(2,))) == ["s2-h1:2", "s2-h2:2"]
    assert names(placed(count=3)) == ["s1-h1:1", "s1-h1:2", "s1-h2:1"]
    assert placed(count=3).ranks_per_host == 0


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ({"hosts": ("p1-s1-h9",)}, "no host of fake is called p1-s1-h9"),
        ({"rails": (3,)}, "fake has no rail 3"),
        ({"count": 9}, "9 ranks are asked for; the chosen hosts have 8 NICs"),
    ],
)
def test_what_the_lab_does_not_have(choice: dict[str, object], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        placed(**choice)
