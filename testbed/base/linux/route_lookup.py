"""Asking a node's kernel where it would send a packet, as `ip route get` does (RTM_GETROUTE).

Formats: rtnetlink(7), linux/rtnetlink.h. What the kernel heeds of a request, and how it divides flows over next hops by
their hash, is in net/ipv4/route.c (`inet_rtm_getroute`, `fib_multipath_hash`) and net/ipv4/fib_semantics.c
(`fib_rebalance`, `fib_select_multipath`).
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from testbed.base.datapath.flow_hash import FiveTuple
from testbed.base.errors import DriverError
from testbed.base.linux import rtnetlink
from testbed.base.linux.rtnetlink import RouteSocket, attribute, u32

RTN_LOCAL = 2
_RTA_SRC, _RTA_IIF, _RTA_IP_PROTO, _RTA_SPORT, _RTA_DPORT = 2, 3, 27, 28, 29
_RTM_F_FIB_MATCH = 0x2000
_RTNH_F_DEAD, _RTNH_F_LINKDOWN = 1, 16
_HASH_BITS = 31


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteHop:
    """A next hop: the interface, the neighbour that it is by (None: whoever the packet is for) and its weight."""

    ifindex: int
    gateway: IPv4Address | IPv6Address | None = None
    weight: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteAnswer:
    """The kernel's answer about a packet. `is_local`: it is for this node. Without next hops `refusal` says why."""

    hops: tuple[RouteHop, ...] = ()
    is_local: bool = False
    refusal: str = ""


def matching_route(route: RouteSocket, packet: FiveTuple, *, arrives: int = 0) -> RouteAnswer:
    """The route that the kernel would use for a packet, with all its next hops that are usable, in the kernel's order.

    `arrives` is the index of the interface that it comes in by, 0 for one of the node's own.
    """
    return _ask(route, packet, arrives, _RTM_F_FIB_MATCH)


def chosen_route(route: RouteSocket, packet: FiveTuple, *, arrives: int = 0) -> RouteAnswer:
    """Do as `matching_route`, with the one next hop that the kernel chooses by its own hash."""
    return _ask(route, packet, arrives, 0)


def hop_of_hash(hops: Sequence[RouteHop], value: int) -> int:
    """Which of these next hops, from 0, a packet takes whose hash is this, of 32 bits: hash-threshold (RFC 2992).

    The kernel compares 31 bits with upper bounds that divide them by the weights.
    """
    total, sum_of_weights = sum(hop.weight for hop in hops), 0
    for number, hop in enumerate(hops):
        sum_of_weights += hop.weight
        bound = ((sum_of_weights << _HASH_BITS) + total // 2) // total - 1
        if value >> 1 <= bound:
            return number
    return len(hops) - 1


def _ask(route: RouteSocket, packet: FiveTuple, arrives: int, flags: int) -> RouteAnswer:
    body = rtnetlink.RTMSG.pack(socket.AF_INET, 32, 32, 0, 0, 0, 0, 0, flags)
    body += attribute(rtnetlink.RTA_DST, packet.destination.packed) + attribute(_RTA_SRC, packet.source.packed)
    body += attribute(_RTA_IP_PROTO, bytes([packet.protocol]))
    for kind, port in ((_RTA_SPORT, packet.source_port), (_RTA_DPORT, packet.destination_port)):
        body += attribute(kind, port.to_bytes(2, "big"))
    if arrives:
        body += u32(_RTA_IIF, arrives)
    try:
        answer = route.ask(rtnetlink.RTM_GETROUTE, body)
    except DriverError as error:
        return RouteAnswer(refusal=error.message.partition(": ")[2])
    hops = _hops(answer)
    return RouteAnswer(hops=hops, is_local=answer[7] == RTN_LOCAL, refusal="" if hops else "no next hop is usable")


def _hops(answer: memoryview) -> tuple[RouteHop, ...]:
    found = rtnetlink.fields(answer, rtnetlink.RTMSG.size)
    several = found.get(rtnetlink.RTA_MULTIPATH)
    if several is not None:
        return tuple(
            RouteHop(ifindex=ifindex, gateway=_gateway(rtnetlink.fields(inner)), weight=weight)
            for ifindex, flags, weight, inner in rtnetlink.weighted_next_hops(several)
            if not flags & (_RTNH_F_DEAD | _RTNH_F_LINKDOWN)
        )
    if rtnetlink.RTA_OIF not in found:
        return ()
    ifindex = int.from_bytes(found[rtnetlink.RTA_OIF], "little")
    return (RouteHop(ifindex=ifindex, gateway=_gateway(found)),)


def _gateway(found: dict[int, bytes]) -> IPv4Address | IPv6Address | None:
    """The neighbour of a next hop: RTA_GATEWAY, or RTA_VIA where it is of IPv6 (RFC 5549)."""
    packed = found.get(rtnetlink.RTA_GATEWAY) or found.get(rtnetlink.RTA_VIA, b"")[2:]
    return ip_address(packed) if packed else None
