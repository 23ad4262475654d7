"""Netlink messages of an overlay: VXLAN devices, their bridge ports, and neighbours; and the tables that EVPN fills.

Formats: linux/if_link.h (IFLA_VXLAN_..., IFLA_BRPORT_...), linux/neighbour.h.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from testbed.drivers.netlink import rtnetlink
from testbed.drivers.netlink.routes import RouteMonitor
from testbed.drivers.netlink.rtnetlink import RouteSocket, attribute, message, text, u32
from testbed.model.overlay import VXLAN_PORT
from testbed.plan.operations import CreateVxlan, SetBridgePort
from testbed.plan.overlay.vrfs import EntryKind, ExpectedEntry

_RTM_SETLINK, _RTM_DELNEIGH = 19, 29
_IFLA_PROTINFO = 12
_IFLA_BRPORT_LEARNING, _IFLA_BRPORT_NEIGH_SUPPRESS = 8, 32
_NESTED = 0x8000
_IFLA_VXLAN_ID, _IFLA_VXLAN_LOCAL, _IFLA_VXLAN_TOS, _IFLA_VXLAN_LEARNING, _IFLA_VXLAN_PORT = 1, 4, 6, 7, 15
_INHERIT = b"\1"
"""As TOS: the outer header has the DSCP of the inner one, and so the packet its class on the fabric (RFC 2983)."""
_NDA_DST, _NDA_LLADDR = 1, 2
_NTF_USE, _NTF_EXT_LEARNED = 0x01, 0x10
_NUD_NONE, _NUD_INCOMPLETE, _NUD_PROBE, _NUD_FAILED, _NUD_PERMANENT = 0x00, 0x01, 0x10, 0x20, 0x80
_NLM_F_REPLACE = 0x100

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
        + attribute(_IFLA_VXLAN_TOS, _INHERIT)
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


def set_bridge_port(operation: SetBridgePort) -> bytes:
    """`bridge link set dev NAME learning ... neigh_suppress ...`."""
    flags = attribute(_IFLA_BRPORT_LEARNING, bytes([operation.learning]))
    flags += attribute(_IFLA_BRPORT_NEIGH_SUPPRESS, bytes([operation.neighbour_suppression]))
    body = _IFINFOMSG.pack(socket.AF_BRIDGE, 0, operation.ifindex, 0, 0)
    return message(_RTM_SETLINK, 0, body + attribute(_IFLA_PROTINFO | _NESTED, flags))


def use_neighbour(ifindex: int, address: IPv4Address) -> bytes:
    """`ip neigh replace ADDRESS dev ... use`: the kernel asks for the neighbour as if a packet were to go there."""
    body = _NDMSG.pack(socket.AF_INET, ifindex, _NUD_NONE, _NTF_USE, 0) + attribute(_NDA_DST, address.packed)
    return message(rtnetlink.RTM_NEWNEIGH, rtnetlink.NLM_F_CREATE, body)


def permanent_neighbour(ifindex: int, address: IPv4Address, mac: str) -> bytes:
    """`ip neigh replace ADDRESS lladdr MAC dev ... nud permanent`."""
    body = _NDMSG.pack(socket.AF_INET, ifindex, _NUD_PERMANENT, 0, 0)
    body += attribute(_NDA_DST, address.packed) + attribute(_NDA_LLADDR, rtnetlink.mac_bytes(mac))
    return message(rtnetlink.RTM_NEWNEIGH, rtnetlink.NLM_F_CREATE, body)


def probe_neighbour(ifindex: int, address: IPv4Address, mac: str) -> bytes:
    """`ip neigh replace ADDRESS lladdr MAC dev ... nud probe`: the kernel asks the neighbour whether it is there.

    All who listen are told of the neighbour, too.
    """
    body = _NDMSG.pack(socket.AF_INET, ifindex, _NUD_PROBE, 0, 0) + attribute(_NDA_DST, address.packed)
    body += attribute(_NDA_LLADDR, rtnetlink.mac_bytes(mac))
    return message(rtnetlink.RTM_NEWNEIGH, rtnetlink.NLM_F_CREATE | _NLM_F_REPLACE, body)


def forget_neighbour(ifindex: int, address: IPv4Address) -> bytes:
    """`ip neigh del ADDRESS dev ...`."""
    body = _NDMSG.pack(socket.AF_INET, ifindex, _NUD_NONE, 0, 0) + attribute(_NDA_DST, address.packed)
    return message(_RTM_DELNEIGH, 0, body)


@dataclass(frozen=True, slots=True, kw_only=True)
class VrfTables:
    """What the kernel has of a VRF. MACs are text; `learned` are the neighbours and MACs that a daemon has brought.

    `fdb` has (interface index, MAC, VTEP), `neighbours` the MAC of each (interface index, address), and `routes` the
    next hops of each prefix as (gateway, interface index).
    """

    fdb: frozenset[tuple[int, str, IPv4Address]]
    neighbours: Mapping[tuple[int, IPv4Address], str]
    learned: frozenset[tuple[int, IPv4Address]]
    routes: Mapping[IPv4Network, frozenset[tuple[IPv4Address, int]]]

    def has(self, entry: ExpectedEntry) -> bool:
        """Tell whether an expected entry is there."""
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
                hops = self.routes.get(entry.prefix, frozenset())
                return bool(hops) and hops <= {(vtep, entry.ifindex) for vtep in entry.vteps}


def read_tables(route: RouteSocket) -> VrfTables:
    """The tables of the VRF whose namespace `route` is of."""
    neighbours: dict[tuple[int, IPv4Address], str] = {}
    learned: set[tuple[int, IPv4Address]] = set()
    for body in route.dump(rtnetlink.RTM_GETNEIGH, _NDMSG.pack(socket.AF_INET, 0, 0, 0, 0)):
        _, ifindex, state, flags, _ = _NDMSG.unpack_from(body)
        fields = {kind: bytes(payload) for kind, payload in rtnetlink.attributes(body, _NDMSG.size)}
        if _NDA_DST not in fields or _NDA_LLADDR not in fields or state & (_NUD_INCOMPLETE | _NUD_FAILED) or not state:
            continue
        key = (ifindex, IPv4Address(fields[_NDA_DST]))
        neighbours[key] = fields[_NDA_LLADDR].hex(":")
        if flags & _NTF_EXT_LEARNED:
            learned.add(key)
    return VrfTables(
        fdb=frozenset(_fdb(route)), neighbours=neighbours, learned=frozenset(learned), routes=_routes(route)
    )


def _fdb(route: RouteSocket) -> set[tuple[int, str, IPv4Address]]:
    """The entries of VXLAN devices; those of bridges have no VTEP."""
    found = set()
    for body in route.dump(rtnetlink.RTM_GETNEIGH, _IFINFOMSG.pack(socket.AF_BRIDGE, 0, 0, 0, 0)):
        ifindex = _NDMSG.unpack_from(body)[1]
        fields = {kind: bytes(payload) for kind, payload in rtnetlink.attributes(body, _NDMSG.size)}
        if len(fields.get(_NDA_DST, b"")) == 4 and _NDA_LLADDR in fields:
            found.add((ifindex, fields[_NDA_LLADDR].hex(":"), IPv4Address(fields[_NDA_DST])))
    return found


def _routes(route: RouteSocket) -> dict[IPv4Network, frozenset[tuple[IPv4Address, int]]]:
    """The routes of BGP in the main table."""
    found = {}
    request = _RTMSG.pack(socket.AF_INET, 0, 0, 0, rtnetlink.RT_TABLE_MAIN, 0, 0, 0, 0)
    for body in route.dump(rtnetlink.RTM_GETROUTE, request):
        if body[4] != rtnetlink.RT_TABLE_MAIN or body[5] != rtnetlink.RTPROT_BGP:
            continue
        fields = {kind: bytes(payload) for kind, payload in rtnetlink.attributes(body, _RTMSG.size)}
        prefix = IPv4Network((fields.get(rtnetlink.RTA_DST, bytes(4)), body[1]))
        found[prefix] = frozenset(_next_hops(fields))
    return found


def _next_hops(fields: Mapping[int, bytes]) -> set[tuple[IPv4Address, int]]:
    if (many := fields.get(rtnetlink.RTA_MULTIPATH)) is None:
        gateway, interface = fields.get(rtnetlink.RTA_GATEWAY), fields.get(rtnetlink.RTA_OIF)
        if gateway is None or interface is None:
            return set()
        return {(IPv4Address(gateway), int.from_bytes(interface, "little"))}
    hops = set()
    offset = 0
    while offset + _RTNEXTHOP.size <= len(many):
        length, _, _, ifindex = _RTNEXTHOP.unpack_from(many, offset)
        if length < _RTNEXTHOP.size or offset + length > len(many):
            break
        for kind, payload in rtnetlink.attributes(many[offset : offset + length], _RTNEXTHOP.size):
            if kind == rtnetlink.RTA_GATEWAY and len(payload) == 4:
                hops.add((IPv4Address(bytes(payload)), ifindex))
        offset += (length + 3) & ~3
    return hops


class VrfMonitor(RouteMonitor):
    """Notice that a VRF's neighbours, FDB or routes changed. Made by a thread inside its namespace."""

    GROUPS = (rtnetlink.RTNLGRP_NEIGH, rtnetlink.RTNLGRP_IPV4_ROUTE)
