"""A node's IPv4 routing table as the kernel has it, and notice of its changes."""

from __future__ import annotations

import errno
import socket
import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network, ip_address
from types import MappingProxyType
from typing import ClassVar, Protocol

from testbed.base.linux import rtnetlink
from testbed.base.linux.rtnetlink import RouteSocket

_REQUEST = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, rtnetlink.RT_TABLE_MAIN, 0, 0, 0, 0)
_ALL_TABLES = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, 0, 0, 0, 0, 0)

RouteKey = tuple[int, int]
"""(network address as an integer, prefix length)."""

PROTOCOL_NAMES = {2: "kernel", 3: "boot", 4: "static", 11: "zebra", 186: "bgp"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRoute:
    """A route of the main table. `interfaces` are ifindexes, one for each next hop, sorted."""

    prefix: IPv4Network
    protocol: str
    interfaces: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRoute:
    """A unicast route of any table but the local one. `gateways` are those of its next hops, which may have none.

    `sources` are the addresses whose packets a rule sends to the table; none: the rules name no source.
    """

    table: int
    sources: tuple[IPv4Address, ...]
    prefix: IPv4Network
    protocol: str
    gateways: tuple[str, ...]
    interfaces: tuple[int, ...]
    metric: int = 0


def table_routes(route: RouteSocket) -> list[TableRoute]:
    """The unicast routes of all tables, the main one first, with the sources that rules send to each."""
    sources: dict[int, list[IPv4Address]] = defaultdict(list)
    for body in route.dump(rtnetlink.RTM_GETRULE, _ALL_TABLES):
        rule = rtnetlink.fields(body, rtnetlink.RTMSG.size)
        if (packed := rule.get(rtnetlink.FRA_SRC)) and body[7] == rtnetlink.FR_ACT_TO_TBL:
            sources[_table(rule.get(rtnetlink.FRA_TABLE), body)].append(IPv4Address(packed))
    found = []
    for body in route.dump(rtnetlink.RTM_GETROUTE, _ALL_TABLES):
        item = rtnetlink.fields(body, rtnetlink.RTMSG.size)
        table = _table(item.get(rtnetlink.RTA_TABLE), body)
        if table == rtnetlink.RT_TABLE_LOCAL or body[7] != rtnetlink.RTN_UNICAST:
            continue
        several = rtnetlink.next_hops(item.get(rtnetlink.RTA_MULTIPATH, b""))
        hops = [(ifindex, rtnetlink.fields(inner)) for ifindex, inner in several]
        hops = hops or [(int.from_bytes(item.get(rtnetlink.RTA_OIF, b""), "little"), item)]
        found.append(
            TableRoute(
                table=table,
                sources=tuple(sources[table]),
                prefix=IPv4Network((item.get(rtnetlink.RTA_DST, bytes(4)), body[1])),
                protocol=PROTOCOL_NAMES.get(body[5], str(body[5])),
                gateways=tuple(dict.fromkeys(gateway for _, hop in hops if (gateway := _gateway(hop)))),
                interfaces=tuple(sorted(ifindex for ifindex, _ in hops if ifindex)),
                metric=int.from_bytes(item.get(rtnetlink.RTA_PRIORITY, b""), "little"),
            )
        )
    return sorted(found, key=lambda one: (one.table != rtnetlink.RT_TABLE_MAIN, one.table, one.prefix, one.metric))


def _table(written: bytes | None, body: memoryview) -> int:
    """The table of a route or a rule: its attribute, for one that the header has no room for, or the header's byte."""
    return int.from_bytes(written, "little") if written else body[4]


def _gateway(hop: Mapping[int, bytes]) -> str:
    """The gateway of a next hop, of IPv4 or IPv6 (RTA_VIA); "" for one on the link."""
    packed = hop.get(rtnetlink.RTA_GATEWAY) or hop.get(rtnetlink.RTA_VIA, b"")[2:]
    return str(ip_address(packed)) if packed else ""


def bgp_routes(route: RouteSocket) -> dict[RouteKey, tuple[int, ...]]:
    """The routes that BGP installed: outgoing interface indexes of each prefix, sorted."""
    found: dict[RouteKey, tuple[int, ...]] = {}
    for body in route.dump(rtnetlink.RTM_GETROUTE, _REQUEST):
        if body[5] != rtnetlink.RTPROT_BGP or body[4] != rtnetlink.RT_TABLE_MAIN:
            continue
        destination, interfaces = _parse(body)
        found[destination, body[1]] = interfaces
    return found


def bgp_weights(route: RouteSocket) -> dict[RouteKey, dict[int, int]]:
    """The weights of the routes that BGP installed with several next hops, by interface index: shares of flows."""
    found: dict[RouteKey, dict[int, int]] = {}
    for body in route.dump(rtnetlink.RTM_GETROUTE, _REQUEST):
        if body[5] != rtnetlink.RTPROT_BGP or body[4] != rtnetlink.RT_TABLE_MAIN:
            continue
        item = rtnetlink.fields(body, rtnetlink.RTMSG.size)
        hops = rtnetlink.weighted_next_hops(item.get(rtnetlink.RTA_MULTIPATH, b""))
        if weights := {ifindex: weight for ifindex, _, weight, _ in hops}:
            found[int.from_bytes(item.get(rtnetlink.RTA_DST, b""), "big"), body[1]] = weights
    return found


def main_routes(route: RouteSocket) -> list[KernelRoute]:
    """The unicast routes of the main table in order of prefix."""
    found = []
    for body in route.dump(rtnetlink.RTM_GETROUTE, _REQUEST):
        if body[7] == rtnetlink.RTN_UNICAST and body[4] == rtnetlink.RT_TABLE_MAIN:
            destination, interfaces = _parse(body)
            protocol = PROTOCOL_NAMES.get(body[5], str(body[5]))
            found.append(
                KernelRoute(prefix=IPv4Network((destination, body[1])), protocol=protocol, interfaces=interfaces)
            )
    return sorted(found, key=lambda item: item.prefix)


def _parse(body: memoryview) -> tuple[int, tuple[int, ...]]:
    destination = 0
    interfaces: list[int] = []
    for kind, payload in rtnetlink.attributes(body, 12):
        if kind == rtnetlink.RTA_DST:
            destination = int.from_bytes(payload, "big")
        elif kind == rtnetlink.RTA_OIF:
            interfaces.append(int.from_bytes(payload, "little"))
        elif kind == rtnetlink.RTA_MULTIPATH:
            interfaces += (ifindex for ifindex, _ in rtnetlink.next_hops(payload))
    return destination, tuple(sorted(interfaces))


def route_key(prefix: IPv4Network) -> RouteKey:
    return int(prefix.network_address), prefix.prefixlen


def key_text(key: RouteKey) -> str:
    return f"{IPv4Address(key[0])}/{key[1]}"


class RouteMonitor:
    """Notice that a namespace's IPv4 routes changed. Made by a thread inside that namespace."""

    GROUPS: ClassVar[tuple[int, ...]] = (rtnetlink.RTNLGRP_IPV4_ROUTE,)
    """The groups of rtnetlink whose notices it gets."""

    def __init__(self) -> None:
        self._socket = RouteSocket(groups=self.GROUPS)

    def fileno(self) -> int:
        return self._socket.fileno()

    def drain(self) -> bool:
        """Read what is there, and tell whether there was any; lost notices (ENOBUFS) count as one."""
        heard = False
        while True:
            try:
                self._socket.receive_now()
            except BlockingIOError:
                return heard
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
            heard = True

    def close(self) -> None:
        self._socket.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedRoute:
    """A planned route in kernel terms: `next_hops` of the interface indexes `interfaces`.

    `weights` are the shares of flows of these interfaces; empty where they are alike because nothing weighs them.
    """

    interfaces: frozenset[int]
    next_hops: int
    weights: Mapping[int, int] = field(default_factory=dict)

    def is_met_by(self, found: tuple[int, ...] | None) -> bool:
        return found is not None and len(found) == self.next_hops and self.interfaces.issuperset(found)

    def planned_weights(self, found: Mapping[int, int]) -> Mapping[int, int]:
        """Return the planned weights of the next hops that were found, in their order; where none are, all alike."""
        if self.weights:
            return {index: self.weights.get(index, weight) for index, weight in found.items()}
        return found if len(set(found.values())) == 1 else dict.fromkeys(found, 1)


class PlannedRoute(Protocol):
    """A route that BGP is to install: so many next hops, over some of these interfaces."""

    @property
    def prefix(self) -> IPv4Network: ...
    @property
    def interfaces(self) -> tuple[str, ...]: ...
    @property
    def next_hops(self) -> int: ...
    @property
    def weights(self) -> tuple[int, ...]: ...


def wanted_routes(
    expected: Iterable[PlannedRoute], indexes: Mapping[tuple[str, str], int], node: str
) -> dict[RouteKey, WantedRoute]:
    """The planned routes of `node`; `indexes` gives the interface index of (node, interface)."""
    found = {}
    for route in expected:
        interfaces = [indexes[node, name] for name in route.interfaces]
        weights = dict(zip(interfaces, route.weights, strict=True)) if route.weights else {}
        found[route_key(route.prefix)] = WantedRoute(
            interfaces=frozenset(interfaces), next_hops=route.next_hops, weights=weights
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Mismatch:
    """A planned route that the kernel lacks, or has with other next hops or weights; `found` is None where it lacks it.

    `weights` are those that it has and those that were planned, where only they differ.
    """

    found: int | None
    next_hops: int
    weights: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    def __str__(self) -> str:
        if self.found is None:
            return "is missing"
        if self.weights is not None:
            has, planned = ("/".join(map(str, each)) for each in self.weights)
            return f"has weights {has}, and {planned} were planned"
        if self.found == self.next_hops:
            return f"has {self.found} next hops over other interfaces than planned"
        return f"has {self.found} of {self.next_hops} next hops"


def difference(
    wanted: Mapping[RouteKey, WantedRoute],
    actual: Mapping[RouteKey, tuple[int, ...]],
    weights: Mapping[RouteKey, Mapping[int, int]] = MappingProxyType({}),
) -> dict[RouteKey, Mismatch]:
    """The planned routes that are not there as planned; `weights` are those that the kernel has (`bgp_weights`)."""
    found = {
        key: Mismatch(found=len(actual[key]) if key in actual else None, next_hops=route.next_hops)
        for key, route in wanted.items()
        if not route.is_met_by(actual.get(key))
    }
    for key, has in weights.items():
        if key in wanted and key not in found and has != (planned := wanted[key].planned_weights(has)):
            both = tuple(has.values()), tuple(planned.values())
            found[key] = Mismatch(found=len(has), next_hops=wanted[key].next_hops, weights=both)
    return found


def are_weighted(wanted: Mapping[RouteKey, WantedRoute]) -> bool:
    """Tell whether a next hop of any of these routes has a weight of its own."""
    return any(route.weights for route in wanted.values())
