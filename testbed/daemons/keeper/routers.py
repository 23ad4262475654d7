"""Keeping the routers of other VTEPs in the VRFs of a lab.

The route of a prefix behind another VTEP is of use only with that VTEP's router: a neighbour on the bridge of the
L3VNI, and an FDB entry of its MAC. zebra counts which prefixes need a router, and removes it with the last of them.
When the best of several routes by one VTEP changes, bgpd withdraws the prefix and announces it again
(bgp_process_main_one of FRR's bgp_route.c), and zebra (8.4.4) takes up routers and withdrawals in queues of their own:
where both come within microseconds, the announcement is counted first, and the withdrawal removes what is still needed.
What is routed to that VTEP is then lost until its next route comes.

So the kernel of each VRF is listened to. Where a neighbour of an L3VNI goes or a route comes, the VRF is looked at a
moment later; and where it has routes by a VTEP whose router it lacks, its bgpd is made to announce the VRF's routes to
zebra again, without a withdrawal: zebra takes up the router, and the routes in the kernel stay in force meanwhile.
Nothing is looked at while nothing changes.
"""

from __future__ import annotations

import select
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from testbed.base.errors import DriverError
from testbed.base.linux import vty
from testbed.base.linux.namespaces import enter_namespace
from testbed.base.linux.rtnetlink import RouteSocket
from testbed.daemons.keeper.configuration import KeeperConfiguration, KeptVrf
from testbed.daemons.keeper.entries import EntryKind, ExpectedEntry
from testbed.daemons.keeper.tables import RouterMonitor, VrfTables, read_tables
from testbed.daemons.kit.events import EventLog

SETTLED_S = 0.1
"""The time from a change until a VRF is looked at: withdrawn and announced again takes milliseconds."""
LOOKED_AGAIN_S = 0.2
"""The least time between two looks."""
REST = 9
"""The least time until the next look, as a multiple of what looking took: in a storm of changes, a tenth of a
core is spent."""
LONGEST_S = 8.0
"""The longest time until the next try where none has helped."""
TOLD_AFTER = 4
"""Tries without success, after which somebody is told."""
BGPD_TIMEOUT_S = 5.0
_ROUTES_AGAIN = ("distance bgp 20 200 200", "no distance bgp")
"""bgpd announces all routes of a VRF when their distance is set, to what it is by default, and when it is not."""


def lost_routers(vrf: KeptVrf, tables: VrfTables) -> list[ExpectedEntry]:
    """The entries of routers that a VRF lacks although it has routes by them, of the same version of IP."""
    used = {
        (vtep, prefix.version == 6)
        for (table, prefix), hops in tables.routes.items()
        if table == vrf.table
        for vtep, ifindex in hops
        if ifindex == vrf.bridge
    }
    return [entry for entry in vrf.routers if used.intersection(_uses(entry)) and not tables.has(entry, vrf.table)]


def _uses(entry: ExpectedEntry) -> set[tuple[IPv4Address, bool]]:
    """The VTEPs and versions of IP of the routes that need an entry: all need the MAC."""
    versions = (False, True) if entry.kind is EntryKind.MAC else (entry.ipv6,)
    return {(vtep, version) for vtep in entry.vteps for version in versions}


@dataclass(slots=True, kw_only=True)
class Attention:
    """When a VRF is looked at: soon after a change, and later each time that looking at it was in vain."""

    due: float | None = None
    """None: not before something changes."""
    tries: int = 0
    """The number of times that something was done about what is lost, in vain so far."""
    rests_until: float = float("-inf")

    def changed(self, now: float) -> None:
        """Take note of a change in its tables."""
        if self.due is None:
            self.due = max(now + SETTLED_S, self.rests_until)

    def looked(self, now: float, took_s: float, *, lost: bool) -> None:
        """Take note of a look, all of which together took so long; where a router is `lost`, something was done."""
        rest_s = max(LOOKED_AGAIN_S, REST * took_s)
        self.rests_until = now + rest_s
        self.tries = self.tries + 1 if lost else 0
        self.due = now + max(rest_s, min(LONGEST_S, LOOKED_AGAIN_S * 2 ** (self.tries - 1))) if lost else None


@dataclass(slots=True, kw_only=True)
class _Place:
    """The VRFs in a namespace, and how its kernel is asked and heard."""

    vrfs: Mapping[str, KeptVrf]
    """The VRFs, by tenant."""
    monitor: RouterMonitor
    query: RouteSocket
    attention: Attention = field(default_factory=Attention)
    lost: dict[str, list[ExpectedEntry]] = field(default_factory=dict)
    """The entries that the VRF of each tenant lacked when it was last looked at."""

    def read(self) -> VrfTables:
        return read_tables(self.query, ipv6=any(vrf.ipv6 for vrf in self.vrfs.values()))


class Keeper:
    """Keeps the routers of all VRFs of a lab. Lives in the network namespace that it was last in."""

    def __init__(self, configuration: KeeperConfiguration) -> None:
        """Raises `DriverError`, `OSError`. Enters the namespace of each VRF."""
        self._events = EventLog(configuration.events, configuration.lab)
        self._places: dict[int, _Place] = {}
        self._epoll = select.epoll()
        now = time.monotonic()
        by_namespace: dict[str, dict[str, KeptVrf]] = {}
        for vrf in configuration.vrfs:
            by_namespace.setdefault(vrf.namespace, {})[vrf.tenant] = vrf
        for namespace, vrfs in by_namespace.items():
            enter_namespace(namespace)
            indexes = {index for vrf in vrfs.values() for index in (vrf.bridge, vrf.vxlan)}
            place = _Place(vrfs=vrfs, monitor=RouterMonitor(indexes), query=RouteSocket())
            place.attention.changed(now)  # what was lost before
            self._places[place.monitor.fileno()] = place
            self._epoll.register(place.monitor.fileno(), select.EPOLLIN)

    def run(self) -> None:
        """Work until this process is ended."""
        while True:
            self.step()

    def step(self) -> None:
        """Wait until something has changed or a look is due, and act on it."""
        due = min(
            (place.attention.due for place in self._places.values() if place.attention.due is not None), default=None
        )
        wait_s = None if due is None else max(0.0, due - time.monotonic())
        for descriptor, _ in self._epoll.poll(wait_s):
            place = self._places[descriptor]
            if place.monitor.drain():
                place.attention.changed(time.monotonic())
        start = time.monotonic()
        looked = [
            place for place in self._places.values() if place.attention.due is not None and place.attention.due <= start
        ]
        for place in looked:
            self._look(place)
        now = time.monotonic()
        for place in looked:
            place.attention.looked(now, now - start, lost=bool(place.lost))

    def _look(self, place: _Place) -> None:
        """Have announced again what is lost of the VRFs of a namespace, and tell of what was and is there again."""
        tables = place.read()
        before, place.lost = place.lost, {}
        for tenant, vrf in place.vrfs.items():
            if entries := lost_routers(vrf, tables):
                place.lost[tenant] = entries
            elif tenant in before and all(tables.has(entry, vrf.table) for entry in before[tenant]):
                self._tell(vrf, "router-renewed", f"zebra had lost {_names(before[tenant])}")  # else the VTEP is gone
        for tenant, entries in place.lost.items():
            failure = _announce_again(place.vrfs[tenant])
            if place.attention.tries + 1 == TOLD_AFTER:
                why = failure or "its routes are announced again in vain"
                self._tell(place.vrfs[tenant], "router-lost", f"zebra has lost {_names(entries)}: {why}")

    def _tell(self, vrf: KeptVrf, kind: str, detail: str) -> None:
        self._events.write(kind, vrf.switch, vrf.tenant, detail)


def _names(entries: Sequence[ExpectedEntry]) -> str:
    """Whose entries they are, for a person."""
    return ", ".join(dict.fromkeys(entry.of for entry in entries))


def _announce_again(vrf: KeptVrf) -> str:
    """Have bgpd announce a VRF's routes to zebra again; why it did not, or nothing."""
    commands = [f"router bgp {vrf.asn} vrf {vrf.tenant}"]
    for family in ("ipv4", "ipv6") if vrf.ipv6 else ("ipv4",):
        commands += [f"address-family {family} unicast", *_ROUTES_AGAIN, "exit-address-family"]
    try:
        vty.configure(vrf.directory, "bgpd", commands, timeout_s=BGPD_TIMEOUT_S)
    except DriverError as error:
        return error.message
    return ""
