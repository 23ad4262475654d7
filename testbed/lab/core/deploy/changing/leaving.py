"""Nodes and links that leave a lab that is up, without a packet of others lost.

A switch that goes tells its neighbours first that its routes are the last to be taken (RFC 8326, graceful shutdown; FRR
user guide, `bgp graceful-shutdown`). When those who stay send nothing by it any more, their sessions with it are ended,
and its links go once nothing waits at them.
"""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from testbed.base.datapath import pins
from testbed.base.datapath.maps import LabMaps
from testbed.base.linux import syscalls, vty
from testbed.base.linux.counters import read_queues
from testbed.base.linux.namespaces import enter_namespace
from testbed.base.linux.routes import RouteKey, RouteMonitor, bgp_routes, route_key
from testbed.base.linux.rtnetlink import RouteSocket
from testbed.base.names import namespace_name
from testbed.lab.core.deploy.changing.differences import LabChanges
from testbed.lab.core.drivers.nodes.inside import ask_inside
from testbed.lab.core.model import Role
from testbed.lab.core.plan.lab_plan import PortPlan
from testbed.lab.core.plan.operations import CreateVeth

PATIENCE_S = 5.0
"""The longest time for which routes and queues are waited for: who sends on without a break does not keep a link."""
_LOOKED_AGAIN_S = 0.002
"""Between two looks at queues: nobody tells when one is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """The routes of a switch that stays, which has links that lead to those that go: the interfaces that they may not
    take any more, by the prefixes that are reached without."""

    outgoing: Mapping[RouteKey, frozenset[int]]
    monitor: RouteMonitor
    query: RouteSocket

    def is_free(self) -> bool:
        found = bgp_routes(self.query)
        return all(avoided.isdisjoint(found.get(key, ())) for key, avoided in self.outgoing.items())

    def close(self) -> None:
        self.monitor.close()
        self.query.close()


def leave_routes(changes: LabChanges, run: Path, timeout_s: float = PATIENCE_S) -> None:
    """Have switches that go tell it, and return when none that stays sends by them what it can send otherwise, or after
    `timeout_s`. Raises `DriverError`."""
    gone = set(changes.kernel.gone)
    above = (Role.SPINE, Role.SUPER_SPINE)  # others have hosts, which are reached by no other way
    leaving = [switch for switch in changes.old.switches if switch.node in gone and switch.role in above]
    if not leaving:
        return
    tables = syscalls.in_thread(lambda: list(_tables(changes, gone)))
    try:
        for switch in leaving:
            vty.configure(run / switch.node, "bgpd", [f"router bgp {switch.asn}", "bgp graceful-shutdown"])
        _await_free(tables, time.monotonic() + timeout_s)
    finally:
        for table in tables:
            table.close()


def _tables(changes: LabChanges, gone: set[str]) -> Iterator[_Table]:
    """Subscribe to the routes of the switches that have neighbours which go."""
    old, new = changes.old, changes.new
    indexes = {(port.node, port.name): port.ifindex for port in old.ports}
    for switch in old.speakers:
        interfaces = {neighbor.interface for neighbor in switch.neighbors if neighbor.remote in gone}
        if switch.node in gone or not interfaces:
            continue
        before = {route.prefix: set(route.interfaces) for route in old.expected_routes.get(switch.node, ())}
        left = [
            route.prefix
            for route in new.expected_routes.get(switch.node, ())
            if before.get(route.prefix, set()) & set(route.interfaces)
        ]
        avoided = frozenset(indexes[switch.node, name] for name in interfaces)
        enter_namespace(namespace_name(old.lab, switch.node))
        yield _Table(
            outgoing={route_key(prefix): avoided for prefix in left}, monitor=RouteMonitor(), query=RouteSocket()
        )


def _await_free(tables: list[_Table], deadline: float) -> None:
    with contextlib.closing(select.epoll()) as poller:
        waiting = {table.monitor.fileno(): table for table in tables}
        for descriptor in waiting:
            poller.register(descriptor, select.EPOLLIN)
        changed = list(waiting)
        while True:
            for descriptor in changed:
                table = waiting[descriptor]
                table.monitor.drain()
                if table.is_free():
                    poller.unregister(descriptor)
                    del waiting[descriptor]
            left_s = deadline - time.monotonic()
            if not waiting or left_s <= 0:
                return
            changed = [descriptor for descriptor, _ in poller.poll(left_s)]


def drain_links(changes: LabChanges, run: Path, timeout_s: float = PATIENCE_S) -> None:
    """Return when nothing waits any more at the links between switches that go, or after `timeout_s`.

    A link of a host is its own: what it sends there ends with it. Raises `DriverError`.
    """
    ports = _leaving_ports(changes)
    if not ports:
        return
    deadline = time.monotonic() + timeout_s
    while _waits(changes, ports, run) and time.monotonic() < deadline:
        time.sleep(_LOOKED_AGAIN_S)


def _leaving_ports(changes: LabChanges) -> list[PortPlan]:
    """The ports of links between switches that are removed."""
    switches = {switch.node for switch in changes.old.switches}
    links = [item for item in changes.kernel.removed if isinstance(item, CreateVeth)]
    ends = {
        (end.node, end.ifindex)
        for link in links
        if link.a.node in switches and link.b.node in switches
        for end in (link.a, link.b)
    }
    return [port for port in changes.old.ports if (port.place, port.ifindex) in ends]


def _waits(changes: LabChanges, ports: list[PortPlan], run: Path) -> bool:
    """Tell whether a packet waits at any of the ports."""
    numbers = changes.old.port_numbers
    queued = [numbers[key] for port in ports if (key := f"{port.node}:{port.name}") in numbers]
    if queued:
        with contextlib.closing(LabMaps.open(pins.lab_directory(run), with_room=True)) as maps:
            if maps.by_port("queues")["bytes"][queued].any():
                return True
    plain = [port for port in ports if f"{port.node}:{port.name}" not in numbers]
    if not plain:
        return False
    places = dict.fromkeys(port.place for port in plain)
    found = ask_inside(changes.old.lab, places, RouteSocket, lambda _, item: read_queues(item))
    return any(queue.waiting_bytes for port in plain if (queue := found[port.place].get(port.ifindex)) is not None)
