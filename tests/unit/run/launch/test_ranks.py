"""Which rank runs where, and over which NIC it speaks."""

import re
from ipaddress import IPv4Address, IPv6Address

import pytest

from testbed.lab.core.model import Lab
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.schema.load import load_topology_text
from testbed.run.launch.options import LaunchOptions, LaunchOrder, LaunchRefused
from testbed.run.launch.ranks import MOST_RANKS, RankPlace, place_ranks, process_mapping

DEMO = "name: l\nfabric: {design: rail-optimized, segments: 2, hosts: 2, gpus: 2, spines: 2}\n"
RAIL_ONLY = "name: l\nfabric: {design: rail-only, hosts: 4, gpus: 2}\n"
TENANTS = """name: l
fabric: {design: rail-optimized, segments: 2, hosts: 2, gpus: 1, spines: 2, overlay: evpn, mtu: 4200}
tenants:
  red:
    subnets:
      web: {prefix: 172.30.0.0/24, prefix6: "fd00:30::/64", nics: ["p1-s1-h1:rail1", "p1-s2-h1:rail1"]}
"""
MANAGED = DEMO + "networks: {management: {design: out-of-band}}\n"


def planned(text: str) -> tuple[Lab, LabPlan]:
    lab = load_topology_text(text, file="ranks.yml")
    return lab, plan_lab(lab, k=1000)


def places(text: str = DEMO, **options: object) -> tuple[RankPlace, ...]:
    return place_ranks(*planned(text), LaunchOptions(**options))  # type: ignore[arg-type]


def shown(found: tuple[RankPlace, ...]) -> list[str]:
    return [f"{place.host}:{place.nic.name}" for place in found]


def test_every_host_has_a_rank_on_its_first_rail() -> None:
    found = places()
    assert shown(found) == ["p1-s1-h1:rail1", "p1-s1-h2:rail1", "p1-s2-h1:rail1", "p1-s2-h2:rail1"]
    assert [place.rank for place in found] == [0, 1, 2, 3]
    assert {place.hosts_ranks for place in found} == {1}
    for place in found:
        assert place.nic.address is not None and place.address == place.nic.address.ip
        assert isinstance(place.address, IPv4Address)


def test_a_rank_for_each_gpu_is_on_the_gpus_own_rail() -> None:
    found = places(per_gpu=True)
    assert shown(found)[:4] == ["p1-s1-h1:rail1", "p1-s1-h1:rail2", "p1-s1-h2:rail1", "p1-s1-h2:rail2"]
    assert [place.local for place in found] == [0, 1] * 4


def test_more_ranks_than_rails_take_them_in_turn() -> None:
    assert shown(places(ranks_per_host=3))[:3] == ["p1-s1-h1:rail1", "p1-s1-h1:rail2", "p1-s1-h1:rail1"]


def test_interleaved_hosts_are_of_the_next_segment_each() -> None:
    hosts = [place.host for place in places(order=LaunchOrder.INTERLEAVE)]
    assert hosts == ["p1-s1-h1", "p1-s2-h1", "p1-s1-h2", "p1-s2-h2"]


def test_segments_of_other_sizes_are_interleaved_to_their_end() -> None:
    found = places(order=LaunchOrder.INTERLEAVE, hosts=("p1-s1-*", "p1-s2-h2"))
    assert [place.host for place in found] == ["p1-s1-h1", "p1-s2-h2", "p1-s1-h2"]


def test_a_list_is_an_order_or_a_choice() -> None:
    wanted = ("p1-s2-h1", "p1-s1-h1")
    assert [place.host for place in places(hosts=wanted, order=LaunchOrder.LIST)] == list(wanted)
    assert [place.host for place in places(hosts=wanted)] == ["p1-s1-h1", "p1-s2-h1"]
    twice = places(hosts=(*wanted, "p1-s2-h1"), order=LaunchOrder.LIST)
    assert [place.host for place in twice] == list(wanted), "a host that is named twice has its ranks once"


def test_management_ports_are_no_rails() -> None:
    assert shown(places(MANAGED, per_gpu=True)) == shown(places(per_gpu=True))


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        (DEMO, {"hosts": ("p1-s1-h9",)}, "no host 'p1-s1-h9'.*did you mean p1-s1-h"),
        (DEMO, {"order": LaunchOrder.LIST}, "list of hosts"),
        (DEMO, {"ranks_per_host": 0}, "1 or more"),
        (DEMO, {"ranks_per_host": MOST_RANKS}, "too many"),
        (DEMO, {"ipv6": True}, "rail1 has no IPv6 address"),
        (RAIL_ONLY, {"per_gpu": True}, "do not reach each other.*first rail"),
        (TENANTS, {}, "p1-s1-h1:rail1 is in the tenant red, p1-s1-h2:rail1 in no tenant"),
    ],
)
def test_what_cannot_work_is_refused(text: str, options: dict[str, object], says: str) -> None:
    with pytest.raises(LaunchRefused) as refused:
        places(text, **options)
    assert re.search(says, str(refused.value), re.DOTALL), refused.value


def test_where_rails_are_isolated_all_ranks_are_on_the_first() -> None:
    assert {place.nic.rail for place in places(RAIL_ONLY, ranks_per_host=2)} == {1}


def test_ranks_of_a_tenant_have_addresses_of_ipv6_where_these_are_asked_for() -> None:
    found = places(TENANTS, hosts=("p1-s1-h1", "p1-s2-h1"), ipv6=True)
    assert all(isinstance(place.address, IPv6Address) for place in found) and len(found) == 2


def test_mpi_is_told_who_shares_a_host() -> None:
    assert process_mapping(places()) == "(vector,(0,4,1))"
    assert process_mapping(places(per_gpu=True)) == "(vector,(0,4,2))"
    uneven = (*places(per_gpu=True)[:2], *places()[1:])
    assert process_mapping(uneven) == "(vector,(0,1,2),(1,3,1))"
