"""The routing of nodes in rows: their BGP sessions, and their routes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from testbed.base.errors import DriverError
from testbed.base.linux.rtnetlink import RT_TABLE_MAIN
from testbed.base.rows import column, if_known
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.sessions import read_sessions

Nodes = Callable[[str], bool]
"""Chooses nodes by their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """A BGP session at one of its ends; of a daemon that does not answer, only why."""

    node: str
    asn: int
    interface: str | None = if_known()
    remote: str
    remote_asn: int | None = if_known()
    state: str
    bfd: str | None = if_known()
    received: int | None = if_known()
    sent: int | None = if_known()
    uptime_s: float | None = if_known()


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


def session_rows(lab: RunningLab, nodes: Nodes) -> list[SessionRow]:
    """Make a row for each end of a BGP session; of a daemon that does not answer, one that says why."""
    rows: list[SessionRow] = []
    for switch in lab.plan.speakers:
        if not nodes(switch.node):
            continue
        try:
            sessions = read_sessions(switch, lab.run_directory(switch.node))
        except DriverError as error:
            rows.append(SessionRow(node=switch.node, asn=switch.asn, state="unknown", remote=error.message))
            continue
        rows += [
            SessionRow(
                node=session.node,
                asn=switch.asn,
                interface=session.interface,
                remote=session.remote,
                remote_asn=session.remote_asn,
                state=session.state,
                bfd=session.bfd or "off",
                received=session.prefixes_received,
                sent=session.prefixes_sent,
                uptime_s=round(session.uptime_s, 1),
            )
            for session in sessions
        ]
    return rows


def route_rows(lab: RunningLab, nodes: Nodes) -> list[RouteRow]:
    """Make a row for each route of all that speak BGP, or of the nodes that were named, hosts among them."""
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
    return rows


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
