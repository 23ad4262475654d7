"""The neighbours of traffic, resolved before it begins: of each end its gateway, or the other end itself, and of the
switches at the last hop the NIC. Between switches, and to hosts that speak BGP, the sessions have resolved them.

What is sent to a neighbour that has not answered yet waits in the kernel's queue for it, and while that is flushed,
packets behind overtake it. A neighbour that has answered once stays usable: when it is stale, packets go there at once
while the kernel asks again (Linux, net/core/neighbour.c), and none is collected below the limits that labs raise
(`lab.core.deploy.machine_settings`).
"""

from __future__ import annotations

import select
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import ClassVar

from testbed.base.linux import syscalls
from testbed.base.linux.namespaces import enter_namespace
from testbed.base.linux.neighbours import read_neighbours, use_neighbour
from testbed.base.linux.routes import RouteMonitor
from testbed.base.linux.rtnetlink import RTNLGRP_NEIGH, RouteSocket
from testbed.base.names import namespace_name
from testbed.daemons.keeper.entries import EntryKind
from testbed.lab.core.drivers.nodes.udp_prober import make_room
from testbed.lab.core.plan.lab_plan import LabPlan, PortPlan
from testbed.lab.core.plan.operations import AddAddress

PATIENCE_S = 5.0
"""The kernel gives a neighbour up that does not answer three requests, a second apart."""
_OnLink = dict[tuple[str, IPv4Address], list[tuple[str, int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NextHop:
    """A neighbour of IPv4 that `place`, the node of a namespace, must know the MAC of to send by an interface."""

    place: str
    ifindex: int
    address: IPv4Address
    of: str
    """Whose address it is, for messages."""


def next_hops(plan: LabPlan, pairs: Iterable[tuple[PortPlan, PortPlan]]) -> tuple[NextHop, ...]:
    """Return the neighbours that packets between these NICs need, there and back, each once."""
    switches = _switches_of_nics(plan)
    gateways = _gateways(plan)
    heard = _heard(plan)
    found: dict[NextHop, None] = {}
    for pair in dict.fromkeys(pairs):
        for source, target in (pair, pair[::-1]):
            if source.node == target.node or source.address is None or target.address is None:
                continue
            name, address = f"{target.node}:{target.name}", target.address.ip
            direct = address in source.address.network
            hop = address if direct else source.gateway
            if hop is not None:
                of = name if direct else f"the gateway of {source.node}:{source.name}"
                found[NextHop(place=source.place, ifindex=source.ifindex, address=hop, of=of)] = None
            if direct or target.gateway is None:
                continue
            ends = (
                heard.get((name, address), ())
                if target.tenant
                else [end for switch in switches[target.node] for end in gateways.get((switch, target.gateway), ())]
            )
            for place, ifindex in ends:
                found[NextHop(place=place, ifindex=ifindex, address=address, of=name)] = None
    return tuple(found)


def _switches_of_nics(plan: LabPlan) -> dict[str, set[str]]:
    """The nodes at the other ends of each node's links."""
    found: dict[str, set[str]] = defaultdict(set)
    for port in plan.ports:
        found[port.node].add(port.peer.partition(":")[0])
    return found


def _gateways(plan: LabPlan) -> _OnLink:
    """Return the places where each node has an address, as (node, interface index)."""
    found: _OnLink = defaultdict(list)
    for item in plan.operations:
        if isinstance(item, AddAddress) and isinstance(item.address.ip, IPv4Address):
            found[item.node, item.address.ip].append((item.node, item.ifindex))
    return found


def _heard(plan: LabPlan) -> _OnLink:
    """Return the VRFs of each tenant's NIC, by "node:interface" and address, that have it as a neighbour of their
    own."""
    found: _OnLink = defaultdict(list)
    for vrf in () if plan.overlay is None else plan.overlay.vrfs:
        for entry in plan.overlay.expected[vrf.node] if plan.overlay is not None else ():
            if entry.kind is EntryKind.HEARD and isinstance(entry.address, IPv4Address):
                found[entry.of, entry.address].append((vrf.place, entry.ifindex))
    return found


class _Monitor(RouteMonitor):
    """Notice that neighbours of the namespace changed. Made by a thread inside of it."""

    GROUPS: ClassVar[tuple[int, ...]] = (RTNLGRP_NEIGH,)


@dataclass(slots=True)
class _Table:
    """The neighbours of one namespace: who hears of changes, who asks, and what is still to be resolved."""

    monitor: _Monitor
    query: RouteSocket
    left: list[NextHop] = field(default_factory=list)

    def look(self) -> None:
        known = read_neighbours(self.query)
        self.left = [hop for hop in self.left if not known.get((hop.ifindex, hop.address))]


def resolve_next_hops(lab: str, hops: Sequence[NextHop], *, patience_s: float = PATIENCE_S) -> list[NextHop]:
    """Have the kernel ask for the neighbours that it does not know, and await their answers.

    Those that have not answered after `patience_s` come back. Nodes are asked as their packets would, by ARP, so that
    whoever learns from it does. Raises `DriverError`.
    """
    by_place: dict[str, list[NextHop]] = {}
    for hop in hops:
        by_place.setdefault(hop.place, []).append(hop)

    make_room(2 * len(by_place))

    def resolve() -> list[NextHop]:
        with ExitStack() as stack:
            tables = []
            for place, some in by_place.items():
                enter_namespace(namespace_name(lab, place))
                table = _Table(
                    monitor=stack.enter_context(closing(_Monitor())),
                    query=stack.enter_context(closing(RouteSocket())),
                    left=some,
                )
                table.look()
                if table.left:
                    batch = [use_neighbour(hop.ifindex, hop.address) for hop in table.left]
                    table.query.expect(batch, [f"{place} asks for {hop.address}" for hop in table.left])
                    tables.append(table)
            _await(tables, time.monotonic() + patience_s)
            return [hop for table in tables for hop in table.left]

    return syscalls.in_thread(resolve) if by_place else []


def _await(tables: Sequence[_Table], deadline: float) -> None:
    by_fd = {table.monitor.fileno(): table for table in tables}
    with select.epoll() as poller:
        for fd, table in by_fd.items():
            poller.register(fd, select.EPOLLIN)
            table.look()
        while any(table.left for table in tables) and (left_s := deadline - time.monotonic()) > 0:
            for fd, _ in poller.poll(left_s):
                by_fd[fd].monitor.drain()
                by_fd[fd].look()
