"""Netlink messages of an overlay: VXLAN devices, their bridge ports, and neighbours; and the tables that EVPN fills.

Formats: linux/if_link.h (IFLA_VXLAN_..., IFLA_BRPORT_...), linux/neighbour.h.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING

from testbed.base.linux import rtnetlink
from testbed.base.linux.routes import RouteMonitor
from testbed.base.linux.rtnetlink import RouteSocket, attribute, message, text, u32
from testbed.daemons.keeper.vrfs import BEYOND, EntryKind, ExpectedEntry

if TYPE_CHECKING:
    from testbed.lab.core.plan.operations import SetBridgePort
    from testbed.lab.features.overlay.plan.device_operations import CreateVrfDevice, CreateVxlan

VXLAN_PORT = 4789
"""The UDP port that VTEPs listen at (RFC 7348 section 5)."""
_RTM_SETLINK, _RTM_DELNEIGH = 19, 29
_IFLA_PROTINFO = 12
_IFLA_BRPORT_LEARNING, _IFLA_BRPORT_NEIGH_SUPPRESS, _IFLA_BRPORT_ISOLATED = 8, 32, 33
_NESTED = 0x8000
_IFLA_VXLAN_ID, _IFLA_VXLAN_LOCAL, _IFLA_VXLAN_TOS, _IFLA_VXLAN_LEARNING, _IFLA_VXLAN_PORT = 1, 4, 6, 7, 15
_INHERIT = b"\1"
"""As TOS: the outer header has the DSCP of the inner one, and so the packet its class on the fabric (RFC 2983).

Another TOS is that of all packets; the ECN field is the inner one's in either case (RFC 6040).
"""
_NDA_DST, _NDA_LLADDR = 1, 2
_NTF_USE, _NTF_EXT_LEARNED = 0x01, 0x10
_NUD_NONE, _NUD_INCOMPLETE, _NUD_PROBE, _NUD_FAILED, _NUD_PERMANENT = 0x00, 0x01, 0x10, 0x20, 0x80
_NLM_F_REPLACE = 0x100
_IFLA_VRF_TABLE = 1
_RTM_DELRULE = 33
_RT_TABLE_LOCAL = 255
_RTN_UNREACHABLE = 7
_LAST_METRIC = 4278198272
"""What zebra takes for a distance of 255, "unknown": the kernel tries all other routes first (vrf.rst of Linux)."""
_LOCAL_PRIORITY = 32765
_RTA_VIA = 18
_LINK_LOCAL = struct.pack("=H", socket.AF_INET6) + b"\xfe\x80"
"""How an RTA_VIA begins (struct rtvia of linux/rtnetlink.h) whose address is link-local."""

_Address = IPv4Address | IPv6Address
_Network = IPv4Network | IPv6Network

_IFINFOMSG = struct.Struct("=BxHiII")
_NDMSG = struct.Struct("=BxxxiHBB")
_RTMSG = struct.Struct("=BBBBBBBBI")
_RTNEXTHOP = struct.Struct("=HBBi")


def new_vxlan(operation: CreateVxlan, namespace: int) -> bytes:
    """A VXLAN device made in place in the network namespace that the descriptor `namespace` is of.

    Must be sent from the switch's namespace: the device's UDP socket stays there. (One that is made first and moved
    later costs an RCU grace period.)
    """
    options = (
        u32(_IFLA_VXLAN_ID, operation.vni)
        + attribute(_IFLA_VXLAN_LOCAL, operation.local.packed)
        + attribute(_IFLA_VXLAN_TOS, _INHERIT if operation.dscp is None else bytes([operation.dscp << 2]))
        + attribute(_IFLA_VXLAN_LEARNING, b"\0")
        + attribute(_IFLA_VXLAN_PORT, struct.pack("!H", VXLAN_PORT))
    )
    info = text(rtnetlink.IFLA_INFO_KIND, "vxlan") + attribute(rtnetlink.IFLA_INFO_DATA, options)
    body = (
        _IFINFOMSG.pack(0, 0, operation.ifindex, 0, 0)
        + text(rtnetlink.IFLA_IFNAME, operation.name)
        + attribute(rtnetlink.IFLA_ADDRESS, rtnetlink.mac_bytes(operation.mac))
        + u32(rtnetlink.IFLA_MTU, operation.mtu_bytes)
        + u32(rtnetlink.IFLA_NET_NS_FD, namespace)
        + u32(rtnetlink.IFLA_MASTER, operation.master)
        + attribute(rtnetlink.IFLA_LINKINFO, info)
    )
    return message(rtnetlink.RTM_NEWLINK, rtnetlink.NLM_F_CREATE | rtnetlink.NLM_F_EXCL, body)


def new_vrf(operation: CreateVrfDevice) -> tuple[bytes, ...]:
    """`ip link add NAME type vrf table TABLE`, and an unreachable default route that all others in it come before."""
    info = text(rtnetlink.IFLA_INFO_KIND, "vrf")
    info += attribute(rtnetlink.IFLA_INFO_DATA, u32(_IFLA_VRF_TABLE, operation.table))
    body = _IFINFOMSG.pack(0, 0, operation.ifindex, 0, 0) + text(rtnetlink.IFLA_IFNAME, operation.name)
    link = body + attribute(rtnetlink.IFLA_LINKINFO, info)
    where = u32(rtnetlink.RTA_TABLE, operation.table) + u32(rtnetlink.RTA_PRIORITY, _LAST_METRIC)
    flags = rtnetlink.NLM_F_CREATE | rtnetlink.NLM_F_EXCL
    return (
        message(rtnetlink.RTM_NEWLINK, flags, link),
        *(
            message(
                rtnetlink.RTM_NEWROUTE,
                flags,
                _RTMSG.pack(family, 0, 0, 0, 0, rtnetlink.RTPROT_STATIC, 0, _RTN_UNREACHABLE, 0) + where,
            )
            for family in _families(operation.ipv6)
        ),
    )


def prefer_vrfs(*, ipv6: bool = False) -> tuple[bytes, ...]:
    """`ip rule add pref 32765 lookup local`, and `ip rule del pref 0`: the rule of VRF devices, 1000, is before it.

    `ipv6`: and the same of `ip -6`.
    """
    flags = rtnetlink.NLM_F_CREATE | rtnetlink.NLM_F_EXCL
    found: list[bytes] = []
    for family in _families(ipv6):
        rule = _RTMSG.pack(family, 0, 0, 0, _RT_TABLE_LOCAL, 0, 0, rtnetlink.FR_ACT_TO_TBL, 0)
        found.append(message(rtnetlink.RTM_NEWRULE, flags, rule + u32(rtnetlink.FRA_PRIORITY, _LOCAL_PRIORITY)))
        found.append(message(_RTM_DELRULE, 0, rule + u32(rtnetlink.FRA_PRIORITY, 0)))
    return tuple(found)


def _families(ipv6: bool) -> tuple[int, ...]:
    return (socket.AF_INET, socket.AF_INET6) if ipv6 else (socket.AF_INET,)


def set_bridge_port(operation: SetBridgePort) -> bytes:
    """`bridge link set dev NAME learning ... neigh_suppress ... isolated ...`."""
    flags = attribute(_IFLA_BRPORT_LEARNING, bytes([operation.learning]))
    flags += attribute(_IFLA_BRPORT_NEIGH_SUPPRESS, bytes([operation.neighbour_suppression]))
    if operation.isolated:
        flags += attribute(_IFLA_BRPORT_ISOLATED, b"\1")
    body = _IFINFOMSG.pack(socket.AF_BRIDGE, 0, operation.ifindex, 0, 0)
    return message(_RTM_SETLINK, 0, body + attribute(_IFLA_PROTINFO | _NESTED, flags))


def use_neighbour(ifindex: int, address: _Address) -> bytes:
    """`ip neigh replace ADDRESS dev ... use`: the kernel asks for the neighbour as if a packet were to go there.

    In IPv6 it asks from the link-local address.
    """
    body = _NDMSG.pack(_family(address), ifindex, _NUD_NONE, _NTF_USE, 0) + attribute(_NDA_DST, address.packed)
    return message(rtnetlink.RTM_NEWNEIGH, rtnetlink.NLM_F_CREATE, body)


def _family(address: _Address) -> int:
    return rtnetlink.family_of(address.packed)


def permanent_neighbour(ifindex: int, address: _Address, mac: str) -> bytes:
    """`ip neigh replace ADDRESS lladdr MAC dev ... nud permanent`."""
    body = _NDMSG.pack(_family(address), ifindex, _NUD_PERMANENT, 0, 0)
    body += attribute(_NDA_DST, address.packed) + attribute(_NDA_LLADDR, rtnetlink.mac_bytes(mac))
    return message(rtnetlink.RTM_NEWNEIGH, rtnetlink.NLM_F_CREATE, body)


def probe_neighbour(ifindex: int, address: _Address, mac: str) -> bytes:
    """`ip neigh replace ADDRESS lladdr MAC dev ... nud probe`: the kernel asks the neighbour whether it is there.

    All who listen are told of the neighbour, too.
    """
    body = _NDMSG.pack(_family(address), ifindex, _NUD_PROBE, 0, 0) + attribute(_NDA_DST, address.packed)
    body += attribute(_NDA_LLADDR, rtnetlink.mac_bytes(mac))
    return message(rtnetlink.RTM_NEWNEIGH, rtnetlink.NLM_F_CREATE | _NLM_F_REPLACE, body)


def forget_neighbour(ifindex: int, address: _Address) -> bytes:
    """`ip neigh del ADDRESS dev ...`."""
    body = _NDMSG.pack(_family(address), ifindex, _NUD_NONE, 0, 0) + attribute(_NDA_DST, address.packed)
    return message(_RTM_DELNEIGH, 0, body)


@dataclass(frozen=True, slots=True, kw_only=True)
class VrfTables:
    """What the kernel has of the VRFs in a namespace. MACs are text; `learned` are the neighbours and MACs that a
    daemon has brought.

    `fdb` has (interface index, MAC, VTEP), `neighbours` the MAC of each (interface index, address), and `routes` the
    next hops of each (table, prefix) as (gateway, interface index). A gateway of IPv6 that maps an address of IPv4 is
    that one, which is a VTEP.
    """

    fdb: frozenset[tuple[int, str, IPv4Address]]
    neighbours: Mapping[tuple[int, _Address], str]
    learned: frozenset[tuple[int, _Address]]
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
    neighbours: dict[tuple[int, _Address], str] = {}
    learned: set[tuple[int, _Address]] = set()
    routes: dict[tuple[int, _Network], frozenset[tuple[IPv4Address, int]]] = {}
    for family in _families(ipv6):
        for body in route.dump(rtnetlink.RTM_GETNEIGH, _NDMSG.pack(family, 0, 0, 0, 0)):
            _, ifindex, state, flags, _ = _NDMSG.unpack_from(body)
            fields = {kind: bytes(payload) for kind, payload in rtnetlink.attributes(body, _NDMSG.size)}
            if _NDA_DST not in fields or _NDA_LLADDR not in fields:
                continue
            if state & (_NUD_INCOMPLETE | _NUD_FAILED) or not state:
                continue
            key = (ifindex, ip_address(fields[_NDA_DST]))
            neighbours[key] = fields[_NDA_LLADDR].hex(":")
            if flags & _NTF_EXT_LEARNED:
                learned.add(key)
        routes |= _routes(route, family)
    return VrfTables(fdb=frozenset(_fdb(route)), neighbours=neighbours, learned=frozenset(learned), routes=routes)


def _fdb(route: RouteSocket) -> set[tuple[int, str, IPv4Address]]:
    """The entries of VXLAN devices; those of bridges have no VTEP."""
    found = set()
    for body in route.dump(rtnetlink.RTM_GETNEIGH, _IFINFOMSG.pack(socket.AF_BRIDGE, 0, 0, 0, 0)):
        ifindex = _NDMSG.unpack_from(body)[1]
        fields = {kind: bytes(payload) for kind, payload in rtnetlink.attributes(body, _NDMSG.size)}
        if len(fields.get(_NDA_DST, b"")) == 4 and _NDA_LLADDR in fields:
            found.add((ifindex, fields[_NDA_LLADDR].hex(":"), IPv4Address(fields[_NDA_DST])))
    return found


def _routes(route: RouteSocket, family: int) -> dict[tuple[int, _Network], frozenset[tuple[IPv4Address, int]]]:
    """The routes of BGP in all tables."""
    found: dict[tuple[int, _Network], frozenset[tuple[IPv4Address, int]]] = {}
    nowhere = bytes(16 if family == socket.AF_INET6 else 4)
    request = _RTMSG.pack(family, 0, 0, 0, 0, 0, 0, 0, 0)
    for body in route.dump(rtnetlink.RTM_GETROUTE, request):
        if body[5] != rtnetlink.RTPROT_BGP:
            continue
        fields = {kind: bytes(payload) for kind, payload in rtnetlink.attributes(body, _RTMSG.size)}
        table = int.from_bytes(fields[rtnetlink.RTA_TABLE], "little") if rtnetlink.RTA_TABLE in fields else body[4]
        prefix = ip_network((fields.get(rtnetlink.RTA_DST, nowhere), body[1]))
        # In IPv6 each next hop of a route may be told of as a route of its own.
        found[table, prefix] = found.get((table, prefix), frozenset()) | _next_hops(fields)
    return found


def _next_hops(fields: Mapping[int, bytes]) -> set[tuple[IPv4Address, int]]:
    if (many := fields.get(rtnetlink.RTA_MULTIPATH)) is None:
        gateway, interface = _gateway(fields), fields.get(rtnetlink.RTA_OIF)
        if gateway is None or interface is None:
            return set()
        return {(gateway, int.from_bytes(interface, "little"))}
    hops = set()
    offset = 0
    while offset + _RTNEXTHOP.size <= len(many):
        length, _, _, ifindex = _RTNEXTHOP.unpack_from(many, offset)
        if length < _RTNEXTHOP.size or offset + length > len(many):
            break
        one = {
            kind: bytes(value) for kind, value in rtnetlink.attributes(many[offset : offset + length], _RTNEXTHOP.size)
        }
        if (gateway := _gateway(one)) is not None:
            hops.add((gateway, ifindex))
        offset += (length + 3) & ~3
    return hops


def _gateway(fields: Mapping[int, bytes]) -> IPv4Address | None:
    """The gateway of a next hop. A link-local one of IPv6, as FRR from 10 on gives it, is `BEYOND`."""
    if len(gateway := fields.get(rtnetlink.RTA_GATEWAY, b"")) == 4:
        return IPv4Address(gateway)
    if len(gateway) == 16:
        return IPv6Address(gateway).ipv4_mapped
    return BEYOND if fields.get(_RTA_VIA, b"").startswith(_LINK_LOCAL) else None


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
        self._socket.hear_only((_RTM_DELNEIGH, rtnetlink.RTM_NEWROUTE))

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
                found |= kind == rtnetlink.RTM_NEWROUTE or _NDMSG.unpack_from(body)[1] in self._indexes

    def close(self) -> None:
        self._socket.close()
