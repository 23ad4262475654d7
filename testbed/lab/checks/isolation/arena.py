"""Carrying attacks out: sending them from many ports at once, and looking for what became of each.

An attack has succeeded where its effect is seen: at the victim, in a neighbour table, in a bridge's table, as an answer
of a switch. It was stopped where the port's guards have counted all of it. One of the two must be seen: silence proves
nothing.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address

from testbed.base.cleanup import on_failure
from testbed.base.linux import syscalls
from testbed.base.linux.namespaces import enter_namespace, in_namespace
from testbed.base.linux.neighbours import (
    NUD_REACHABLE,
    forget_neighbour,
    forget_station,
    read_neighbours,
    read_stations,
    set_neighbour,
)
from testbed.base.linux.nftables import NetfilterSocket
from testbed.base.linux.rtnetlink import RouteSocket, family_of
from testbed.base.names import namespace_name
from testbed.lab.checks.isolation.attacks import (
    BGP,
    Attack,
    NeighbourAttack,
    SeenAttack,
    StationAttack,
    SwitchAttack,
    TableAttack,
)
from testbed.lab.checks.isolation.sites import Site
from testbed.lab.core.drivers.nodes.raw_ports import RawPorts
from testbed.lab.core.drivers.nodes.unsigned import UnsignedCount
from testbed.lab.features.guards.apply import read_guards

TIMEOUT_S = 2.0
_LOOK_EVERY_S = 0.01
_KEY_BYTES = 8
_BGP_OPEN = b"\xff" * 16 + struct.pack("!HBBHHIB", 29, 1, 4, 65000, 90, 0xCB007109, 0)
"""The OPEN message of AS 65000 (RFC 4271, section 4.2)."""


_BGP_MESSAGES = {1: "an OPEN", 2: "an UPDATE", 3: "a NOTIFICATION", 4: "a KEEPALIVE"}
_BGP_PATIENCE_S = 0.3
_Station = tuple[str, int, str]
"""Switch, interface index of a port of it, and a MAC that is behind it."""


class Fate(StrEnum):
    """The outcome of an attack at a port."""

    STOPPED = "stopped"
    SUCCEEDED = "succeeded"
    UNSEEN = "unseen"
    """Neither its effect nor a counter was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """An attack at a port. `dropped` is what was counted meanwhile of its packets; `detail` how success was seen."""

    site: Site
    fate: Fate
    dropped: int
    detail: str = ""
    by_password: bool = False
    """It was the switch's kernel that dropped it, for want of a signature."""


@dataclass(slots=True)
class _Attempt:
    site: Site
    token: bytes
    sent: int
    connection: socket.socket | None = None
    arrived: int = 0
    detail: str = ""
    said_at: float = 0.0
    """When a BGP OPEN was sent."""


class Arena:
    """The sockets for attacks at some ports of one lab."""

    def __init__(self, lab: str, sites: Sequence[Site]) -> None:
        """Raises `DriverError` where a socket cannot be had."""
        self._lab = lab
        self._key = os.urandom(_KEY_BYTES)
        self._tables: dict[str, RouteSocket] = {}
        self._filters: dict[str, NetfilterSocket] = {}
        self._unsigned: dict[str, UnsignedCount] = {}
        nics = {place for site in sites for place in site.senders}
        nics |= {(nic.node, nic.name) for site in sites for nic in (site.victim, site.far) if nic is not None}
        nics |= {(site.tunnel.nic.node, site.tunnel.nic.name) for site in sites if site.tunnel is not None}
        self._raw = RawPorts(lab, sorted(nics))
        switches = {place for site in sites for place in site.places}
        self._secured = {place for site in sites if site.password for place in site.places}
        hosts = {node for node, _ in nics}
        with on_failure(self.close):
            syscalls.in_thread(lambda: self._open(switches, hosts))

    def _open(self, switches: Iterable[str], hosts: Iterable[str]) -> None:
        for node in {*switches, *hosts}:
            enter_namespace(namespace_name(self._lab, node))
            self._tables[node] = RouteSocket()
            if node in set(switches):
                self._filters[node] = NetfilterSocket()
            if node in self._secured:
                self._unsigned[node] = UnsignedCount()

    def close(self) -> None:
        """Close all sockets. Once is enough."""
        self._raw.close()
        for item in (*self._tables.values(), *self._filters.values()):
            item.close()
        for count in self._unsigned.values():
            count.close()

    def carry_out(
        self, attack: Attack, number: int, sites: Sequence[Site], warm_up: Callable[[], None] | None = None
    ) -> list[Outcome]:
        """Try an attack from all `sites`, and undo what it has done to tables.

        `warm_up` has all of them know each other: it is called before whatever lies about that.
        """
        outcomes: list[Outcome] = []
        for together in _rounds(attack, sites):
            if warm_up is not None and (isinstance(attack, TableAttack) or not outcomes):
                warm_up()
            self._raw.forget()
            before = self._dropped(together)
            unsigned = {place: count.read() for place, count in self._unsigned.items()}
            known = self._learnt(together) if isinstance(attack, StationAttack) else frozenset[_Station]()
            with self._exposed(attack, together):
                start = time.monotonic()
                attempts = [self._send(attack, number, site) for site in together]
                try:
                    outcomes += self._watch(attack, attempts, before, unsigned, known, start)
                finally:
                    for attempt in attempts:
                        if attempt.connection is not None:
                            attempt.connection.close()
                    self._undo(attack, attempts, known)
        return outcomes

    @contextlib.contextmanager
    def _exposed(self, attack: Attack, sites: Sequence[Site]) -> Iterator[None]:
        """Have the leaves of pairs forget neighbours that are lied about in the block; they hear the truth afterwards.

        What such leaves have heard of a neighbour first they believe for good: a lie has to come before the truth.
        Where a guard is there, nothing is touched. Other leaves forget the one before they are told the other: a route
        that is withdrawn by one spine after the other would take the neighbour along that has come by the first.
        """
        truths: list[tuple[str, bytes]] = []
        true: set[tuple[IPv4Address | IPv6Address, str]] = set()
        lies: set[tuple[IPv4Address | IPv6Address, str]] = set()
        try:
            for site in sites:
                if not isinstance(attack, NeighbourAttack) or attack.guard in site.guards:
                    continue
                if not site.is_pair or site.victim is None:
                    continue
                for node, ifindex, address in attack.entries(site):
                    if node in site.places:
                        truths.append((node, set_neighbour(ifindex, address, site.victim.mac, state=NUD_REACHABLE)))
                        true.add((address, site.victim.mac))
                        lies.add((address, site.nic.mac))
                        self._tables[node].submit([forget_neighbour(ifindex, address)])
            self._await_forgotten(true)
            yield
        finally:
            self._await_forgotten(lies)
            for node, truth in truths:
                self._tables[node].submit([truth])

    def _await_forgotten(self, neighbours: Set[tuple[IPv4Address | IPv6Address, str]]) -> None:
        """Wait, for a while, until no switch has any of these addresses at its MAC."""
        deadline = time.monotonic() + TIMEOUT_S
        while neighbours and time.monotonic() < deadline:
            known = (read_neighbours(self._tables[node]) for node in self._filters)
            if not any((address, mac) in neighbours for table in known for (_, address), mac in table.items()):
                return
            time.sleep(_LOOK_EVERY_S)

    def _send(self, attack: Attack, number: int, site: Site) -> _Attempt:
        token = self._key + struct.pack("!BH", number, site.number)
        if isinstance(attack, SwitchAttack):
            connection = in_namespace(namespace_name(self._lab, site.nic.node), lambda: self._connect(attack, site))
            return _Attempt(site, token, 1, connection)
        return _Attempt(site, token, sum(self._raw.send(place, attack.frames(site, token)) for place in site.senders))

    @staticmethod
    def _connect(attack: SwitchAttack, site: Site) -> socket.socket:
        kind = socket.SOCK_DGRAM if attack.udp else socket.SOCK_STREAM
        target = attack.target(site)
        own = site.nic.address if target.version == 4 else site.nic.address6
        assert own is not None
        family = family_of(target.packed)
        item = socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        item.bind((str(own.ip), 0))
        with contextlib.suppress(BlockingIOError):
            item.connect((str(target), attack.port))
        if attack.udp:
            item.send(bytes(64))
        return item

    # ------------------------------------------------------------------ looking

    def _watch(
        self,
        attack: Attack,
        attempts: Sequence[_Attempt],
        before: Mapping[Site, int],
        unsigned: Mapping[str, int],
        known: frozenset[_Station],
        start: float,
    ) -> list[Outcome]:
        by_token = {attempt.token: attempt for attempt in attempts}
        waiting = list(attempts)
        outcomes: list[Outcome] = []
        while waiting and time.monotonic() < start + TIMEOUT_S:
            for place, data in self._raw.arrivals(_LOOK_EVERY_S):
                at = data.find(self._key)
                attempt = by_token.get(data[at : at + _KEY_BYTES + 3]) if at >= 0 else None
                if attempt is not None and isinstance(attack, SeenAttack) and attack.where(attempt.site) == place:
                    attempt.arrived += 1
            dropped = self._dropped([attempt.site for attempt in waiting])
            refused = self._all_unsigned(attack, attempts, unsigned)
            succeeded = self._succeeded(attack, waiting, known, time.monotonic() - start)
            left = []
            for attempt in waiting:
                site = attempt.site
                counted = dropped[site] - before[site]
                if attempt in succeeded:
                    outcomes.append(Outcome(site=site, fate=Fate.SUCCEEDED, dropped=counted, detail=attempt.detail))
                elif counted and counted >= attack.to_drop(site, attempt.sent, time.monotonic() - start):
                    outcomes.append(Outcome(site=site, fate=Fate.STOPPED, dropped=counted))
                elif site.places in refused:
                    outcomes.append(Outcome(site=site, fate=Fate.STOPPED, dropped=1, by_password=True))
                else:
                    left.append(attempt)
            waiting = left
        return [*outcomes, *(Outcome(site=attempt.site, fate=Fate.UNSEEN, dropped=0) for attempt in waiting)]

    def _succeeded(
        self, attack: Attack, waiting: Sequence[_Attempt], known: frozenset[_Station], seconds: float
    ) -> list[_Attempt]:
        match attack:
            case SeenAttack():
                return [attempt for attempt in waiting if attempt.arrived >= attack.enough(attempt.site, seconds)]
            case NeighbourAttack():
                return [attempt for attempt in waiting if self._believed(attack, attempt.site)]
            case StationAttack():
                learnt = {(node, index) for node, index, _ in self._learnt([a.site for a in waiting]) - known}
                return [a for a in waiting if any((port.place, port.ifindex) in learnt for port in a.site.ports)]
            case SwitchAttack():
                return [attempt for attempt in waiting if _answered(attack, attempt)]
        return []

    def _believed(self, attack: NeighbourAttack, site: Site) -> bool:
        return any(
            read_neighbours(self._tables[node]).get((ifindex, address)) == site.nic.mac
            for node, ifindex, address in attack.entries(site)
        )

    def _dropped(self, sites: Sequence[Site]) -> dict[Site, int]:
        """Count what all guards at each site have dropped so far, those of both its ports together where it has two."""
        counts: dict[tuple[str, str], int] = defaultdict(int)
        for node in {place for site in sites if site.guards for place in site.places}:
            for counter in read_guards(self._filters[node]):
                counts[node, counter.interface] += counter.packets
        return {site: sum(counts[port.place, port.name] for port in site.ports) for site in sites}

    def _all_unsigned(
        self, attack: Attack, attempts: Sequence[_Attempt], before: Mapping[str, int]
    ) -> set[tuple[str, ...]]:
        """The switches, or pairs of them, that have dropped a segment of each attacker for want of a signature.

        The kernel counts them for all addresses together. A SYN that is sent anew after a second (RFC 6298, section 2)
        counts again, and we look sooner.
        """
        if not isinstance(attack, SwitchAttack) or attack.port != BGP:
            return set()
        tried = Counter(attempt.site.places for attempt in attempts if attempt.site.password)
        return {
            places
            for places, count in tried.items()
            if sum(self._unsigned[place].read() - before[place] for place in places) >= count
        }

    # ------------------------------------------------------------------ undoing

    def _undo(self, attack: Attack, attempts: Sequence[_Attempt], known: frozenset[_Station]) -> None:
        """Have those who believed the attack ask and learn anew."""
        match attack:
            case NeighbourAttack():
                for site in (attempt.site for attempt in attempts):
                    if self._believed(attack, site):
                        for node, ifindex, address in attack.entries(site):
                            self._tables[node].submit([forget_neighbour(ifindex, address)])
            case StationAttack():
                attacked = {(port.place, port.ifindex) for attempt in attempts for port in attempt.site.ports}
                for node, index, mac in self._learnt([attempt.site for attempt in attempts]) - known:
                    if (node, index) in attacked:
                        self._tables[node].submit([forget_station(index, mac)])  # it may have aged meanwhile

    def _learnt(self, sites: Sequence[Site]) -> frozenset[_Station]:
        """Return what the bridges at these ports have learnt, but the MACs of the hosts where they belong.

        A member of a link group sends LACP from its own MAC, and one leaf of a pair tells the other what it has learnt.
        """
        own = {
            (port.place, port.ifindex, nic.mac)
            for site in sites
            for port in site.ports
            for nic in (site.nic, *site.members)
        }
        return frozenset(
            (node, index, mac)
            for node in {place for site in sites for place in site.places}
            for (index, mac), learnt in read_stations(self._tables[node]).items()
            if learnt and (node, index, mac) not in own
        )


def _rounds(attack: Attack, sites: Sequence[Site]) -> list[list[Site]]:
    """Group the sites that can attack at once: of several that lie about one entry of a table only the last is
    believed."""
    rounds: list[list[Site]] = []
    turn: dict[object, int] = defaultdict(int)
    for site in sites:
        keys = _in_the_way(attack, site)
        index = max((turn[key] for key in keys), default=0)
        turn.update(dict.fromkeys(keys, index + 1))
        if index == len(rounds):
            rounds.append([])
        rounds[index].append(site)
    return rounds


def _in_the_way(attack: Attack, site: Site) -> Sequence[object]:
    """Return what an attack from a port needs for itself."""
    if attack.alone:
        return [site.port.place]
    return attack.entries(site) if isinstance(attack, NeighbourAttack) else []


def _answered(attack: SwitchAttack, attempt: _Attempt) -> bool:
    """Tell whether the switch let the connection come about, refused it, or said something."""
    item = attempt.connection
    assert item is not None
    if attempt.said_at:
        return _replied(item, attempt)
    if error := item.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        attempt.detail = os.strerror(error).lower()
        return True
    if attack.udp:
        return False
    try:
        item.getpeername()
    except OSError:
        return False
    attempt.detail = "connected"
    if attack.port != BGP:
        return True
    attempt.said_at = time.monotonic()
    with contextlib.suppress(OSError):  # what became of it is asked next
        item.send(_BGP_OPEN)
    return False


def _replied(item: socket.socket, attempt: _Attempt) -> bool:
    """Tell whether a connection's story is over: the switch has answered our OPEN, closed it, or says nothing."""
    try:
        data = item.recv(4096)
        kind = _BGP_MESSAGES.get(data[18], "something else") if len(data) > 18 else ""
        attempt.detail = f"connected, sent an OPEN, got {kind}" if kind else "connected, closed after an OPEN"
    except BlockingIOError:
        return time.monotonic() > attempt.said_at + _BGP_PATIENCE_S
    except OSError as error:
        attempt.detail = f"connected, {os.strerror(error.errno or 0).lower()} after an OPEN"
    return True
