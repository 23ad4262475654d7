"""Which neighbours traffic needs, by the plans of shipped topologies."""

from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from testbed.lab.core.deploy.watch.next_hops import next_hops
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan, PortPlan
from testbed.lab.core.schema.load import load_topology

TOPOLOGIES = Path(__file__).parents[5] / "topologies"


def planned(name: str, **settings: Any) -> LabPlan:
    return plan_lab(load_topology(TOPOLOGIES / f"{name}.yml", overrides=settings), k=10_000)


def nic(plan: LabPlan, node: str, name: str) -> PortPlan:
    return next(one for host in plan.hosts for one in host.nics if (host.node, one.name) == (node, name))


def hops(plan: LabPlan, a: tuple[str, str], b: tuple[str, str]) -> dict[str, set[str]]:
    """Addresses by the place that must know them."""
    found: dict[str, set[str]] = {}
    for hop in next_hops(plan, [(nic(plan, *a), nic(plan, *b))]):
        found.setdefault(hop.place, set()).add(str(hop.address))
    return found


def test_hosts_of_two_leaves_go_by_their_gateways() -> None:
    plan = planned("dcqcn", **{"fabric.segments": 2})
    assert hops(plan, ("p1-s1-h1", "rail1"), ("p1-s2-h1", "rail1")) == {
        "p1-s1-h1": {"10.0.1.1"},
        "p1-s1-rail1": {"10.0.1.2"},
        "p1-s2-h1": {"10.0.33.1"},
        "p1-s2-rail1": {"10.0.33.2"},
    }


def test_hosts_of_one_subnet_know_each_other() -> None:
    plan = planned("dcqcn")
    assert hops(plan, ("p1-s1-h1", "rail1"), ("p1-s1-h2", "rail1")) == {
        "p1-s1-h1": {"10.0.1.3"},
        "p1-s1-h2": {"10.0.1.2"},
    }


def test_rails_of_one_switch_are_routed() -> None:
    plan = planned("rail-only")
    found = hops(plan, ("p1-s1-h1", "rail1"), ("p1-s1-h2", "rail1"))
    assert set(found) == {"p1-s1-h1", "p1-s1-h2"}


def test_tenants_have_neighbours_in_their_vrfs_alone() -> None:
    plan = planned("two-tenants")
    found = hops(plan, ("p1-s1-h1", "rail1"), ("p1-s1-h3", "rail2"))
    assert found == {
        "p1-s1-h1": {"10.1.0.1"},
        "p1-s1-rail1-red": {"10.1.0.2"},
        "p1-s1-h3": {"10.1.1.1"},
        "p1-s1-rail2-red": {"10.1.1.2"},
    }


@pytest.mark.parametrize(
    ("name", "places"), [("mlag-hosts", ["fe-leaf1", "fe-leaf2"]), ("mlag-tenants", ["fe-leaf1-red", "fe-leaf2-red"])]
)
def test_both_leaves_of_a_link_group_know_the_host(name: str, places: list[str]) -> None:
    plan = planned(name)
    far = next(
        one
        for host in plan.hosts
        for one in host.nics
        if one.name == "fe0" and one.tenant == nic(plan, "p1-s1-h1", "fe0").tenant
        and one.address is not None and one.address.network != nic(plan, "p1-s1-h1", "fe0").address.network  # type: ignore[union-attr]
    )  # fmt: skip
    own = nic(plan, "p1-s1-h1", "fe0")
    assert own.address is not None
    knowing = [hop.place for hop in next_hops(plan, [(own, far)]) if hop.address == own.address.ip]
    assert sorted(knowing) == places


def test_hosts_that_speak_bgp_need_none() -> None:
    plan = planned("routed-hosts")
    assert hops(plan, ("p1-s1-h1", "fe1"), ("p1-s1-h3", "fe1")) == {}


def test_each_neighbour_is_asked_for_once() -> None:
    plan = planned("dcqcn", **{"fabric.segments": 2})
    nics = [host.nics[0] for host in plan.hosts]
    every = next_hops(plan, [(a, b) for a in nics for b in nics])
    assert len(every) == len(set(every))
    assert {hop.address for hop in every if hop.place == "p1-s1-rail1"} == {
        IPv4Address(f"10.0.1.{2 + number}") for number in range(len(nics) // 2)
    }
