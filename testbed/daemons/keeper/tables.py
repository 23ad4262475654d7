"""The tables that EVPN fills in the VRFs of a network namespace, and notice of their changes (rtnetlink(7))."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

from testbed.base.linux import rtnetlink
from testbed.base.linux.neighbours import (
    NDMSG,
    NTF_EXT_LEARNED,
    NUD_FAILED,
    NUD_INCOMPLETE,
    RTM_DELNEIGH,
    Address,
    dump_neighbours,
)
from testbed.base.linux.routes import RouteMonitor
from testbed.base.linux.rtnetlink import RTMSG, RouteSocket, fields
from testbed.daemons.keeper.entries import BEYOND, EntryKind, ExpectedEntry

_LINK_LOCAL = struct.pack("=H", socket.AF_INET6) + b"\xfe\x80"
"""The first bytes of an RTA_VIA (struct rtvia of linux/rtnetlink.h) whose address is link-local."""
_Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True, kw_only=True)
class VrfTables:
    """The kernel's tables of the VRFs in a namespace. MACs are text; `learned` are the neighbours and MACs that a
    daemon has brought.

    `fdb` has (interface index, MAC, VTEP), `neighbours` the MAC of each (interface index, address), and `routes` the
    next hops of each (table, prefix) as (gateway, interface index). A gateway of IPv6 that maps an address of IPv4 is
    that one, which is a VTEP.
    """

    fdb: frozenset[tuple[int, str, IPv4Address]]
    neighbours: Mapping[tuple[int, Address], str]
    learned: frozenset[tuple[int, Address]]
    routes: Mapping[tuple[int, _Network], frozenset[tuple[IPv4Address, int]]]

    def has(self, entry: ExpectedEntry, table: int = rtnetlink.RT_TABLE_MAIN) -> bool:
        """Tell whether an expected entry of the VRF with this table is there."""
        match entry.kind:
            case EntryKind.FLOOD | EntryKind.MAC:
                return any((entry.ifindex, entry.mac, vtep) in self.fdb for vtep in entry.vteps)
            case EntryKind.HEARD:
                assert entry.address is not None
                return self.neighbours.get((entry.ifindex, entry.address)) == entry.mac
            case EntryKind.NEIGHBOUR:
                assert entry.address is not None
                key = (entry.ifindex, entry.address)
                return key in self.learned and self.neighbours.get(key) == entry.mac
            case EntryKind.ROUTE:
                assert entry.prefix is not None
                hops = self.routes.get((table, entry.prefix), frozenset())
                return bool(hops) and hops <= {(vtep, entry.ifindex) for vtep in entry.vteps}


def read_tables(route: RouteSocket, *, ipv6: bool = False) -> VrfTables:
    """The tables of the VRFs in the namespace that `route` is of; `ipv6`: with those of IPv6."""
    neighbours: dict[tuple[int, Address], str] = {}
    learned: set[tuple[int, Address]] = set()
    routes: dict[tuple[int, _Network], frozenset[tuple[IPv4Address, int]]] = {}
    families = (socket.AF_INET, socket.AF_INET6) if ipv6 else (socket.AF_INET,)
    for item in dump_neighbours(route, *families):
        if item.address is None or not item.mac or not item.state or item.state & (NUD_INCOMPLETE | NUD_FAILED):
            continue
        neighbours[item.ifindex, item.address] = item.mac
        if item.flags & NTF_EXT_LEARNED:
            learned.add((item.ifindex, item.address))
    for family in families:
        routes |= _routes(route, family)
    fdb = {  # entries of bridges have no VTEP
        (item.ifindex, item.mac, item.address)
        for item in dump_neighbours(route, socket.AF_BRIDGE)
        if isinstance(item.address, IPv4Address) and item.mac
    }
    return VrfTables(fdb=frozenset(fdb), neighbours=neighbours, learned=frozenset(learned), routes=routes)


def _routes(route: RouteSocket, family: int) -> dict[tuple[int, _Network], frozenset[tuple[IPv4Address, int]]]:
    """The routes of BGP in all tables."""
    found: dict[tuple[int, _Network], frozenset[tuple[IPv4Address, int]]] = {}
    nowhere = bytes(16 if family == socket.AF_INET6 else 4)
    request = RTMSG.pack(family, 0, 0, 0, 0, 0, 0, 0, 0)
    for body in route.dump(rtnetlink.RTM_GETROUTE, request):
        if body[5] != rtnetlink.RTPROT_BGP:
            continue
        item = fields(body, RTMSG.size)
        table = int.from_bytes(item[rtnetlink.RTA_TABLE], "little") if rtnetlink.RTA_TABLE in item else body[4]
        prefix = ip_network((item.get(rtnetlink.RTA_DST, nowhere), body[1]))
        # In IPv6 each next hop of a route may be told of as a route of its own.
        found[table, prefix] = found.get((table, prefix), frozenset()) | _next_hops(item)
    return found


def _next_hops(item: Mapping[int, bytes]) -> set[tuple[IPv4Address, int]]:
    if (many := item.get(rtnetlink.RTA_MULTIPATH)) is None:
        gateway, interface = _gateway(item), item.get(rtnetlink.RTA_OIF)
        if gateway is None or interface is None:
            return set()
        return {(gateway, int.from_bytes(interface, "little"))}
    found = ((_gateway(fields(hop)), ifindex) for ifindex, hop in rtnetlink.next_hops(many))
    return {(gateway, ifindex) for gateway, ifindex in found if gateway is not None}


def _gateway(item: Mapping[int, bytes]) -> IPv4Address | None:
    """The gateway of a next hop. A link-local one of IPv6, as FRR from 10 on gives it, is `BEYOND`."""
    if len(gateway := item.get(rtnetlink.RTA_GATEWAY, b"")) == 4:
        return IPv4Address(gateway)
    if len(gateway) == 16:
        return IPv6Address(gateway).ipv4_mapped
    return BEYOND if item.get(rtnetlink.RTA_VIA, b"").startswith(_LINK_LOCAL) else None


class VrfMonitor(RouteMonitor):
    """Notice that the neighbours, FDB or routes of a namespace's VRFs changed. Made by a thread inside of it."""

    GROUPS = (rtnetlink.RTNLGRP_NEIGH, rtnetlink.RTNLGRP_IPV4_ROUTE, rtnetlink.RTNLGRP_IPV6_ROUTE)


class RouterMonitor:
    """Notice that VRFs may have lost a router: a neighbour or an FDB entry went, or a route came.

    `indexes` are those of interfaces that have routers. Made by a thread inside of the VRFs' namespace. Whatever else
    changes there, such as neighbours that are heard of again and again, wakes nobody.
    """

    GROUPS = (rtnetlink.RTNLGRP_NEIGH, rtnetlink.RTNLGRP_IPV4_ROUTE, rtnetlink.RTNLGRP_IPV6_ROUTE)

    def __init__(self, indexes: Collection[int]) -> None:
        self._indexes = frozenset(indexes)
        self._socket = RouteSocket(groups=self.GROUPS)
        self._socket.hear_only((RTM_DELNEIGH, rtnetlink.RTM_NEWROUTE))

    def fileno(self) -> int:
        return self._socket.fileno()

    def drain(self) -> bool:
        """Read what is there, and tell whether a router may be lost; so it may where notices are (ENOBUFS)."""
        found = False
        while True:
            try:
                data = self._socket.receive_now()
            except BlockingIOError:
                return found
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                found = True
                continue
            for kind, _, _, body in rtnetlink.messages(data):
                found |= kind == rtnetlink.RTM_NEWROUTE or NDMSG.unpack_from(body)[1] in self._indexes

    def close(self) -> None:
        self._socket.close()
