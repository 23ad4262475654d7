"""Tries whether the out-of-band network and the data networks are apart, by frames from every place that could send.

Each frame carries a datagram that is seen where it arrives, by a socket on the address that it is to: so what arrives
has got through, whether or not an answer would find its way back. All are sent at once, and beside them frames that
must arrive, from the server to each node and back: without them silence would say nothing.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from ipaddress import IPv4Address

from testbed.base.linux.rtnetlink import mac_bytes
from testbed.lab.checks.isolation.frames import BROADCAST, udp
from testbed.lab.checks.isolation.sites import find_bridges, next_host, some_of
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.check import FAILURES_KEPT, CheckResult, CheckStatus
from testbed.lab.core.drivers.nodes.inside import open_inside
from testbed.lab.core.drivers.nodes.raw_ports import Place, RawPorts
from testbed.lab.core.drivers.nodes.udp_prober import make_room
from testbed.lab.core.plan.lab_plan import LabPlan, PortPlan

QUIET_S = 1.0
"""After so long without an arrival the rest is taken for stopped: a neighbour is resolved within."""
MOST_PORTS = 128
"""The data ports that frames are sent from; of more ports an even choice is taken."""
_KEY_BYTES, _INDEX_BYTES = 8, 4
_FROM_PORT = 40000
_NOBODYS_MAC = bytes.fromhex("027e57be0d01")


class Way(StrEnum):
    """The ways between two ports that are tried, as reports call them."""

    MANAGED = "management"
    """Between the server and each node: this must arrive."""
    TO_SERVER = "data to the management server"
    TO_NODES = "data to management addresses"
    IN_ITS_NAME = "data in the name of the management server"
    TO_DATA = "management to data"
    BETWEEN = "node to node by management"
    POSING = "a node in the name of another"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """A datagram in a frame of its own, from a port, and where it would be seen: a node and its address."""

    way: Way
    origin: Place
    target_mac: bytes
    source_mac: bytes
    source: IPv4Address
    target: IPv4Address
    seen_at: str

    @property
    def observer(self) -> tuple[str, IPv4Address]:
        return self.seen_at, self.target

    def __str__(self) -> str:
        node, port = self.origin
        return f"{node}:{port} -> {self.target} of {self.seen_at}"


def check_management(lab: RunningLab) -> list[CheckResult]:
    """A result for each way, of which the first must be open and the others shut. Raises `DriverError`, `OSError`."""
    shots = management_shots(lab.plan)
    arrived = shoot(lab.name, shots)
    results = []
    for way in Way:
        mine = [index for index, shot in enumerate(shots) if shot.way is way]
        wrong = [shots[index] for index in mine if (index in arrived) != (way is Way.MANAGED)]
        if mine:
            results.append(_result(way, len(mine), wrong))
    return results


def _result(way: Way, count: int, wrong: Sequence[Shot]) -> CheckResult:
    meant, became = ("arrive", "lost") if way is Way.MANAGED else ("are stopped", "arrived")
    return CheckResult(
        name=way,
        status=CheckStatus.FAIL if wrong else CheckStatus.PASS,
        count=count,
        detail=f"{len(wrong)} of {count} datagrams {became}" if wrong else f"{count} datagrams {meant}, as planned",
        failures=tuple(f"{shot} {became}" for shot in wrong[:FAILURES_KEPT]),
    )


# ------------------------------------------------------------------ what is sent


def management_shots(plan: LabPlan) -> list[Shot]:
    """All that is tried in a lab; nothing where nodes have no management ports."""
    management = plan.management
    if management is None:
        return []
    ports = {port.node: port for port in plan.ports if port.network == management.network and port.address is not None}
    server = ports.pop(management.server)
    shots = [*_managed(server, ports), *_from_data(plan, server, ports), *_to_data(plan, server, ports)]
    if not management.switch:  # in band, where nodes are neighbours in one segment
        return shots
    return [*shots, *_between(server, list(ports.values())), *_posing(server, list(ports.values()))]


def _managed(server: PortPlan, ports: Mapping[str, PortPlan]) -> Iterator[Shot]:
    for port in ports.values():
        yield _shot(Way.MANAGED, server, mac_bytes(port.mac), _address(port), port.node)
        yield _shot(Way.MANAGED, port, mac_bytes(server.mac), _address(server), server.node)


def _from_data(plan: LabPlan, server: PortPlan, ports: Mapping[str, PortPlan]) -> Iterator[Shot]:
    """From each data port of a host: by its switch to the server and to another host, to the switch itself, and to a
    host in its segment."""
    ends = {f"{port.node}:{port.name}": port for port in plan.ports}
    masters, bridges = find_bridges(plan)
    nics = [
        nic
        for host in plan.hosts
        for nic in host.nics
        if nic.address is not None and nic.peer in ends and nic.network != server.network
    ]
    gateways = {nic.gateway for nic in nics}
    segments: dict[tuple[str, int], list[PortPlan]] = {}
    for nic in nics:
        port = ends[nic.peer]
        segments.setdefault((port.place, masters.get((port.place, port.ifindex), port.ifindex)), []).append(nic)
    for nic in some_of(nics, MOST_PORTS):
        port = ends[nic.peer]
        master = masters.get((port.place, port.ifindex), 0)
        switch_mac = mac_bytes(bridges.get((port.place, master), port.mac))
        yield _shot(Way.TO_SERVER, nic, switch_mac, _address(server), server.node)
        segment = segments[port.place, master or port.ifindex]
        near, far = next_host(nic, segment), next_host(nic, nics)
        if port.node in ports:
            yield _shot(Way.TO_NODES, nic, switch_mac, _address(ports[port.node]), port.node)
            if nic.gateway in gateways and nic.gateway is not None and not nic.tenant:
                yield _shot(Way.IN_ITS_NAME, nic, switch_mac, nic.gateway, port.node, source=_address(server))
        if far is not None:
            yield _shot(Way.TO_NODES, nic, switch_mac, _address(ports[far.node]), far.node)
        if near is not None:
            near_mac = mac_bytes(near.mac)
            yield _shot(Way.TO_NODES, nic, near_mac, _address(ports[near.node]), near.node)
            yield _shot(Way.IN_ITS_NAME, nic, near_mac, _address(near), near.node, source=_address(server))


def _to_data(plan: LabPlan, server: PortPlan, ports: Mapping[str, PortPlan]) -> Iterator[Shot]:
    """From the server to the other addresses of each node, and by each leaf to a host on it."""
    ends = {f"{port.node}:{port.name}": port for port in plan.ports}
    for speaker in (one for one in (*plan.switches, *plan.routed_hosts) if one.node in ports):
        yield _shot(Way.TO_DATA, server, mac_bytes(ports[speaker.node].mac), speaker.loopback.ip, speaker.node)
    behind: dict[str, PortPlan] = {}
    homed = {host.loopback.ip for host in plan.routed_hosts}
    for nic in (nic for host in plan.hosts for nic in host.nics if nic.address is not None):
        if nic.network == server.network or nic.node not in ports:
            continue
        if _address(nic) not in homed:
            yield _shot(Way.TO_DATA, server, mac_bytes(ports[nic.node].mac), _address(nic), nic.node)
        if nic.peer in ends and not nic.tenant:
            behind.setdefault(ends[nic.peer].node, nic)
    for switch, nic in behind.items():
        if switch in ports and switch != nic.node:
            yield _shot(Way.TO_DATA, server, mac_bytes(ports[switch].mac), _address(nic), nic.node)


def _between(server: PortPlan, ports: Sequence[PortPlan]) -> Iterator[Shot]:
    """From each node to the next: to its MAC, to everybody, and by the server."""
    for port in ports:
        other = next_host(port, ports)
        if other is not None:
            for mac in (mac_bytes(other.mac), BROADCAST, mac_bytes(server.mac)):
                yield _shot(Way.BETWEEN, port, mac, _address(other), other.node)


def _posing(server: PortPlan, ports: Sequence[PortPlan]) -> Iterator[Shot]:
    """From each node to the server, with the address of the next one, and with a MAC that is nobody's."""
    for port in ports:
        other = next_host(port, ports)
        to_server = (Way.POSING, port, mac_bytes(server.mac), _address(server), server.node)
        if other is not None:
            yield _shot(*to_server, source=_address(other))
        yield replace(_shot(*to_server), source_mac=_NOBODYS_MAC)


def _shot(
    way: Way, origin: PortPlan, mac: bytes, target: IPv4Address, seen_at: str, source: IPv4Address | None = None
) -> Shot:
    return Shot(
        way=way,
        origin=(origin.node, origin.name),
        target_mac=mac,
        source_mac=mac_bytes(origin.mac),
        source=_address(origin) if source is None else source,
        target=target,
        seen_at=seen_at,
    )


def _address(port: PortPlan) -> IPv4Address:
    assert port.address is not None
    return port.address.ip


# ------------------------------------------------------------------ sending it


def shoot(lab: str, shots: Sequence[Shot]) -> set[int]:
    """Send everything, and tell by index what arrived. Raises `DriverError`, `OSError`."""
    make_room(len({shot.origin for shot in shots}) + len({shot.observer for shot in shots}))
    key = os.urandom(_KEY_BYTES)
    places = {shot.observer: shot.seen_at for shot in sorted(shots, key=lambda shot: shot.observer)}
    observers = open_inside(lab, places, lambda observer: _observer(observer[1]))
    arrived: set[int] = set()
    with ExitStack() as stack:
        for item in observers.values():
            stack.callback(item.close)
        raw = stack.enter_context(closing(RawPorts(lab, dict.fromkeys(shot.origin for shot in shots))))
        epoll = stack.enter_context(closing(select.epoll()))
        for item in observers.values():
            epoll.register(item.fileno(), select.EPOLLIN)
        whose = {item.fileno(): (observer, item) for observer, item in observers.items()}
        for index, shot in enumerate(shots):
            port = observers[shot.observer].getsockname()[1]
            payload = key + index.to_bytes(_INDEX_BYTES, "big")
            macs = shot.target_mac, shot.source_mac
            raw.send(shot.origin, [udp(*macs, (shot.source, shot.target), (_FROM_PORT, port), payload)])
        last = time.monotonic()
        while (wait_s := last + QUIET_S - time.monotonic()) > 0:
            for descriptor, _ in epoll.poll(wait_s):
                observer, item = whose[descriptor]
                with suppress(BlockingIOError):
                    data = item.recv(_KEY_BYTES + _INDEX_BYTES)
                    index = int.from_bytes(data[_KEY_BYTES:], "big")
                    if data[:_KEY_BYTES] == key and index < len(shots) and shots[index].observer == observer:
                        arrived.add(index)
                        last = time.monotonic()
    return arrived


def _observer(address: IPv4Address) -> socket.socket:
    item = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    item.bind((str(address), 0))
    return item
