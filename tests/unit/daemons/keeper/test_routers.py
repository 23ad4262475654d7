"""What a VRF has lost of its routers, and when it is looked at."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network, IPv6Network
from pathlib import Path

import pytest

from testbed.daemons.keeper.configuration import KeeperConfiguration, KeptVrf
from testbed.daemons.keeper.entries import EntryKind
from testbed.daemons.keeper.routers import LONGEST_S, LOOKED_AGAIN_S, REST, SETTLED_S, Attention, lost_routers
from testbed.daemons.keeper.tables import VrfTables
from testbed.daemons.kit.configuration import read, write
from testbed.daemons.kit.lock import hold, is_held
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.overlay.keeper import keeper_configuration

LEAF, FAR = "p1-s1-rail1", "p1-s1-rail2"
TOPOLOGY = """
name: kept
fabric:
  design: rail-optimized
  segments: 1
  hosts: 2
  gpus: 2
  spines: 2
  nic: {rate: 400G}
  overlay: {evpn: {vrf_by: namespace}}
tenants:
  red:
    subnets:
      web: {prefix: 10.1.0.0/24, prefix6: "fd00:1::/64", nics: ["p1-s1-h1:rail1"]}
      db: {prefix: 10.1.1.0/24, prefix6: "fd00:1:0:1::/64", nics: ["p1-s1-h2:rail2"]}
"""


@pytest.fixture(scope="module")
def configuration() -> KeeperConfiguration:
    plan = plan_lab(load_topology_text(TOPOLOGY, file="kept.yml"), k=1000)
    found = keeper_configuration(plan, Path("/run/kept"), Path("/events"))
    assert found is not None
    return found


def _vrf(configuration: KeeperConfiguration) -> KeptVrf:
    return next(vrf for vrf in configuration.vrfs if vrf.switch == LEAF)


def _whole(vrf: KeptVrf) -> VrfTables:
    """The tables of a VRF that has routes of both versions of IP by its one router, and all of that router."""
    macs = [entry for entry in vrf.routers if entry.kind is EntryKind.MAC]
    known = {(entry.ifindex, entry.address): entry.mac for entry in vrf.routers if entry.address is not None}
    hop = frozenset({(macs[0].vteps[0], vrf.bridge)})
    return VrfTables(
        fdb=frozenset((entry.ifindex, entry.mac, entry.vteps[0]) for entry in macs),
        neighbours=known,
        learned=frozenset(known),
        routes={(vrf.table, IPv4Network("10.1.1.0/24")): hop, (vrf.table, IPv6Network("fd00:1:0:1::/64")): hop},
    )


def test_a_file_says_what_is_kept(configuration: KeeperConfiguration, tmp_path: Path) -> None:
    vrf = _vrf(configuration)
    assert [entry.kind for entry in vrf.routers] == [EntryKind.MAC, EntryKind.NEIGHBOUR, EntryKind.NEIGHBOUR]
    assert {entry.of for entry in vrf.routers} == {f"the router of {FAR}"}
    write(tmp_path / "file", configuration)
    assert read(tmp_path / "file", KeeperConfiguration) == configuration
    (tmp_path / "file").write_text('{"lab": "kept"}')
    with pytest.raises(ValueError, match="file: Object missing required field `events`"):
        read(tmp_path / "file", KeeperConfiguration)


def test_a_router_is_lost_where_routes_need_it(configuration: KeeperConfiguration) -> None:
    vrf = _vrf(configuration)
    whole = _whole(vrf)
    assert lost_routers(vrf, whole) == []
    bare = replace(whole, fdb=frozenset(), neighbours={}, learned=frozenset())
    assert lost_routers(vrf, bare) == list(vrf.routers)
    assert lost_routers(vrf, replace(bare, routes={})) == [], "nothing is routed there"
    elsewhere = {(vrf.table + 1, prefix): hops for (_, prefix), hops in whole.routes.items()}
    assert lost_routers(vrf, replace(bare, routes=elsewhere)) == [], "another VRF in the namespace has the routes"
    local = {key: frozenset({(IPv4Address("192.0.2.1"), vrf.bridge + 1)}) for key in whole.routes}
    assert lost_routers(vrf, replace(bare, routes=local)) == [], "the next hop is no VTEP"


def test_each_version_of_ip_has_a_neighbour_of_its_own_and_both_the_mac(configuration: KeeperConfiguration) -> None:
    vrf = _vrf(configuration)
    whole = _whole(vrf)
    bare = replace(whole, fdb=frozenset(), neighbours={}, learned=frozenset())
    for version in (4, 6):
        routes = {key: hops for key, hops in whole.routes.items() if key[1].version == version}
        kinds = [(entry.kind, entry.ipv6) for entry in lost_routers(vrf, replace(bare, routes=routes))]
        assert kinds == [(EntryKind.MAC, False), (EntryKind.NEIGHBOUR, version == 6)]
    nobodys = replace(whole, learned=frozenset())  # the kernel's own, and gone with the next change
    assert [entry.kind for entry in lost_routers(vrf, nobodys)] == [EntryKind.NEIGHBOUR] * 2


def test_a_vrf_is_looked_at_once_it_has_settled_and_no_more_often_than_it_may_cost() -> None:
    attention = Attention()
    assert attention.due is None, "nothing has changed"
    attention.changed(10.0)
    attention.changed(10.05)
    assert attention.due == 10.0 + SETTLED_S, "what goes on changing is looked at, too"
    attention.looked(10.1, 0.001, lost=False)
    assert attention.due is None
    attention.changed(10.1)
    assert attention.due == 10.1 + LOOKED_AGAIN_S
    attention.looked(11.0, 0.5, lost=False)
    attention.changed(11.0)
    assert attention.due == 11.0 + REST * 0.5, "looking is dear"


def test_what_stays_lost_is_tried_ever_more_seldom() -> None:
    attention = Attention()
    waits = []
    for _ in range(8):
        attention.looked(0.0, 0.0, lost=True)
        attention.changed(0.0)  # announcing changes tables, too
        assert attention.due is not None
        waits.append(attention.due)
    assert waits[0] == LOOKED_AGAIN_S
    assert waits == sorted(waits)
    assert waits[-1] == LONGEST_S
    attention.looked(0.0, 0.0, lost=False)
    assert (attention.due, attention.tries) == (None, 0)


def test_one_keeper_is_enough(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert not is_held(path), "none was ever started"
    assert hold(path, create=True) is not None
    assert is_held(path)
    assert hold(path) is None
