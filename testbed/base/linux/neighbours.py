"""Neighbours and forwarding tables of bridges in a namespace (rtnetlink(7), struct ndmsg of linux/neighbour.h)."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from testbed.base.linux.rtnetlink import (
    NLM_F_CREATE,
    NLM_F_REPLACE,
    RouteSocket,
    attribute,
    fields,
    mac_bytes,
    message,
)

RTM_NEWNEIGH, RTM_DELNEIGH, RTM_GETNEIGH = 28, 29, 30
NUD_NONE, NUD_INCOMPLETE, NUD_REACHABLE, NUD_STALE, NUD_DELAY = 0x00, 0x01, 0x02, 0x04, 0x08
NUD_PROBE, NUD_FAILED, NUD_NOARP, NUD_PERMANENT = 0x10, 0x20, 0x40, 0x80
NTF_USE, NTF_MASTER, NTF_EXT_LEARNED = 0x01, 0x04, 0x10
NDMSG = struct.Struct("=BxxxiHBB")
_NDA_DST, _NDA_LLADDR = 1, 2

Address = IPv4Address | IPv6Address
Stations = dict[tuple[int, str], bool]
"""Interface index and MAC of what a bridge knows behind its ports; whether it has learnt it, and was not told."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An entry of a neighbour table, or with `family` AF_BRIDGE of a forwarding table; `mac` "": not known.

    `address` is that of the neighbour, and of an entry of a VXLAN device that of the VTEP.
    """

    family: int
    ifindex: int
    state: int
    flags: int
    address: Address | None
    mac: str


def parse_neighbour(body: memoryview) -> Neighbour:
    """Read the body of a message about a neighbour."""
    family, ifindex, state, flags, _ = NDMSG.unpack_from(body)
    found = fields(body, NDMSG.size)
    packed = found.get(_NDA_DST, b"")
    address = ip_address(packed) if len(packed) in (4, 16) else None
    return Neighbour(family, ifindex, state, flags, address, found.get(_NDA_LLADDR, b"").hex(":"))


def dump_neighbours(route: RouteSocket, *families: int) -> Iterator[Neighbour]:
    """The neighbours of these families, and with AF_BRIDGE the forwarding tables."""
    for family in families:
        for body in route.dump(RTM_GETNEIGH, NDMSG.pack(family, 0, 0, 0, 0)):
            yield parse_neighbour(body)


def read_neighbours(route: RouteSocket) -> dict[tuple[int, Address], str]:
    """The MAC of each neighbour, of IPv4 and IPv6, by interface index and address; "" where it is not known."""
    return {
        (item.ifindex, item.address): item.mac
        for item in dump_neighbours(route, socket.AF_INET, socket.AF_INET6)
        if item.address is not None
    }


def read_stations(route: RouteSocket) -> Stations:
    """The forwarding tables of all bridges in the namespace."""
    return {
        (item.ifindex, item.mac): not item.state & NUD_PERMANENT
        for item in dump_neighbours(route, socket.AF_BRIDGE)
        if item.family == socket.AF_BRIDGE and item.mac
    }


def set_neighbour(
    ifindex: int, address: Address, mac: str, *, state: int, flags: int = 0, replace: bool = True
) -> bytes:
    """`ip neigh replace ADDRESS lladdr MAC dev ... nud STATE`; without a MAC for one that the kernel asks for.

    With NUD_PROBE the kernel asks the neighbour whether it is there, and all who listen are told of it. With
    NUD_REACHABLE it is as if it had just answered.
    """
    return _message(RTM_NEWNEIGH, ifindex, address, mac, state, flags, NLM_F_CREATE | (NLM_F_REPLACE if replace else 0))


def use_neighbour(ifindex: int, address: Address) -> bytes:
    """`ip neigh add ADDRESS dev ... use`: the kernel asks for the neighbour as if a packet were to go there.

    In IPv6 it asks from the link-local address.
    """
    return set_neighbour(ifindex, address, "", state=NUD_NONE, flags=NTF_USE, replace=False)


def forget_neighbour(ifindex: int, address: Address) -> bytes:
    """`ip neigh del ADDRESS dev ...`: the kernel asks for it anew when it is needed."""
    return _message(RTM_DELNEIGH, ifindex, address, "", NUD_NONE, 0, 0)


def set_station(port: int, mac: str) -> bytes:
    """`bridge fdb replace MAC dev PORT master extern_learn`: the port's bridge sends there what is for a MAC."""
    flags = NTF_MASTER | NTF_EXT_LEARNED
    return _message(RTM_NEWNEIGH, port, None, mac, NUD_REACHABLE, flags, NLM_F_CREATE | NLM_F_REPLACE)


def forget_station(port: int, mac: str) -> bytes:
    """`bridge fdb del MAC dev PORT master`: the port's bridge forgets what it knows behind it."""
    return _message(RTM_DELNEIGH, port, None, mac, NUD_NONE, NTF_MASTER, 0)


def _message(kind: int, ifindex: int, address: Address | None, mac: str, state: int, flags: int, how: int) -> bytes:
    family = socket.AF_BRIDGE if address is None else socket.AF_INET if address.version == 4 else socket.AF_INET6
    body = NDMSG.pack(family, ifindex, state, flags, 0)
    if address is not None:
        body += attribute(_NDA_DST, address.packed)
    if mac:
        body += attribute(_NDA_LLADDR, mac_bytes(mac))
    return message(kind, how, body)
