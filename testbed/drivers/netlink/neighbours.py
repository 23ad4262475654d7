"""Neighbours and forwarding tables of bridges in a namespace (rtnetlink(7), struct ndmsg)."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address

from testbed.drivers.netlink.rtnetlink import RouteSocket, attribute, attributes, mac_bytes, message

RTM_DELNEIGH, RTM_GETNEIGH = 29, 30
_AF_INET, _AF_BRIDGE = 2, 7
_NDA_DST, _NDA_LLADDR = 1, 2
_NTF_MASTER = 0x04
_PERMANENT = 0x80
_NDMSG = struct.Struct("=BxxxiHBB")

Stations = dict[tuple[int, str], bool]
"""Interface index and MAC of what a bridge knows behind its ports; whether it has learnt it, and was not told."""


def read_neighbours(route: RouteSocket) -> dict[tuple[int, IPv4Address], str]:
    """The MAC of each IPv4 neighbour by interface index and address; "" where it is not known."""
    found: dict[tuple[int, IPv4Address], str] = {}
    for body in route.dump(RTM_GETNEIGH, _NDMSG.pack(_AF_INET, 0, 0, 0, 0)):
        _, ifindex, _, _, _ = _NDMSG.unpack_from(body)
        fields = {kind: bytes(value) for kind, value in attributes(body, _NDMSG.size)}
        if len(fields.get(_NDA_DST, b"")) == 4:
            found[ifindex, IPv4Address(fields[_NDA_DST])] = fields.get(_NDA_LLADDR, b"").hex(":")
    return found


def read_stations(route: RouteSocket) -> Stations:
    """The forwarding tables of all bridges in the namespace."""
    found: Stations = {}
    for body in route.dump(RTM_GETNEIGH, _NDMSG.pack(_AF_BRIDGE, 0, 0, 0, 0)):
        family, ifindex, state, _, _ = _NDMSG.unpack_from(body)
        fields = {kind: bytes(value) for kind, value in attributes(body, _NDMSG.size)}
        if family == _AF_BRIDGE and len(fields.get(_NDA_LLADDR, b"")) == 6:
            found[ifindex, fields[_NDA_LLADDR].hex(":")] = not state & _PERMANENT
    return found


def forget_neighbour(ifindex: int, address: IPv4Address) -> bytes:
    """The message that removes a neighbour, which is asked for anew when it is needed."""
    return message(RTM_DELNEIGH, 0, _NDMSG.pack(_AF_INET, ifindex, 0, 0, 0) + attribute(_NDA_DST, address.packed))


def forget_station(ifindex: int, mac: str) -> bytes:
    """The message that removes what a bridge knows behind one of its ports."""
    body = _NDMSG.pack(_AF_BRIDGE, ifindex, 0, _NTF_MASTER, 0)
    return message(RTM_DELNEIGH, 0, body + attribute(_NDA_LLADDR, mac_bytes(mac)))
