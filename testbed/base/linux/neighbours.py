"""Neighbours and forwarding tables of bridges in a namespace (rtnetlink(7), struct ndmsg)."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv6Address, ip_address

from testbed.base.linux.rtnetlink import (
    NLM_F_CREATE,
    RouteSocket,
    attribute,
    attributes,
    family_of,
    mac_bytes,
    message,
)

RTM_NEWNEIGH, RTM_DELNEIGH, RTM_GETNEIGH = 28, 29, 30
_AF_INET, _AF_BRIDGE, _AF_INET6 = 2, 7, 10
_NDA_DST, _NDA_LLADDR = 1, 2
_NTF_MASTER = 0x04
_NLM_F_REPLACE = 0x100
_REACHABLE, _PERMANENT = 0x02, 0x80
_NDMSG = struct.Struct("=BxxxiHBB")

Address = IPv4Address | IPv6Address
Stations = dict[tuple[int, str], bool]
"""Interface index and MAC of what a bridge knows behind its ports; whether it has learnt it, and was not told."""


def read_neighbours(route: RouteSocket) -> dict[tuple[int, Address], str]:
    """The MAC of each neighbour, of IPv4 and IPv6, by interface index and address; "" where it is not known."""
    found: dict[tuple[int, Address], str] = {}
    for family in (_AF_INET, _AF_INET6):
        for body in route.dump(RTM_GETNEIGH, _NDMSG.pack(family, 0, 0, 0, 0)):
            _, ifindex, _, _, _ = _NDMSG.unpack_from(body)
            fields = {kind: bytes(value) for kind, value in attributes(body, _NDMSG.size)}
            if len(fields.get(_NDA_DST, b"")) in (4, 16):
                found[ifindex, ip_address(fields[_NDA_DST])] = fields.get(_NDA_LLADDR, b"").hex(":")
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


def forget_neighbour(ifindex: int, address: Address) -> bytes:
    """The message that removes a neighbour, which is asked for anew when it is needed."""
    body = _NDMSG.pack(family_of(address.packed), ifindex, 0, 0, 0)
    return message(RTM_DELNEIGH, 0, body + attribute(_NDA_DST, address.packed))


def hear_neighbour(ifindex: int, address: Address, mac: str) -> bytes:
    """The message that has a neighbour be as if it had just answered."""
    body = _NDMSG.pack(family_of(address.packed), ifindex, _REACHABLE, 0, 0)
    body += attribute(_NDA_DST, address.packed) + attribute(_NDA_LLADDR, mac_bytes(mac))
    return message(RTM_NEWNEIGH, NLM_F_CREATE | _NLM_F_REPLACE, body)


def forget_station(ifindex: int, mac: str) -> bytes:
    """The message that removes what a bridge knows behind one of its ports."""
    body = _NDMSG.pack(_AF_BRIDGE, ifindex, 0, _NTF_MASTER, 0)
    return message(RTM_DELNEIGH, 0, body + attribute(_NDA_LLADDR, mac_bytes(mac)))
