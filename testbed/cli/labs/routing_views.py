"""The views of `inspect` that show how nodes route: their routes, and the configuration that FRR runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from testbed.base.linux.rtnetlink import RT_TABLE_MAIN
from testbed.base.rows import column
from testbed.cli.options import Format
from testbed.cli.output import emit

if TYPE_CHECKING:
    from testbed.lab.core.deploy.live import RunningLab
    from testbed.lab.core.deploy.watch.running_config import ConfigLine

Nodes = Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteRow:
    """A route of a node. Of a switch: how many next hops are planned for it. Of a host: its table, and the address
    ("from") whose packets use that."""

    node: str
    table: str | None = column(sparse=True, optional=True, default=None)
    source: str | None = column("from", sparse=True, optional=True, default=None)
    prefix: str
    protocol: str
    next_hops: int
    planned: int | None = column(sparse=True)
    via: str | None = column(sparse=True, optional=True, default=None)
    interfaces: Sequence[str]


def show_routes(lab: RunningLab, nodes: Nodes, form: Format) -> None:
    """Show the routes of all that speak BGP, or of the nodes that were named, hosts among them."""
    names = {(port.node, port.ifindex): port.name for port in lab.plan.ports}
    named = [node.name for node in lab.model.nodes if nodes(node.name)]
    rows = [] if len(named) == len(lab.model.nodes) else _routes_of_hosts(lab, named)
    for switch in lab.plan.speakers:
        if not nodes(switch.node):
            continue
        planned = {route.prefix: route.next_hops for route in lab.plan.expected_routes.get(switch.node, ())}
        rows += [
            RouteRow(
                node=switch.node,
                prefix=str(route.prefix),
                protocol=route.protocol,
                next_hops=len(route.interfaces),
                planned=planned.get(route.prefix) if route.protocol == "bgp" else None,
                interfaces=[names.get((switch.node, index), f"#{index}") for index in route.interfaces],
            )
            for route in lab.routes(switch.node)
        ]
    emit(rows, RouteRow, form, title=f"{lab.name}: routes")


def _routes_of_hosts(lab: RunningLab, named: Sequence[str]) -> list[RouteRow]:
    """Make a row for each route of hosts, which have a table for the packets from each of their NICs; but for the main
    table of those that speak BGP."""
    switches = {switch.node for switch in lab.plan.switches}
    speakers = {speaker.node for speaker in lab.plan.speakers}
    names = {(port.place, port.ifindex): port.name for port in lab.plan.ports}
    groups = () if lab.plan.link_groups is None else lab.plan.link_groups.hosts
    names |= {(group.node, group.ifindex): group.nic for group in groups}
    return [
        RouteRow(
            node=node,
            table="main" if route.table == RT_TABLE_MAIN else str(route.table),
            source=" ".join(map(str, route.sources)),
            prefix=str(route.prefix),
            protocol=route.protocol,
            next_hops=len(route.interfaces),
            planned=None,
            via=" ".join(route.gateways),
            interfaces=[names.get((node, index), f"#{index}") for index in route.interfaces],
        )
        for node in named
        if node not in switches
        for route in lab.table_routes(node)
        if route.table != RT_TABLE_MAIN or node not in speakers
    ]


def show_configurations(lab: RunningLab, nodes: Nodes, form: Format) -> None:
    """Show what routing daemons run, line by line; for people those lines are marked that differ from the plan."""
    from testbed.lab.core.deploy.watch.running_config import ConfigLine, compare_configuration, read_configuration

    lines: list[ConfigLine] = []
    for speaker in lab.plan.speakers:
        if not nodes(speaker.node):
            continue
        running = read_configuration(lab.run_directory(speaker.node), lab.daemons.get(speaker.node, ()))
        found, is_known = compare_configuration(lab.processes_directory, speaker.node, running)
        lines += found
        if form is Format.TABLE:
            _print_configuration(speaker.node, found, is_known=is_known)
    if form is not Format.TABLE:
        emit(lines, ConfigLine, form)
    elif not lines:
        print("no routing daemon runs there: switches have some, and hosts that speak BGP")


def _print_configuration(node: str, lines: Sequence[ConfigLine], *, is_known: bool) -> None:
    from testbed.lab.core.deploy.watch.running_config import Difference

    differing = sum(line.differs is not Difference.NONE for line in lines)
    if not is_known:
        said = "what was planned is not noted: the deploy did not wait for routing"
    elif differing:
        said = f"{differing} lines differ from the plan: + runs, - does not"
    else:
        said = "as planned"
    print(f"{node}: {said}")
    for daemon, items in groupby(lines, key=lambda line: line.daemon):
        print(f"! {daemon}")
        for item in items:
            print(f"{item.differs.value:2}{item.line}" if differing else item.line)
