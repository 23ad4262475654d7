"""Switches that others send by, which come to a lab that is up or leave it: no packet of others is lost.

A spine that comes says that its routes are the last to be taken (RFC 8326, graceful shutdown; FRR user guide, `bgp
graceful-shutdown`) until its own kernel has all of them: BGP announces a route that the kernel may not have yet. One
that goes says it, too, first of all. When those who stay send nothing by it any more, their sessions with it are ended,
and its links go once nothing waits at them.
"""

from __future__ import annotations

import contextlib
import select
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from testbed.base.datapath import pins
from testbed.base.linux import syscalls, vty
from testbed.base.linux.counters import read_queues
from testbed.base.linux.namespaces import enter_namespace
from testbed.base.linux.routes import (
    RouteKey,
    RouteMonitor,
    WantedRoute,
    bgp_routes,
    difference,
    route_key,
    wanted_routes,
)
from testbed.base.linux.rtnetlink import RouteSocket
from testbed.base.names import namespace_name
from testbed.lab.core.deploy.changing.differences import LabChanges
from testbed.lab.core.drivers.nodes.inside import ask_inside
from testbed.lab.core.model import Role
from testbed.lab.core.plan.lab_plan import LabPlan, PortPlan, SwitchPlan
from testbed.lab.core.plan.operations import CreateVeth

PATIENCE_S = 5.0
"""The longest time for which routes and queues are waited for: who sends on without a break does not keep a link."""
_LOOKED_AGAIN_S = 0.002
"""Between two looks at queues: nobody tells when one is empty."""
_ABOVE = (Role.SPINE, Role.SUPER_SPINE)
"""The switches that others send by. A rail switch has hosts, which are reached by no other."""

_Routes = dict[RouteKey, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Table:
    """The BGP routes of a switch, and what they are waited to be."""

    is_right: Callable[[_Routes], bool]
    monitor: RouteMonitor
    query: RouteSocket

    def close(self) -> None:
        self.monitor.close()
        self.query.close()


def hold_back(changes: LabChanges, run: Path) -> None:
    """Have the switches that are new, and have no sessions yet, say that nobody is to send by them. Raises
    `DriverError`."""
    for switch in _coming(changes):
        vty.await_answer(run / switch.node, "bgpd")
        _tell(switch, run, "bgp graceful-shutdown")


def let_in(changes: LabChanges, run: Path, timeout_s: float = PATIENCE_S) -> None:
    """Have new switches announce their routes as others do when they have them, or after `timeout_s`.

    May be called for those that were never held back. Raises `DriverError`.
    """
    coming, new = _coming(changes), changes.new
    if not coming:
        return
    indexes = {(port.node, port.name): port.ifindex for port in new.ports}

    def conditions() -> Iterator[tuple[str, Callable[[_Routes], bool]]]:
        for switch in coming:
            wanted = wanted_routes(new.expected_routes.get(switch.node, ()), indexes, switch.node)
            yield switch.node, partial(_has_all, wanted)

    _await_tables(new.lab, list(conditions()), lambda: None, timeout_s)
    for switch in coming:
        _tell(switch, run, "no bgp graceful-shutdown")


def leave_routes(changes: LabChanges, run: Path, timeout_s: float = PATIENCE_S) -> None:
    """Have switches that go tell it, and return when none that stays sends by them what it can send otherwise, or after
    `timeout_s`. Raises `DriverError`."""
    gone = set(changes.kernel.gone)
    leaving = [switch for switch in changes.old.switches if switch.node in gone and switch.role in _ABOVE]
    if not leaving:
        return

    def announce() -> None:
        for switch in leaving:
            _tell(switch, run, "bgp graceful-shutdown")

    _await_tables(changes.old.lab, list(_ways_without(changes.old, changes.new, gone)), announce, timeout_s)


def _has_all(wanted: Mapping[RouteKey, WantedRoute], found: _Routes) -> bool:
    return not difference(wanted, found)


def _avoids(routes: Sequence[RouteKey], avoided: Set[int], found: _Routes) -> bool:
    return all(avoided.isdisjoint(found.get(key, ())) for key in routes)


def _coming(changes: LabChanges) -> list[SwitchPlan]:
    """The switches that others are to send by from now on."""
    before = {switch.node for switch in changes.old.switches}
    return [switch for switch in changes.new.switches if switch.node not in before and switch.role in _ABOVE]


def _tell(switch: SwitchPlan, run: Path, command: str) -> None:
    vty.configure(run / switch.node, "bgpd", [f"router bgp {switch.asn}", command], again=True)


def _ways_without(old: LabPlan, new: LabPlan, gone: set[str]) -> Iterator[tuple[str, Callable[[_Routes], bool]]]:
    """Yield the switches that have neighbours which go, each with whether its routes do without them where they can."""
    indexes = {(port.node, port.name): port.ifindex for port in old.ports}
    for switch in old.speakers:
        interfaces = {neighbor.interface for neighbor in switch.neighbors if neighbor.remote in gone}
        if switch.node in gone or not interfaces:
            continue
        before = {route.prefix: set(route.interfaces) for route in old.expected_routes.get(switch.node, ())}
        left = [
            route_key(route.prefix)
            for route in new.expected_routes.get(switch.node, ())
            if before.get(route.prefix, set()) & set(route.interfaces)
        ]
        avoided = {indexes[switch.node, name] for name in interfaces}
        yield switch.node, partial(_avoids, left, avoided)


def _await_tables(
    lab: str,
    conditions: Sequence[tuple[str, Callable[[_Routes], bool]]],
    begin: Callable[[], None],
    timeout_s: float,
) -> None:
    """Subscribe to the routes of switches, `begin`, and return when each has what it is to have, or after `timeout_s`.

    Raises `DriverError`.
    """

    def subscribe() -> list[_Table]:
        tables = []
        for node, is_right in conditions:
            enter_namespace(namespace_name(lab, node))
            tables.append(_Table(is_right=is_right, monitor=RouteMonitor(), query=RouteSocket()))
        return tables

    tables = syscalls.in_thread(subscribe)
    try:
        begin()
        _await_right(tables, time.monotonic() + timeout_s)
    finally:
        for table in tables:
            table.close()


def _await_right(tables: Sequence[_Table], deadline: float) -> None:
    with contextlib.closing(select.epoll()) as poller:
        waiting = {table.monitor.fileno(): table for table in tables}
        for descriptor in waiting:
            poller.register(descriptor, select.EPOLLIN)
        changed = list(waiting)
        while True:
            for descriptor in changed:
                table = waiting[descriptor]
                table.monitor.drain()
                if table.is_right(bgp_routes(table.query)):
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
        from testbed.base.datapath.maps import LabMaps

        with contextlib.closing(LabMaps.open(pins.lab_directory(run), with_room=True)) as maps:
            if maps.by_port("queues")["bytes"][queued].any():
                return True
    plain = [port for port in ports if f"{port.node}:{port.name}" not in numbers]
    if not plain:
        return False
    places = dict.fromkeys(port.place for port in plain)
    found = ask_inside(changes.old.lab, places, RouteSocket, lambda _, item: read_queues(item))
    return any(queue.waiting_bytes for port in plain if (queue := found[port.place].get(port.ifindex)) is not None)
