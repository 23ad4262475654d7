"""Who reaches whom, intended and tried: pairs of NICs, by UDP, TCP and ICMP, over IPv4 and over IPv6.

Each protocol is seen where it arrives, so that a leak in one direction is a leak: datagrams and echo requests by a
socket of this process on the target's address, connections by a listener there. That a listener stands on every target
means that a refusal, too, is an answer of the target.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from testbed.base.linux import syscalls
from testbed.base.linux.namespaces import enter_namespace
from testbed.base.names import namespace_name
from testbed.lab.checks.isolation.frames import checksum
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.check import should_reach
from testbed.lab.core.drivers.nodes.inside import open_inside
from testbed.lab.core.drivers.nodes.udp_prober import make_room
from testbed.lab.core.model import Service, ServiceProtocol
from testbed.lab.core.plan.lab_plan import PortPlan

MOST_PAIRS = 3000
QUIET_S = 1.0
"""After so long without an answer the rest is taken for lost."""
_BATCH = 64
"""Sent before answers are taken in."""
_ECHO_REQUEST, _ECHO_REPLY = 8, 0
_ECHO6_REQUEST, _ECHO6_REPLY = 128, 129
_IPV4_HEADER_BYTES = 20
"""A raw socket of IPv4 receives it, too."""
_KEY_BYTES, _INDEX_BYTES = 8, 4
_PAYLOAD_BYTES = _KEY_BYTES + _INDEX_BYTES

Pair = tuple[PortPlan, PortPlan]


class Protocol(StrEnum):
    UDP = "UDP"
    TCP = "TCP"
    ICMP = "ICMP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """The pairs of NICs that are tried, and which of them the plan lets talk. `total` counts those there are.

    `service` is what is asked for: one of a port is tried at that port, else at ports that are nobody's. `ipv6`: by the
    addresses of IPv6 of the NICs, which all of them have.
    """

    pairs: tuple[Pair, ...]
    intended: frozenset[int]
    """Indexes of `pairs`."""
    total: int
    service: Service
    ipv6: bool = False

    def only_intended(self) -> Matrix:
        """The pairs that are to reach each other."""
        pairs = tuple(pair for index, pair in enumerate(self.pairs) if index in self.intended)
        return replace(self, pairs=pairs, intended=frozenset(range(len(pairs))), total=len(pairs))


def intended_matrix(lab: RunningLab, networks: Sequence[str], protocol: Protocol, *, ipv6: bool = False) -> Matrix:
    """All ordered pairs of NICs on different hosts of some networks; an even choice of them where they are many.

    NICs of one tenant in one network are to reach each other, and those of tenants that talk to each other what these
    may ask for; none of another tenant or of none. A router outside is as a NIC of its tenant, but to those that its
    tenant talks to.
    """
    nics = _nics(lab, networks, ipv6=ipv6)
    every = [(a, b) for a in nics for b in nics if a.node != b.node]
    return _matrix(lab, networks, every, Service(protocol=ServiceProtocol(protocol.lower())), ipv6=ipv6)


def service_matrices(lab: RunningLab, networks: Sequence[str], *, ipv6: bool = False) -> list[Matrix]:
    """For each service of a port that some tenant may ask another for: all tenants' NICs, to those that offer it.

    A NIC whose own tenant has the address of the one that is asked would reach that, and is left out.
    """
    overlay = lab.plan.overlay
    if overlay is None:
        return []
    offers: dict[Service, set[str]] = {}
    for (_, other), services in overlay.passes.items():
        for service in services:
            if service.port:
                offers.setdefault(service, set()).add(other)
    nics = _nics(lab, networks, ipv6=ipv6)
    own = {(nic.tenant, _address(nic, ipv6)) for nic in nics}
    found = []
    for service, tenants in offers.items():
        every = [
            (a, b)
            for b in nics
            if b.tenant in tenants
            for a in nics
            if a.node != b.node and a.tenant != b.tenant and (a.tenant, _address(b, ipv6)) not in own
        ]
        found.append(_matrix(lab, networks, every, service, ipv6=ipv6))
    return found


def _matrix(lab: RunningLab, networks: Sequence[str], every: Sequence[Pair], service: Service, *, ipv6: bool) -> Matrix:
    """An even choice of these pairs, where they are many."""
    pairs = every if len(every) <= MOST_PAIRS else [every[n * len(every) // MOST_PAIRS] for n in range(MOST_PAIRS)]
    intended = _intended(lab, networks, pairs, service)
    return Matrix(pairs=tuple(pairs), intended=intended, total=len(every), service=service, ipv6=ipv6)


def _nics(lab: RunningLab, networks: Sequence[str], *, ipv6: bool) -> list[PortPlan]:
    nics = [nic for host in lab.plan.hosts for nic in host.nics if nic.network in networks]
    if ipv6:
        return [nic for nic in nics if nic.address6 is not None]
    return [nic for nic in nics if nic.address is not None] + _routers(lab, networks)


def _routers(lab: RunningLab, networks: Sequence[str]) -> list[PortPlan]:
    """The ports of routers outside, each with the first address of its router."""
    addresses = {router.node: router.loopback for router in lab.plan.routers}
    return [
        replace(port, address=addresses[port.node])
        for port in lab.plan.ports
        if port.node in addresses and port.network in networks
    ]


def _intended(lab: RunningLab, networks: Sequence[str], pairs: Sequence[Pair], service: Service) -> frozenset[int]:
    seen = {name: lab.of_network(name) for name in networks}
    overlay = lab.plan.overlay
    reached_by = {} if overlay is None else overlay.reached()
    outside = {port.node for port in _routers(lab, networks)}

    def meant(a: PortPlan, b: PortPlan) -> bool:
        if a.network != b.network or bool(a.tenant) != bool(b.tenant):
            return False
        if overlay is None or not a.tenant:
            return should_reach(seen[a.network], a, b)
        if (a.node in outside or b.node in outside) and a.tenant != b.tenant:
            return False
        source, target = (nic.peer.partition(":")[0] for nic in (a, b))
        return overlay.may_ask(a.tenant, b.tenant, service) and target in reached_by[source, b.tenant]

    return frozenset(index for index, (a, b) in enumerate(pairs) if meant(a, b))


def reached(lab: str, matrix: Matrix) -> set[int]:
    """Try all pairs, those that are to arrive twice where the first packet does not.

    The indexes of those that arrive come back. Raises `DriverError`, `OSError`.
    """
    make_room_for([matrix])
    arrived = _tried(lab, matrix, dict(enumerate(matrix.pairs)))
    missing = matrix.intended - arrived
    return arrived | _tried(lab, matrix, {index: matrix.pairs[index] for index in missing}) if missing else arrived


def make_room_for(matrices: Sequence[Matrix]) -> None:
    """Let this process have the descriptors that it takes to try all of these at the same time."""
    make_room(sum(2 * len(matrix.pairs) + 64 for matrix in matrices))


def _tried(lab: str, matrix: Matrix, pairs: Mapping[int, Pair]) -> set[int]:
    ipv6, port = matrix.ipv6, matrix.service.port

    def udp_socket(nic: PortPlan) -> socket.socket:
        return _udp_socket(nic, ipv6=ipv6)

    def icmp_socket(nic: PortPlan) -> socket.socket:
        return _icmp_socket(nic, ipv6=ipv6)

    match matrix.service.protocol:
        case ServiceProtocol.UDP:
            target = partial(_udp_socket, port=port, ipv6=ipv6)
            return _seen(lab, pairs, udp_socket, target, lambda data: data, ipv6=ipv6)
        case ServiceProtocol.ICMP:
            return _seen(lab, pairs, icmp_socket, icmp_socket, partial(_echo_request, ipv6=ipv6), ipv6=ipv6)
        case ServiceProtocol.TCP:
            return _connected(lab, pairs, partial(_listener, port=port, ipv6=ipv6), ipv6=ipv6)


def _each(pairs: Mapping[int, Pair], end: int) -> Iterable[PortPlan]:
    """The NICs that are the first (0) or the second (1) of some pair."""
    return {(pair[end].node, pair[end].name): pair[end] for pair in pairs.values()}.values()


def silent_gateways(lab: str, nics: Sequence[PortPlan], *, ipv6: bool = False) -> list[PortPlan]:
    """The NICs whose gateway of IPv4, or of IPv6, does not answer an ICMP echo; none of those without one."""
    gateways = {(nic.node, nic.name): nic.gateway6 if ipv6 else nic.gateway for nic in nics}
    asked = {(nic.node, nic.name): nic for nic in nics if gateways[nic.node, nic.name] is not None}
    sockets = _in_nodes(lab, asked.values(), partial(_icmp_socket, ipv6=ipv6))
    reply, start = (_ECHO6_REPLY, 0) if ipv6 else (_ECHO_REPLY, _IPV4_HEADER_BYTES)
    try:
        for place in asked:
            with suppress(OSError):
                sockets[place].sendto(_echo_request(b"gateway", ipv6=ipv6), (str(gateways[place]), 0))
        waiting = {item.fileno(): place for place, item in sockets.items()}
        by_descriptor = {item.fileno(): item for item in sockets.values()}
        with closing(_poll(by_descriptor)) as epoll:
            for descriptor in _ready(epoll, lambda: len(waiting)):
                with suppress(OSError):
                    data, (source, *_) = by_descriptor[descriptor].recvfrom(128)
                    whose = waiting.get(descriptor)
                    if whose and data[start] == reply and source == str(gateways[whose]):
                        del waiting[descriptor]
        return [asked[place] for place in waiting.values()]
    finally:
        _close(sockets.values())


# ------------------------------------------------------------------ TCP and ICMP


def _connected(
    lab: str, pairs: Mapping[int, Pair], listener: Callable[[PortPlan], socket.socket], *, ipv6: bool
) -> set[int]:
    listeners = _in_nodes(lab, _each(pairs, 1), listener)
    by_source: dict[str, list[int]] = {}
    for index, (a, _) in pairs.items():
        by_source.setdefault(a.node, []).append(index)
    trying: dict[int, tuple[int, socket.socket]] = {}
    done: set[int] = set()

    def connect_all() -> None:
        for node, indexes in by_source.items():
            enter_namespace(namespace_name(lab, node))
            for index in indexes:
                a, b = pairs[index]
                item = _socket(socket.SOCK_STREAM, ipv6)
                trying[item.fileno()] = index, item
                item.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                item.bind((_address(a, ipv6), 0))
                with suppress(OSError):  # unreachable at once, or on its way
                    item.connect(listeners[b.node, b.name].getsockname())

    try:
        syscalls.in_thread(connect_all)
        with closing(_poll(trying, select.EPOLLOUT | select.EPOLLERR)) as epoll:
            for descriptor in _ready(epoll, lambda: len(pairs) - len(done)):
                index, item = trying.pop(descriptor)
                epoll.unregister(descriptor)
                with closing(item):
                    if item.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                        with suppress(OSError):
                            item.getpeername()
                            done.add(index)
        return done
    finally:
        _close(item for _, item in trying.values())
        _close(listeners.values())


def _seen(
    lab: str,
    pairs: Mapping[int, Pair],
    sender: Callable[[PortPlan], socket.socket],
    target: Callable[[PortPlan], socket.socket],
    packet: Callable[[bytes], bytes],
    *,
    ipv6: bool,
) -> set[int]:
    """Send a packet for each pair from one socket to the other's address, and see which the other socket receives.

    `packet` puts a payload into what the sockets send; it ends what they receive.
    """
    senders = _in_nodes(lab, _each(pairs, 0), sender)
    try:
        sockets = _in_nodes(lab, _each(pairs, 1), target)
    except BaseException:
        _close(senders.values())
        raise
    key = os.urandom(_KEY_BYTES)
    by_descriptor = {item.fileno(): item for item in sockets.values()}
    places = {item.fileno(): place for place, item in sockets.items()}
    done: set[int] = set()

    def take(descriptor: int) -> None:
        with suppress(OSError):
            data = by_descriptor[descriptor].recv(128)
            index = int.from_bytes(data[-_INDEX_BYTES:], "big")
            if data[-_PAYLOAD_BYTES:-_INDEX_BYTES] != key or index not in pairs:
                return
            whom = pairs[index][1]
            if places[descriptor] == (whom.node, whom.name):  # else it is an answer to the sender
                done.add(index)

    try:
        with closing(_poll(by_descriptor)) as epoll:
            for number, (index, (a, b)) in enumerate(pairs.items()):
                with suppress(OSError):
                    payload = packet(key + index.to_bytes(_INDEX_BYTES, "big"))
                    port = sockets[b.node, b.name].getsockname()[1]
                    senders[a.node, a.name].sendto(payload, (_address(b, ipv6), port))
                if number % _BATCH == _BATCH - 1:
                    for descriptor, _ in epoll.poll(0.001):
                        take(descriptor)
            for descriptor in _ready(epoll, lambda: len(pairs) - len(done)):
                take(descriptor)
        return done
    finally:
        _close([*senders.values(), *sockets.values()])


def _ready(epoll: select.epoll, missing: Callable[[], int]) -> Iterable[int]:
    """Descriptors as they become ready, until nothing is missing, or for a while no less."""
    last, left = time.monotonic(), missing()
    while left and (wait_s := last + QUIET_S - time.monotonic()) > 0:
        for descriptor, _ in epoll.poll(wait_s):
            yield descriptor
        before, left = left, missing()
        if left < before:
            last = time.monotonic()


def _poll(descriptors: Iterable[int], events: int = select.EPOLLIN) -> select.epoll:
    epoll = select.epoll()
    for descriptor in descriptors:
        epoll.register(descriptor, events)
    return epoll


def _in_nodes(
    lab: str, nics: Iterable[PortPlan], make: Callable[[PortPlan], socket.socket]
) -> Mapping[tuple[str, str], socket.socket]:
    """A socket for each NIC, made inside its node."""
    by_place = {(nic.node, nic.name): nic for nic in nics}
    return open_inside(lab, {place: place[0] for place in by_place}, lambda place: make(by_place[place]))


def _socket(kind: int, ipv6: bool, protocol: int = 0) -> socket.socket:
    family = socket.AF_INET6 if ipv6 else socket.AF_INET
    return socket.socket(family, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, protocol)


def _listener(nic: PortPlan, *, port: int, ipv6: bool) -> socket.socket:
    item = _socket(socket.SOCK_STREAM, ipv6)
    item.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    item.bind((_address(nic, ipv6), port))
    item.listen(1024)
    return item


def _udp_socket(nic: PortPlan, *, port: int = 0, ipv6: bool) -> socket.socket:
    item = _socket(socket.SOCK_DGRAM, ipv6)
    item.bind((_address(nic, ipv6), port))
    return item


def _icmp_socket(nic: PortPlan, *, ipv6: bool) -> socket.socket:
    item = _socket(socket.SOCK_RAW, ipv6, socket.IPPROTO_ICMPV6 if ipv6 else socket.IPPROTO_ICMP)
    item.bind((_address(nic, ipv6), 0))
    return item


def _echo_request(payload: bytes, *, ipv6: bool) -> bytes:
    """An echo request; the kernel makes the checksum of ICMPv6, which goes over the addresses, too."""
    kind = _ECHO6_REQUEST if ipv6 else _ECHO_REQUEST
    header = struct.pack("!BBHHH", kind, 0, 0, os.getpid() & 0xFFFF, 1)
    return header[:2] + struct.pack("!H", checksum(header + payload)) + header[4:] + payload


def _address(nic: PortPlan, ipv6: bool) -> str:
    address = nic.address6 if ipv6 else nic.address
    assert address is not None
    return str(address.ip)


def _close(items: Iterable[socket.socket]) -> None:
    with contextlib.ExitStack() as stack:
        for item in items:
            stack.callback(item.close)
