"""The rows of a change, and the few lines that people see of them."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from testbed.lab.core.deploy.changing.differences import changes_from_nothing
from testbed.lab.core.deploy.changing.telling.grouping import counted, grouped, plural, summary
from testbed.lab.core.deploy.changing.telling.rows import (
    NOUNS,
    ThingNames,
    kernel_rows,
    routing_rows,
    sessions_at_stake,
)
from testbed.lab.core.drivers.nodes.changing import kernel_changes
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.changes import Allow, ChangeRow, Effect
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import Operation
from testbed.lab.core.plan.qos.numbers import keep_numbers, numbers_of
from testbed.lab.core.schema.load import load_topology

TOPOLOGIES = Path(__file__).parents[6] / "topologies"
BASE = {"fabric.segments": 1, "fabric.hosts": 2}


def planned(**settings: object) -> tuple[Lab, LabPlan]:
    overrides = BASE | {name.replace("__", "."): value for name, value in settings.items()}
    lab = load_topology(TOPOLOGIES / "rail-qos.yml", overrides=overrides)
    return lab, plan_lab(lab, k=5000)


def rows_of(before: dict[str, object], after: dict[str, object]) -> list[ChangeRow]:
    (old_lab, old), (new_lab, new) = planned(**before), planned(**after)
    return list(kernel_rows(kernel_changes(old, keep_numbers(new, numbers_of(old))), ThingNames.of(old_lab, new_lab)))


def test_every_operation_makes_a_thing_with_a_noun() -> None:
    assert set(get_args(Operation)) == set(NOUNS)


def test_a_host_more_is_a_host_and_its_links() -> None:
    rows = rows_of({}, {"fabric__hosts": 3})
    own = [row for row in rows if row.effect is Effect.MADE and not row.part_of]
    assert Counter(row.kind for row in own) == {"host": 1, "link": 2}
    assert {row.what for row in own if row.kind == "host"} == {"host p1-s1-h3"}
    parts = [row for row in rows if row.part_of and row.effect is Effect.MADE]
    assert {row.part_of for row in parts} <= {row.what for row in own}
    assert {"port", "interface", "address", "setting"} <= {row.kind for row in parts}
    assert not [row for row in rows if row.effect in (Effect.REMOVED, Effect.REMADE)]
    groups = grouped(rows)
    assert len(groups) < 10 < len(rows)
    host = next(group for group in groups if group.what == "host p1-s1-h3")
    assert host.detail.startswith("with ") and "settings" in host.detail
    links = next(group for group in groups if group.what == "2 links")
    assert "p1-s1-h3" in links.where and links.things == 2


def test_a_host_less_says_whose_traffic_goes() -> None:
    rows = rows_of({"fabric__hosts": 3}, {})
    (host,) = [row for row in rows if row.kind == "host"]
    assert (host.effect, host.what) == (Effect.REMOVED, "host p1-s1-h3")
    assert host.at_stake == "what p1-s1-h3 sends and is sent"
    assert Counter(row.kind for row in rows if row.effect is Effect.REMOVED and not row.part_of)["link"] == 2


def test_a_rate_on_all_ports_is_a_few_lines() -> None:
    rows = rows_of({}, {"fabric__nic": {"per": "gpu", "ports": 1, "rate": "200G"}})
    ports = [row for row in rows if row.kind == "port"]
    assert all(row.effect is Effect.CHANGED and not row.at_stake for row in ports)
    slower = [row for row in ports if "lab rate 80 Mbit/s -> 40 Mbit/s" in row.detail]
    assert len(slower) == 8, "at both ends of the links of four NICs"
    assert {row.part_of for row in ports if not row.detail} == {"buffer of p1-s1-rail1", "buffer of p1-s1-rail2"}
    groups = [group for group in grouped(rows) if "ports" in group.what]
    assert sum(group.things for group in groups) == len(slower) and len(groups) <= 4


def test_a_threshold_is_told_by_the_name_of_its_class() -> None:
    bulk = {"default": True, "weight": 40, "limit": "2bdp"}
    rows = rows_of({}, {"qos__classes__bulk": bulk})
    switch_ports = [row for row in rows if row.kind == "port" and row.detail]
    assert switch_ports and all("bulk.limit" in row.detail for row in switch_ports)


def test_balancing_is_a_matter_of_switches() -> None:
    rows = rows_of({}, {"qos__load_balancing": {"mode": "spray"}})
    buffers = [row for row in rows if row.kind == "buffer"]
    assert {row.node for row in buffers} == {"p1-s1-rail1", "p1-s1-rail2", "p1-spine1", "p1-spine2"}
    assert all("mode flow -> spray" in row.detail for row in buffers)
    assert len([group for group in grouped(rows) if "buffer" in group.what]) == 1


def test_a_smaller_mtu_costs_larger_packets() -> None:
    rows = rows_of({}, {"fabric__mtu": 2000})
    links = [row for row in rows if row.kind == "link"]
    assert links and {row.at_stake for row in links} == {"packets above 2000 B"}


def test_another_trimming_makes_queues_anew() -> None:
    rows = rows_of({}, {"qos__trimming": True, "qos__classes": None, "qos__preset": "uec"})
    remade = [row for row in rows if row.effect is Effect.REMADE]
    assert remade and {row.at_stake for row in remade if row.kind == "port"} == {"what waits in its queues"}
    assert grouped(rows)[0].effect == Effect.REMADE, "what costs something is told first"


def test_a_deploy_is_told_as_things_that_are_made() -> None:
    lab, plan = planned()
    rows = list(changes_from_nothing(lab, plan).rows)
    assert {row.effect for row in rows} == {Effect.MADE}
    by_kind = Counter(row.kind for row in rows if not row.part_of)
    assert (by_kind["host"], by_kind["rail switch"], by_kind["spine"]) == (2, 2, 2)
    assert by_kind["link"] == len(lab.links)
    assert len(grouped(rows)) <= 10


def test_sessions_that_keep_their_ends_stay_up() -> None:
    _, plan = planned()
    switch = plan.switches[0]
    assert sessions_at_stake(switch, replace(switch, ecmp=8, bfd=None)) == ""
    count = len(switch.neighbors)
    assert sessions_at_stake(switch, replace(switch, asn=switch.asn + 1)) == f"{count} BGP sessions begin again"
    assert sessions_at_stake(switch, replace(switch, password=True)) == f"{count} BGP sessions begin again"
    fewer = replace(switch, neighbors=switch.neighbors[1:])
    assert sessions_at_stake(switch, fewer) == "1 BGP session ends"
    assert sessions_at_stake(fewer, switch) == ""
    first, *others = switch.neighbors
    other = replace(switch, neighbors=(replace(first, remote_asn=first.remote_asn + 1), *others))
    assert sessions_at_stake(switch, other) == "1 BGP session begins again"


def test_lines_for_daemons_are_one_row_for_each() -> None:
    _, plan = planned()
    told = {
        switch.node: {"bgpd": ["router bgp 65001", f"neighbor down{number} timers 3 9", "exit"]}
        for number, switch in enumerate(plan.switches)
    }
    rows = list(routing_rows(told, plan, plan))
    assert [row.what for row in rows] == [f"bgpd of {switch.node}" for switch in plan.switches]
    assert rows[0].detail == "neighbor down0 timers 3 9"
    (group,) = grouped(rows)
    assert group.what == f"bgpd of {len(rows)} nodes" and f"({len(rows)} lines)" in group.detail


def row(node: str, **fields: object) -> ChangeRow:
    return ChangeRow(**({"effect": Effect.CHANGED, "node": node, "what": f"port {node}:a", "kind": "port"} | fields))  # type: ignore[arg-type]


def test_rows_that_say_something_else_stand_apart() -> None:
    rows = [row("a"), row("b"), row("c", detail="x"), row("d", reason="y"), row("e", at_stake="z")]
    assert [group.things for group in grouped(rows)] == [2, 1, 1, 1]
    assert [group.what for group in grouped(rows)][:2] == ["2 ports", "port c:a"]


def test_rows_without_a_noun_are_alike_by_what_they_are() -> None:
    rows = [row(node, kind="", what="service ssh") for node in "abcd"] + [row("a", kind="", what="service dns")]
    groups = grouped(rows)
    assert [(group.what, group.where) for group in groups] == [
        ("service ssh", "4 nodes: a ... d"),
        ("service dns", "a"),
    ]


def test_what_needs_to_be_allowed_is_first() -> None:
    rows = [row("a"), row("b", effect=Effect.RESTARTED, allow=Allow.RESTART)]
    assert [group.allow for group in grouped(rows)] == ["--allow restart", ""]


def test_a_part_whose_whole_is_not_among_the_rows_stands_by_itself() -> None:
    assert [group.things for group in grouped([row("a", part_of="host x"), row("b", part_of="host x")])] == [2]


def test_the_summary_counts_things() -> None:
    rows = [row("a"), row("b", effect=Effect.MADE), row("c", effect=Effect.MADE, part_of="host x")]
    assert summary(rows) == "1 made, 1 changed"
    assert summary([]) == "nothing to change"
    assert summary([row("a")] * 1024) == "1,024 changed"


@pytest.mark.parametrize(
    ("noun", "several"),
    [
        ("port", "ports"),
        ("rail switch", "rail switches"),
        ("address", "addresses"),
        ("policy", "policies"),
        ("key", "keys"),
        ("set of guards", "sets of guards"),
        ("VRF", "VRFs"),
        ("routing daemons", "routing daemons"),
    ],
)
def test_nouns_have_plurals(noun: str, several: str) -> None:
    assert plural(noun) == several
    assert (counted(1, noun), counted(2000, noun)) == (f"1 {noun}", f"2,000 {several}")


def test_a_tenant_more_is_its_vrfs_and_the_links_of_its_hosts() -> None:
    overrides = {"tenants.green": {"subnets": {"web": {"prefix": "10.3.0.0/24", "nics": ["p1-s1-h1:rail2"]}}}}
    labs = [load_topology(TOPOLOGIES / "two-tenants.yml", overrides=each) for each in ({}, overrides)]
    old, new = (plan_lab(lab, k=1000) for lab in labs)
    names = ThingNames.of(*labs, plans=(old, new))
    there, back = (list(kernel_rows(kernel_changes(*pair), names)) for pair in ((old, new), (new, old)))
    made = [each for each in there if each.kind == "VRF" and not each.part_of]
    assert {(each.effect, each.node) for each in made} == {(Effect.MADE, "p1-s1-rail2")}
    assert {each.what for each in made} == {"VRF green on p1-s1-rail2"}
    gone = [each for each in back if each.kind == "VRF" and not each.part_of]
    assert [(each.effect, each.node, each.what) for each in gone] == [
        (Effect.REMOVED, "p1-s1-rail2", "VRF green on p1-s1-rail2")
    ]
    assert gone[0].at_stake == "what green sends and is sent there"
    links = [each for each in there if each.kind == "link" and each.effect is Effect.REMADE]
    assert links and {each.at_stake for each in links} == {"what is on the link and in its queues"}
    assert not [each for each in there if each.effect is Effect.REMADE and each.part_of and each.at_stake]
