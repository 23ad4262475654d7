"""The drift of namespaces: what a person changed is found, told and undone, and all else is left alone."""

import socket
from collections.abc import Mapping
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path
from typing import Any

import pytest
from seen_places import as_planned

from testbed.base.linux import rtnetlink
from testbed.lab.core.deploy.changing.drift.kernel_drift import KernelDrift, kernel_drift
from testbed.lab.core.deploy.links.recorded import WireChange
from testbed.lab.core.drivers.nodes.seen import SeenPlace, SeenRoute, SeenRule
from testbed.lab.core.plan.changes import Effect
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import (
    STEERING_PRIORITIES,
    STEERING_TABLE,
    AddAddress,
    AddRoute,
    CreateVeth,
    DelayPort,
    GuardSwitch,
    InstallPort,
    SetSysctl,
    SetUp,
    ShapePort,
)
from testbed.lab.core.schema.load import load_topology, load_topology_text

TOPOLOGIES = Path(__file__).parents[6] / "topologies"
K = 10_000
TEXT = """name: drifting
fabric: {design: rail-optimized, segments: 1, hosts: 2, gpus: 2, spines: 1, guards: on}
qos: {preset: uec}
"""
HOST, SWITCH = "p1-s1-h1", "p1-s1-rail1"
Seen = dict[str, SeenPlace]


@pytest.fixture
def seen(plan: LabPlan) -> Seen:
    return as_planned(plan)


def operation(plan: LabPlan, kind: type, node: str) -> Any:
    """The first operation of a kind that a node has."""
    return next(item for item in plan.operations if isinstance(item, kind) and getattr(item, "node", "") == node)


def changed(seen: Seen, place: str, **fields: Any) -> Seen:
    return seen | {place: replace(seen[place], **fields)}


def without(found: Mapping[Any, Any], key: Any) -> dict[Any, Any]:
    return {other: value for other, value in found.items() if other != key}


def told(drift: KernelDrift) -> list[tuple[Effect, str, str]]:
    return [(row.effect, row.node, row.what) for row in drift.rows]


@pytest.mark.parametrize("path", sorted(TOPOLOGIES.glob("*.yml")), ids=lambda path: path.stem)
def test_a_lab_as_it_was_planned_has_not_drifted(path: Path) -> None:
    lab = load_topology(path)
    plan = plan_lab(replace(lab, nodes=tuple(replace(node, rdma=None) for node in lab.nodes)), k=20_000)
    drift = kernel_drift(plan, as_planned(plan), {})
    assert told(drift) == []
    assert drift.places == []


def test_an_address_that_is_missing_is_added_and_one_that_was_added_goes(plan: LabPlan, seen: Seen) -> None:
    item = operation(plan, AddAddress, HOST)
    stray = IPv4Interface("192.0.2.1/24")
    addresses = without(seen[HOST].addresses, (item.ifindex, item.address)) | {(item.ifindex, stray): b"\x02body"}
    drift = kernel_drift(plan, changed(seen, HOST, addresses=addresses), {})
    assert drift.missing == (item,)
    assert told(drift) == [
        (Effect.MADE, HOST, str(item)),
        (Effect.REMOVED, HOST, f"address {HOST}:{item.name} 192.0.2.1/24"),
    ]
    (removal,) = drift.first
    ((kind, _, _, body),) = rtnetlink.messages(removal.batch[0])
    assert (kind, bytes(body)) == (rtnetlink.RTM_DELADDR, b"\x02body")


def test_addresses_at_interfaces_that_a_person_added_are_theirs(plan: LabPlan, seen: Seen) -> None:
    addresses = {**seen[HOST].addresses, (4242, IPv4Interface("192.0.2.1/24")): b""}
    assert not kernel_drift(plan, changed(seen, HOST, addresses=addresses), {})


def test_what_commands_of_the_file_made_is_theirs(plan: LabPlan, seen: Seen) -> None:
    item = operation(plan, AddAddress, HOST)
    addresses = {**seen[HOST].addresses, (item.ifindex, IPv4Interface("192.0.2.1/24")): b""}
    more = changed(seen, HOST, addresses=addresses)
    assert kernel_drift(plan, more, {}).rows
    assert not kernel_drift(plan, more, {}, open_to_others=[HOST]).rows


def test_routes_and_rules_are_those_of_the_plan(plan: LabPlan, seen: Seen) -> None:
    item = operation(plan, AddRoute, HOST)
    stray = SeenRoute(
        table=254,
        destination=IPv4Network("198.51.100.0/24"),
        metric=0,
        ifindex=item.ifindex,
        gateway=None,
        source=None,
        body=b"\x02r",
    )
    rule = SeenRule(source=IPv4Address("192.0.2.9"), table=7, priority=12, destination=None, body=b"\x02u")
    routes = [
        route for route in seen[HOST].routes if route.destination != item.destination or route.table != item.table
    ]
    drift = kernel_drift(plan, changed(seen, HOST, routes=[*routes, stray], rules=[*seen[HOST].rules, rule]), {})
    assert drift.missing == (item,)
    assert [row.what for row in drift.rows if row.effect is Effect.REMOVED] == [
        f"route {HOST} 198.51.100.0/24 in table 254",
        f"rule {HOST} from 192.0.2.9 priority 12",
    ]
    kinds = [next(rtnetlink.messages(item.batch[0]))[0] for item in drift.first]
    assert kinds == [rtnetlink.RTM_DELROUTE, rtnetlink.RTM_DELRULE]


def test_what_leads_tcp_to_a_carrier_at_work_is_no_drift(plan: LabPlan, seen: Seen) -> None:
    rules = [
        SeenRule(source=None, table=table, priority=priority, destination=None, body=b"\x02u")
        for priority, table in zip(STEERING_PRIORITIES, (0, 0, STEERING_TABLE, 0), strict=True)
    ]
    carried = changed(seen, HOST, rules=[*seen[HOST].rules, *rules])
    assert not kernel_drift(plan, carried, {}, steered=[HOST])
    assert len(kernel_drift(plan, carried, {}).rows) == 4, "it was killed, and has left them behind"


def test_rules_that_every_namespace_begins_with_come_back(plan: LabPlan, seen: Seen) -> None:
    drift = kernel_drift(plan, changed(seen, HOST, priorities={(socket.AF_INET, 0)}), {})
    assert [row.what for row in drift.rows] == [
        f"rule {HOST} for table {table} is missing" for table in (254, 253, 254)
    ]
    assert {next(rtnetlink.messages(value.batch[0]))[0] for value in drift.set} == {rtnetlink.RTM_NEWRULE}


def test_a_setting_is_written_again(plan: LabPlan, seen: Seen) -> None:
    settings = dict(seen[SWITCH].settings) | {"net/ipv4/ip_forward": "0"}
    drift = kernel_drift(plan, changed(seen, SWITCH, settings=settings), {})
    (item,) = drift.made
    assert isinstance(item, SetSysctl) and (item.key, item.value) == ("net/ipv4/ip_forward", "1")
    assert drift.rows[0].effect is Effect.CHANGED


def test_an_optional_setting_is_written_again_where_there_is_one(plan: LabPlan, seen: Seen) -> None:
    key = "net/bridge/bridge-nf-call-iptables"
    there = dict(seen[SWITCH].settings) | {key: "0"}
    drift = kernel_drift(plan, changed(seen, SWITCH, settings=there), {})
    assert [(item.key, item.value) for item in drift.made if isinstance(item, SetSysctl)] == [(key, "1")]
    assert not kernel_drift(plan, changed(seen, SWITCH, settings=without(there, key)), {}), "this kernel has none"
    chosen = dict(seen[HOST].settings) | {"net/ipv4/tcp_congestion_control": "cubic"}
    assert not kernel_drift(plan, changed(seen, HOST, settings=chosen), {}), "the machine may allow no other"


def test_an_interface_that_is_down_comes_up_unless_somebody_wants_it_down(plan: LabPlan, seen: Seen) -> None:
    item = operation(plan, SetUp, HOST)
    links = dict(seen[HOST].links)
    links[item.ifindex] = replace(links[item.ifindex], is_up=False)
    down = changed(seen, HOST, links=links, routes=[])
    drift = kernel_drift(plan, down, {})
    assert (Effect.CHANGED, HOST, f"interface {HOST}:{item.name} is down") in told(drift)
    assert any(isinstance(other, AddRoute) for other in drift.rest), "the kernel has dropped its routes"
    recorded = {f"{HOST}:{item.name}": WireChange(up=False)}
    left = kernel_drift(plan, down, recorded)
    assert not left.set
    assert all(getattr(other, "ifindex", 0) != item.ifindex for other in left.missing)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"mtu_bytes": 1280}, "has mtu 1280"),
        ({"mac": "02:00:00:00:00:99"}, "has 02:00:00:00:00:99"),
        ({"name": "eth7"}, "is called eth7"),
        ({"master": 9}, "has the master 9"),
    ],
)
def test_attributes_of_an_interface_are_set_again(plan: LabPlan, seen: Seen, wrong: dict[str, Any], words: str) -> None:
    item = operation(plan, SetUp, HOST)
    links = dict(seen[HOST].links)
    links[item.ifindex] = replace(links[item.ifindex], **wrong)
    drift = kernel_drift(plan, changed(seen, HOST, links=links), {})
    assert told(drift) == [(Effect.CHANGED, HOST, f"interface {HOST}:{item.name} {words}")]
    assert not drift.missing
    (value,) = drift.set
    assert next(rtnetlink.messages(value.batch[0]))[0] == rtnetlink.RTM_NEWLINK


def test_a_link_that_is_gone_is_made_again_with_all_that_was_on_both_ends(plan: LabPlan, seen: Seen) -> None:
    link = next(item for item in plan.operations if isinstance(item, CreateVeth) and HOST in (item.a.node, item.b.node))
    ends = (link.a, link.b)
    broken = changed(seen, link.a.node, links=without(seen[link.a.node].links, link.a.ifindex))
    drift = kernel_drift(plan, broken, {})
    assert [(row.effect, row.what) for row in drift.rows if row.node == f"{link.a.node} {link.b.node}"] == [
        (Effect.MADE, str(link))
    ]
    guards = [item for item in drift.missing if isinstance(item, GuardSwitch)]
    assert len(drift.rows) == 1 + len(guards), "and no row for each part"
    assert link in drift.made
    for end in ends:
        mine = [item for item in drift.rest if getattr(item, "ifindex", 0) == end.ifindex]
        assert {InstallPort, SetUp} <= {type(item) for item in mine if item.node == end.node}  # type: ignore[union-attr]
    (removal,) = drift.first
    assert removal.place == link.b.node, "what is left of it goes first"
    assert [item.node for item in guards] == [SWITCH], "a hook of nftables has gone with its interface"
    assert {place for place, _, _ in drift.tables} == {SWITCH}


@pytest.mark.parametrize("lost", ["qdiscs", "filters"])
def test_queues_that_a_person_took_away_are_made_anew(plan: LabPlan, seen: Seen, lost: str) -> None:
    item = operation(plan, InstallPort, SWITCH)
    queues = dict(seen[SWITCH].queues)
    queues[item.ifindex] = replace(queues[item.ifindex], **{lost: frozenset()})
    drift = kernel_drift(plan, changed(seen, SWITCH, queues=queues), {})
    assert drift.rest == (item,)
    assert [(row.effect, row.at_stake) for row in drift.rows] == [(Effect.REMADE, "what waits in its queue")]
    assert [removal.place for removal in drift.first] == [SWITCH]


def test_a_queue_that_a_person_added_goes(plan: LabPlan, seen: Seen) -> None:
    item = operation(plan, InstallPort, SWITCH)
    queues = dict(seen[SWITCH].queues)
    own = queues[item.ifindex]
    queues[item.ifindex] = replace(own, qdiscs=own.qdiscs | {(0x00990000, "netem", 0x00010010)})
    assert kernel_drift(plan, changed(seen, SWITCH, queues=queues), {}).rest == (item,)


@pytest.mark.parametrize("kind", [InstallPort, ShapePort])
def test_a_rate_is_set_again_without_a_packet_lost_unless_it_is_recorded(kind: type) -> None:
    text = TEXT if kind is InstallPort else TEXT.replace("qos: {preset: uec}", "")
    plan = plan_lab(load_topology_text(text, file="drifting.yml"), k=10_000)
    seen = as_planned(plan)
    item = operation(plan, kind, SWITCH)
    queues = dict(seen[SWITCH].queues)
    own = queues[item.ifindex]
    slow = tuple(replace(each, rate=each.rate // 2, ceil=each.ceil // 2) for each in own.classes)
    queues[item.ifindex] = replace(own, classes=slow)
    drift = kernel_drift(plan, changed(seen, SWITCH, queues=queues), {})
    assert [row.effect for row in drift.rows] == [Effect.CHANGED]
    assert not drift.first and not drift.missing
    kinds = {next(rtnetlink.messages(data))[0] for value in drift.set for data in value.batch}
    assert kinds == {rtnetlink.RTM_NEWTCLASS}
    recorded = {f"{SWITCH}:{item.name}": WireChange(rate_bps=item.rate_bps // 2)}
    assert not kernel_drift(plan, changed(seen, SWITCH, queues=queues), recorded)


def test_a_delay_is_set_again_unless_it_is_recorded() -> None:
    text = TEXT.replace("guards: on", "uplink: {delay: {value: 1us, by: kernel}}")
    plan = plan_lab(load_topology_text(text, file="drifting.yml"), k=10_000)
    seen = as_planned(plan)
    item = next(item for item in plan.operations if isinstance(item, DelayPort))
    place = item.node
    queues = dict(seen[place].queues)
    queues[item.ifb_ifindex] = replace(queues[item.ifb_ifindex], delay_ns=(7, 0))
    late = changed(seen, place, queues=queues)
    assert [row.effect for row in kernel_drift(plan, late, {}).rows] == [Effect.CHANGED]
    peer = next(port.peer for port in plan.ports if (port.node, port.name) == (item.node, item.name))
    assert not kernel_drift(plan, late, {peer: WireChange(delay_ns=7)})
    gone = changed(seen, place, links=without(seen[place].links, item.ifb_ifindex))
    assert kernel_drift(plan, gone, {}).rest == (item,)


def test_a_filter_that_lacks_a_rule_is_put_in_force_anew(plan: LabPlan, seen: Seen) -> None:
    (table, content), *_ = seen[SWITCH].filters.items()
    less = replace(content, rules=content.rules - 1)
    drift = kernel_drift(plan, changed(seen, SWITCH, filters={**seen[SWITCH].filters, table: less}), {})
    assert [type(item) for item in drift.rest] == [GuardSwitch]
    assert drift.tables == ((SWITCH, *table),)
    gone = kernel_drift(plan, changed(seen, SWITCH, filters={}), {})
    assert [type(item) for item in gone.rest] == [GuardSwitch] and gone.tables == ()


def test_a_filter_whose_set_has_other_keys_is_put_in_force_anew(plan: LabPlan, seen: Seen) -> None:
    table, content = next((table, content) for table, content in seen[SWITCH].filters.items() if content.elements)
    more = replace(content, elements=content.elements | {("stations", b"\x02\0\0\0\0\x01")})
    for other in (more, replace(content, elements=frozenset(list(content.elements)[1:]))):
        drift = kernel_drift(plan, changed(seen, SWITCH, filters={**seen[SWITCH].filters, table: other}), {})
        assert [type(item) for item in drift.rest] == [GuardSwitch]
        assert drift.tables == ((SWITCH, *table),)


def test_a_link_local_address_that_bgp_is_spoken_from_comes_back(plan: LabPlan, seen: Seen) -> None:
    own = next(key for key in seen[SWITCH].addresses if key[1].version == 6)
    drift = kernel_drift(plan, changed(seen, SWITCH, addresses=without(seen[SWITCH].addresses, own)), {})
    (value,) = drift.set
    assert next(rtnetlink.messages(value.batch[0]))[0] == rtnetlink.RTM_NEWADDR
    assert "is missing" in drift.rows[0].what


def test_what_is_in_a_namespace_that_is_gone_is_not_looked_at(plan: LabPlan, seen: Seen) -> None:
    drift = kernel_drift(plan, without(seen, HOST), {})
    assert not any(HOST in row.node.split() for row in drift.rows)
