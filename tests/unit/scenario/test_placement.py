"""Which NIC is which rank."""

from __future__ import annotations

import pytest
from fake_lab import small_lab

from testbed.errors import ScenarioError
from testbed.model import BACKEND
from testbed.model.scenario import RankOrder, Ranks, Scenario, TopologyRef, Transport, Workload
from testbed.plan import plan_lab
from testbed.scenario.ideals.point_ideals import PointIdeals
from testbed.scenario.run.placement import RankPlacement, place_ranks
from testbed.scenario.run.traffic import RunTraffic, make_traffic
from testbed.scenario.sweep.outlook import PlannedLab
from testbed.spec import load_topology_text
from testbed.units import ByteCount, Duration

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


# --- several networks --------------------------------------------------------------------------------

TWO_NETWORKS = """
name: two
fabric: {design: rail-optimized, segments: 1, hosts: 3, gpus: 2, spines: 1, nic: {rate: 400G}}
networks:
  frontend: {design: single-switch, nic: {rate: 100G}}
"""


def two_networks(*tenants: dict[str, object]) -> tuple[Scenario, PlannedLab, RunTraffic]:
    """Traffic on the six NICs of the back end, ranks 0 to 5, and the three of the front end."""
    model = load_topology_text(TWO_NETWORKS, file="two.yml")
    lab = PlannedLab(model=model, plan=plan_lab(model, k=1000)).of_network(BACKEND, "frontend")
    scenario = Scenario(
        name="two",
        topology=TopologyRef(file="two.yml"),
        transport=Transport(),
        workload=Workload(kind="tenants", parameters={"tenants": tenants}, ranks=Ranks(networks=(BACKEND, "frontend"))),
    )
    return scenario, lab, make_traffic(scenario, lab, seed=1)


def test_nics_of_one_network_after_those_of_the_other() -> None:
    ring = {"name": "ring", "ranks": (0, 1, 2, 3), "workload": {"kind": "all-reduce", "bytes": ByteCount(4096)}}
    mice = {"name": "mice", "ranks": (6, 7, 8), "workload": {"kind": "mice", "span": Duration.parse("1ms")}}
    scenario, lab, traffic = two_networks(ring, mice)
    found = traffic.placement
    assert [nic.network for nic in found.nics] == [BACKEND] * 6 + ["frontend"] * 3
    assert [nic.node for nic in found.nics] == [f"p1-s1-h{host}" for host in (1, 1, 2, 2, 3, 3, 1, 2, 3)]
    assert found.ranks_per_host == 0
    # The ring's own ranks share hosts by two, and it goes round by the scale-up network first.
    inside = [step for step in traffic.workload.transfers if step.scale_up]
    assert inside and all(found.host(step.source) == found.host(step.destination) for step in inside)
    assert PointIdeals.of(scenario, lab, [traffic]).nic_bps == 100e6


def test_the_slowest_nic_that_sends_is_the_bound() -> None:
    scenario, lab, traffic = two_networks(
        {"name": "ring", "ranks": (0, 2, 4), "workload": {"kind": "all-reduce", "bytes": ByteCount(4096)}}
    )
    assert PointIdeals.of(scenario, lab, [traffic]).nic_bps == 400e6


def test_nobody_sends_from_one_network_to_another() -> None:
    across = {"name": "across", "ranks": (0, 7), "workload": {"kind": "point-to-point", "bytes": ByteCount(4096)}}
    with pytest.raises(ScenarioError, match=r"rank 0 \(p1-s1-h1:rail1\) is in network backend, and rank 7"):
        two_networks(across)
