"""Loops and cyclic buffer dependencies by the routes that switches have."""

from collections.abc import Callable, Mapping
from ipaddress import IPv4Network
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.base.errors import DriverError
from testbed.base.linux.routes import TableRoute
from testbed.lab.core.deploy.watch import loops as watched
from testbed.lab.core.deploy.watch.loops import (
    RouteTable,
    RouteTrace,
    buffer_dependencies,
    find_cycle,
    short_lived,
    trace_tables,
)
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.lab.core.schema.load import load_topology_text

LAB = load_topology_text(
    "name: traced\nfabric: {design: rail-optimized, segments: 3, hosts: 2, gpus: 1, spines: 2}\n", file="traced.yml"
)
PLAN = plan_lab(LAB, k=1000.0)
SWITCHES = [switch.node for switch in PLAN.speakers]
PORTS: Mapping[tuple[str, int], PortPlan] = {
    (port.node, port.ifindex): port
    for port in PLAN.ports
    if port.node in SWITCHES and port.peer.partition(":")[0] in SWITCHES
}
BY_NAME = {f"{port.node}:{port.name}": port for port in PLAN.ports}
NICS = [nic for host in PLAN.hosts for nic in host.nics]
SPINE, OTHER_SPINE, LEAF, OTHER_LEAF = "p1-spine1", "p1-spine2", "p1-s1-rail1", "p1-s2-rail1"


def route(prefix: IPv4Network, *names: str, metric: int = 20) -> TableRoute:
    interfaces = tuple(BY_NAME[name].ifindex for name in names)
    return TableRoute(
        table=254, sources=(), prefix=prefix, protocol="bgp", gateways=(), interfaces=interfaces, metric=metric
    )


def planned() -> dict[str, list[TableRoute]]:
    return {
        node: [route(one.prefix, *(f"{node}:{name}" for name in one.interfaces)) for one in PLAN.expected_routes[node]]
        for node in SWITCHES
    }


def traces(tables: Mapping[str, list[TableRoute]]) -> list[RouteTrace]:
    return trace_tables({node: RouteTable(routes) for node, routes in tables.items()}, PORTS, NICS)


def address(nic: str) -> IPv4Network:
    (found,) = (one.address for one in NICS if f"{one.node}:{one.name}" == nic)
    return IPv4Network(found.ip)


def loops(tables: Mapping[str, list[TableRoute]]) -> list[str]:
    return [line for trace in traces(tables) for line in trace.loops()]


def test_planned_routes_have_no_loop_and_no_cycle_of_buffers() -> None:
    found = traces(planned())
    assert len(found) == 3, "one NIC of each subnet stands for all"
    assert loops(planned()) == []
    waits = buffer_dependencies(found)
    assert waits[f"{LEAF}:uplink1"] == {f"{SPINE}:down2", f"{SPINE}:down3"}
    assert find_cycle(waits) == []


def test_a_static_route_that_leads_back_is_a_loop_and_a_cycle() -> None:
    tables, to = planned(), address("p1-s2-h2:rail1")
    tables[LEAF].append(route(to, f"{LEAF}:uplink1", metric=0))
    tables[SPINE].append(route(to, f"{SPINE}:down1", metric=0))
    found = loops(tables)
    assert found == [f"p1-s2-h2:rail1 ({to.network_address}) is never reached: {LEAF} > {SPINE} > {LEAF}"]
    cycle = find_cycle(buffer_dependencies(traces(tables)))
    assert sorted(cycle) == [f"{LEAF}:uplink1", f"{SPINE}:down1"]


def test_a_narrower_prefix_counts_for_the_nics_inside_of_it_alone() -> None:
    tables, to = planned(), address("p1-s2-h2:rail1")
    tables[LEAF].append(route(to, f"{LEAF}:uplink1"))
    tables[SPINE].append(route(IPv4Network("192.0.2.1"), f"{SPINE}:down1"))
    found = [trace.of for trace in traces(tables)]
    assert found.count("p1-s2-h2:rail1") == 1 and len(found) == 4


def test_hosts_that_a_killed_run_left_a_short_time_to_live_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    ttls = {"traced-p1-s1-h1": "16\n", "traced-p1-s1-h2": "64\n", "traced-p1-s2-h1": "255\n"}

    def within(name: str, work: Callable[[], object]) -> str:
        if name not in ttls:
            raise DriverError("it is gone")
        return ttls[name]

    monkeypatch.setattr(watched, "in_namespace", within)
    lab: Any = SimpleNamespace(name="traced", plan=PLAN)
    assert short_lived(lab) == ["p1-s1-h1 sends with a time to live of 16, not 64, as for a routing loop"]


def test_a_loop_for_a_prefix_of_a_smaller_metric_goes_before_the_planned_route() -> None:
    tables = planned()
    (nic,) = (one for one in NICS if one.node == "p1-s2-h1")
    tables[LEAF].append(route(nic.address.network, f"{LEAF}:uplink1", metric=0))
    tables[SPINE].append(route(nic.address.network, f"{SPINE}:down1", metric=0))
    assert len(loops(tables)) == 1
    tables[LEAF][-1] = route(nic.address.network, f"{LEAF}:uplink1", metric=30)
    tables[SPINE][-1] = route(nic.address.network, f"{SPINE}:down1", metric=30)
    assert loops(tables) == []


def test_ways_that_go_down_and_up_again_can_be_a_cycle_without_any_loop() -> None:
    """Two destinations, each with a valley at another leaf: no packet comes back to a switch."""
    tables = planned()
    one, other = address("p1-s3-h1:rail1"), address("p1-s3-h2:rail1")
    # for one: leaf 1, spine 1, leaf 2, spine 2, leaf 3; for the other: leaf 2, spine 2, leaf 1, spine 1, leaf 3
    tables[LEAF] += [route(one, f"{LEAF}:uplink1"), route(other, f"{LEAF}:uplink1")]
    tables[OTHER_LEAF] += [route(one, f"{OTHER_LEAF}:uplink2"), route(other, f"{OTHER_LEAF}:uplink2")]
    tables[SPINE] += [route(one, f"{SPINE}:down2"), route(other, f"{SPINE}:down3")]
    tables[OTHER_SPINE] += [route(one, f"{OTHER_SPINE}:down3"), route(other, f"{OTHER_SPINE}:down1")]
    assert loops(tables) == []
    cycle = find_cycle(buffer_dependencies(traces(tables)))
    assert set(cycle) == {f"{LEAF}:uplink1", f"{SPINE}:down2", f"{OTHER_LEAF}:uplink2", f"{OTHER_SPINE}:down1"}


def test_a_switch_that_nobody_sends_to_has_no_part_in_it() -> None:
    """A route that no packet takes makes no buffer wait."""
    tables, to = planned(), address("p1-s2-h1:rail1")
    for leaf in (LEAF, OTHER_LEAF, "p1-s3-rail1"):
        tables[leaf].append(route(to, *([f"{leaf}:uplink2"] if leaf != OTHER_LEAF else [])))
    tables[SPINE].append(route(to, f"{SPINE}:down1"))
    assert loops(tables) == []


@pytest.mark.parametrize(
    ("waits", "cycle"),
    [
        ({}, []),
        ({"a": ["b"], "b": ["c"]}, []),
        ({"a": ["b"], "b": ["c"], "c": ["b"]}, ["b", "c"]),
        ({"a": ["a"]}, ["a"]),
        ({"a": ["b", "c"], "b": ["d"], "c": ["d"]}, []),
    ],
)
def test_cycles_are_found_and_joined_ways_are_none(waits: dict[str, list[str]], cycle: list[str]) -> None:
    assert find_cycle(waits) == cycle
