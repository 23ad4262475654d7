"""Waiting until an overlay has converged, and naming what it lacks.

Every VRF must have the entries that the plan says EVPN brings: flood lists, MACs and neighbours behind other VTEPs,
routes. Nothing sleeps: each namespace with VRFs has a netlink socket that hears of changes. EVPN knows of a NIC what
its switch has heard of it, so NICs that were not heard are made to ask for their gateway, as a booting host does.
Routers that zebra loses are had again by the lab's keeper (`testbed.daemons.keeper`).
"""

from __future__ import annotations

import errno
import select
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from testbed.base.errors import DriverError
from testbed.base.linux import syscalls, vty
from testbed.base.linux.namespaces import enter_namespace
from testbed.base.linux.neighbours import NUD_PROBE, forget_neighbour, set_neighbour, use_neighbour
from testbed.base.linux.routes import bgp_routes
from testbed.base.linux.rtnetlink import RouteSocket, failure_error
from testbed.base.names import namespace_name
from testbed.daemons.keeper.entries import EntryKind, ExpectedEntry
from testbed.daemons.keeper.tables import VrfMonitor, VrfTables, read_tables
from testbed.lab.core.deploy.steps import StepCallback, StepEvent
from testbed.lab.core.drivers.nodes.inside import ask_inside
from testbed.lab.core.drivers.nodes.udp_prober import send_echo_request
from testbed.lab.core.plan.hosts import MAIN_TABLE
from testbed.lab.core.plan.lab_plan import LabPlan, SwitchPlan
from testbed.lab.core.plan.overlay_plan import HeardNic, OverlayPlan, VrfPlan

QUIET_S = 0.02
LONGEST_UNCHECKED_S = 0.5
ASKED_AGAIN_S = 1.0
DAEMONS_CHECKED_S = 0.5


@dataclass(slots=True, kw_only=True)
class _Place:
    """The VRFs in a namespace (one, unless they are devices): their planned entries against the kernel's."""

    vrfs: Sequence[VrfPlan]
    planned: int
    monitor: VrfMonitor
    query: RouteSocket
    changed_at: float
    checked_at: float = 0.0
    dirty: bool = True
    missing: dict[str, list[ExpectedEntry]] = field(default_factory=dict)
    """The missing entries of each VRF, by its node."""

    def due(self) -> float:
        """Return when it should be looked at next."""
        return min(self.changed_at + QUIET_S, self.checked_at + LONGEST_UNCHECKED_S)

    @property
    def left(self) -> int:
        """Return the number of entries still to come."""
        return sum(map(len, self.missing.values())) if self.checked_at else self.planned

    def check(self, now: float, expected: Mapping[str, Sequence[ExpectedEntry]]) -> None:
        """Look at all of its VRFs. `expected` are the planned entries of each, by its node."""
        tables = read_tables(self.query, ipv6=any(vrf.ipv6 for vrf in self.vrfs))
        self.missing = {vrf.node: missing_entries(expected[vrf.node], tables, vrf.table) for vrf in self.vrfs}
        self.checked_at = now
        self.dirty = False

    def close(self) -> None:
        self.monitor.close()
        self.query.close()


def missing_entries(
    expected: Sequence[ExpectedEntry], tables: VrfTables, table: int = MAIN_TABLE
) -> list[ExpectedEntry]:
    """Return the expected entries of the VRF with this table of routes that are not there."""
    return [entry for entry in expected if not tables.has(entry, table)]


def _by_place(vrfs: Iterable[VrfPlan]) -> dict[str, list[VrfPlan]]:
    """The VRFs in each namespace, by the node that it is called by."""
    found: dict[str, list[VrfPlan]] = {}
    for vrf in vrfs:
        found.setdefault(vrf.place, []).append(vrf)
    return found


class OverlayWatch:
    """Subscribes to the tables of all VRFs of a lab; make it before the daemons start."""

    def __init__(self, plan: LabPlan, run: Path) -> None:
        """`run` has the run directories of switches, whose daemons are asked for the reason of what is missing."""
        self._plan = plan
        self._run = run
        self._lab = plan.lab
        self._overlay = plan.overlay or OverlayPlan(vrfs=(), nics=(), expected={})
        now = time.monotonic()

        def subscribe() -> list[_Place]:
            places = []
            for place, vrfs in _by_place(self._overlay.vrfs).items():
                enter_namespace(namespace_name(self._lab, place))
                planned = sum(len(self._overlay.expected[vrf.node]) for vrf in vrfs)
                monitor, query = VrfMonitor(), RouteSocket()
                places.append(_Place(vrfs=vrfs, planned=planned, monitor=monitor, query=query, changed_at=now))
            return places

        self._places = syscalls.in_thread(subscribe)

    def close(self) -> None:
        for place in self._places:
            place.close()

    def wait(self, deadline: float, notify: StepCallback, check_daemons: Callable[[], None]) -> list[str]:
        """Return when every VRF has what it must, or at `deadline` (CLOCK_MONOTONIC), with what is missing then.

        `check_daemons` is called now and then, and may raise.
        """
        by_fd = {place.monitor.fileno(): place for place in self._places}
        total = sum(place.planned for place in self._places)
        shown = -1
        daemons_due = asking_due = 0.0
        with select.epoll() as poller:
            for fd in by_fd:
                poller.register(fd, select.EPOLLIN)
            while True:
                now = time.monotonic()
                for place in self._places:
                    if place.dirty and place.due() <= now:
                        place.check(time.monotonic(), self._overlay.expected)
                left = sum(place.left for place in self._places)
                if total - left != shown:
                    shown = total - left
                    notify(StepEvent(step="overlay", phase="progress", done=shown, total=total, detail="entries"))
                if not any(place.dirty or place.left for place in self._places):
                    return []
                if now >= deadline:
                    return explain(self._plan, self._run, self._missing())
                if now >= daemons_due:
                    check_daemons()
                    daemons_due = now + DAEMONS_CHECKED_S
                if now >= asking_due:
                    self._ask()
                    asking_due = now + ASKED_AGAIN_S
                waits = [place.due() - now for place in self._places if place.dirty]
                for fd, _ in poller.poll(max(0.0, min([*waits, deadline - now, daemons_due - now, asking_due - now]))):
                    place = by_fd[fd]
                    place.monitor.drain()
                    place.changed_at = time.monotonic()
                    place.dirty = True

    def _missing(self) -> dict[str, list[ExpectedEntry]]:
        """Return the entries that each VRF lacked when it was looked at, by its node."""
        return {node: entries for place in self._places for node, entries in place.missing.items()}

    def _ask(self) -> None:
        """Have the NICs that were not heard ask for their gateway, and those that are not announced be told anew."""
        missing = self._missing()
        unheard = {
            (node, entry.address)
            for node, entries in missing.items()
            for entry in entries
            if entry.kind is EntryKind.HEARD
        }
        ask_for_gateways(self._lab, [nic for nic in self._overlay.nics if (nic.vrf, nic.address) in unheard])
        unannounced = {entry.of for entries in missing.values() for entry in entries if entry.kind is EntryKind.ROUTE}
        probe_neighbours(
            self._lab,
            {
                place: [
                    entry
                    for vrf in vrfs
                    for entry in self._overlay.expected[vrf.node]
                    if entry.kind is EntryKind.HEARD
                    and entry.of in unannounced
                    and (vrf.node, entry.address) not in unheard
                ]
                for place, vrfs in _by_place(self._overlay.vrfs).items()
            },
        )


def _forget(socket: RouteSocket, requests: Sequence[bytes], node: str) -> None:
    """Send requests to remove neighbours, which need not be there."""
    failures = [item for item in socket.submit(requests) if item.errno != errno.ENOENT]
    if failures:
        raise failure_error(failures, [f"{node}: removing a neighbour"] * len(requests))


def ask_for_gateways(lab: str, nics: Sequence[HeardNic]) -> None:
    """Have NICs send an ARP request for their gateway, from which their switches learn MAC and address.

    In IPv6 that is a neighbour solicitation, which has the NIC's address only where a packet from it waits: an echo
    request, which guards of access ports let pass.
    """
    by_node: dict[str, list[HeardNic]] = {}
    for nic in nics:
        by_node.setdefault(nic.node, []).append(nic)

    def ask(node: str, socket: RouteSocket) -> None:
        here = by_node[node]
        # one that it knows already would not be asked for
        _forget(socket, [forget_neighbour(nic.ifindex, nic.gateway) for nic in here], node)
        asking = [nic for nic in here if nic.gateway.version == 4]
        batch = [use_neighbour(nic.ifindex, nic.gateway) for nic in asking]
        if batch:
            socket.expect(batch, [f"{node}:{nic.name} asks for {nic.gateway}" for nic in asking])
        for nic in here:
            if nic.gateway.version == 6:
                send_echo_request(str(nic.address), str(nic.gateway))

    ask_inside(lab, by_node, RouteSocket, ask)


def probe_neighbours(lab: str, heard: Mapping[str, Sequence[ExpectedEntry]]) -> None:
    """Have VRFs, by the place that they are in, ask local NICs that they have heard whether they are there.

    zebra announces a NIC when it is told of it as a neighbour, and takes up none that were there before it.
    """

    def probe(place: str, socket: RouteSocket) -> None:
        there = read_tables(socket, ipv6=any(entry.ipv6 for entry in heard[place]))
        known = [entry for entry in heard[place] if there.has(entry)]
        batch = [
            set_neighbour(entry.ifindex, entry.address, entry.mac, state=NUD_PROBE)
            for entry in known
            if entry.address is not None
        ]
        if batch:
            socket.expect(batch, [f"{place} asks for {entry.of}" for entry in known])

    ask_inside(lab, [place for place, entries in heard.items() if entries], RouteSocket, probe)


def announce_again(plan: LabPlan, switch: SwitchPlan, directory: Path, *, timeout_s: float = 10.0) -> None:
    """Have a switch whose zebra was started anew announce the NICs that it has heard before, and hear those that its
    VRFs do not know, because they are new.

    Returns once zebra knows the VNIs of the switch and has been told. Raises `DriverError` where it does not within
    `timeout_s`.
    """
    overlay = plan.overlay
    if overlay is None or switch.evpn is None or not switch.evpn.vrfs:
        return
    wanted = {str(vni.vni) for vni in switch.evpn.vnis}
    vty.await_json(
        directory, "zebra", "show evpn vni json", lambda known: wanted <= set(known), "its VNIs", timeout_s=timeout_s
    )
    own = {vrf.node for vrf in switch.evpn.vrfs}
    unheard = {
        (node, entry.address)
        for node, entries in read_missing(plan).items()
        for entry in entries
        if node in own and entry.kind is EntryKind.HEARD
    }
    with suppress(DriverError):  # a host without power, which is heard when it has some
        ask_for_gateways(plan.lab, [nic for nic in overlay.nics if (nic.vrf, nic.address) in unheard])
    probe_neighbours(
        plan.lab,
        {
            place: [entry for vrf in vrfs for entry in overlay.expected[vrf.node] if entry.kind is EntryKind.HEARD]
            for place, vrfs in _by_place(switch.evpn.vrfs).items()
        },
    )


def read_missing(plan: LabPlan) -> dict[str, list[ExpectedEntry]]:
    """Read which entries each VRF of a lab lacks now, by its node."""
    overlay = plan.overlay
    if overlay is None:
        return {}

    places = _by_place(overlay.vrfs)

    def read(place: str, socket: RouteSocket) -> VrfTables:
        return read_tables(socket, ipv6=any(vrf.ipv6 for vrf in places[place]))

    return {
        vrf.node: missing_entries(overlay.expected[vrf.node], tables, vrf.table)
        for place, tables in ask_inside(plan.lab, places, RouteSocket, read).items()
        for vrf in places[place]
    }


def count_missing(plan: LabPlan) -> dict[str, int]:
    """Return the number of entries that each VRF of a lab lacks now, by its node."""
    return {node: len(entries) for node, entries in read_missing(plan).items()}


def missing_lines(plan: LabPlan, run: Path) -> list[str]:
    """A line for each entry that a VRF of a lab lacks now, with the reason. `run` has the switches' run directories."""
    return explain(plan, run, read_missing(plan)) if plan.overlay is not None else []


def explain(plan: LabPlan, run: Path, missing: Mapping[str, Sequence[ExpectedEntry]]) -> list[str]:
    """A line for each missing entry, by the node of its VRF, with the reason for its absence.

    The way of an entry is followed from its beginning: the NIC is heard, the VTEP is reachable, the route arrives.
    """
    overlay = plan.overlay
    assert overlay is not None, "what is missing is missing of an overlay"
    unheard = {
        (entry.of, entry.ipv6) for entries in missing.values() for entry in entries if entry.kind is EntryKind.HEARD
    }
    lines = []
    for vrf in overlay.vrfs:
        entries = missing.get(vrf.node, ())
        if not entries:
            continue
        asked = _Asked(plan.lab, vrf.switch, run / vrf.switch)
        lines += [f"{vrf.node}: {entry}: {asked.reason(entry, unheard)}" for entry in entries]
    return lines


class _Asked:
    """Answers of a switch's underlay and its bgpd, each asked for once."""

    def __init__(self, lab: str, switch: str, directory: Path) -> None:
        self._switch = switch
        self._said = ""
        self._routes: Any = {}
        self._reachable = _host_routes(lab, switch)
        try:
            self._routes = vty.ask_json(directory, "bgpd", "show bgp l2vpn evpn json")
        except DriverError as error:
            self._said = error.message

    def reason(self, entry: ExpectedEntry, unheard: Collection[tuple[str, bool]]) -> str:
        """Why it is missing. `unheard` are the NICs that no switch has heard, each with whether that is of IPv6."""
        if entry.kind is EntryKind.HEARD:
            return f"{self._switch} has not heard it, and announces no type-2 route"
        if entry.switch == self._switch:
            return f"BGP with {entry.of} is not up, or it does not announce the prefix"
        if (entry.of, entry.ipv6) in unheard:
            return f"{entry.switch} has not heard it, and announces no type-2 route"
        if not self._reachable.intersection(entry.vteps):
            return f"the underlay of {self._switch} has no route to {entry.switch}"
        if self._said:
            return self._said
        absent = [route for route in entry.routes if route.prefix not in self._routes.get(route.rd, {})]
        if entry.routes and len(absent) == len(entry.routes):
            return f"{self._switch} has not received the {absent[0]} from {entry.switch}"
        return f"zebra of {self._switch} has not installed it"


def _host_routes(lab: str, switch: str) -> set[IPv4Address]:
    """The addresses that a switch's underlay has a route of their own to."""
    routes = ask_inside(lab, [switch], RouteSocket, lambda _, item: bgp_routes(item))[switch]
    return {IPv4Address(address) for address, length in routes if length == 32}
