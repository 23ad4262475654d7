"""Netlink messages that lead TCP of a node to the node itself: a route in a table of its own, and rules for it.

A packet that a rule sends to the table is delivered locally, whatever address it is for, so that a socket of this
machine can stand for another host. Source: Linux, Documentation/networking/tproxy.rst; linux/fib_rules.h.
"""

from __future__ import annotations

import socket
import struct
from ipaddress import IPv4Network, IPv6Network

from testbed.base.linux.rtnetlink import (
    FR_ACT_TO_TBL,
    FRA_DST,
    FRA_PRIORITY,
    FRA_SRC,
    FRA_TABLE,
    NLM_F_CREATE,
    NLM_F_EXCL,
    RTA_OIF,
    RTA_TABLE,
    RTM_NEWROUTE,
    RTM_NEWRULE,
    RTMSG,
    RTPROT_STATIC,
    attribute,
    message,
    u32,
)
from testbed.lab.core.plan.operations import SteerTcp

BGP_PORT = 179
_LOOPBACK = 1
_RTN_LOCAL, _RT_SCOPE_HOST = 2, 254
_FR_ACT_GOTO, _FR_ACT_NOP = 2, 3
_FRA_GOTO, _FRA_IP_PROTO, _FRA_SPORT_RANGE, _FRA_DPORT_RANGE = 4, 22, 23, 24
_BGP = struct.pack("=HH", BGP_PORT, BGP_PORT)
_NO_ADDRESS = IPv4Network("0.0.0.0/32")


def steer_tcp(operation: SteerTcp) -> tuple[bytes, ...]:
    """Return the messages that make the route and the rules: those of BGP's port lead past all others.

    A socket of IPv4 looks for its own address first, whether or not its program has bound it to a port. It is led past
    the others, too, so that it gets the address that it always gets; once it has one, they are for all of its packets.
    """
    batch: list[bytes] = []
    for family in (socket.AF_INET, socket.AF_INET6):
        version = 4 if family == socket.AF_INET else 6
        prefixes = [prefix for prefix in operation.prefixes if prefix.version == version]
        if prefixes:
            batch += _of_family(operation, family, prefixes)
    return tuple(batch)


def _of_family(operation: SteerTcp, family: int, prefixes: list[IPv4Network | IPv6Network]) -> list[bytes]:
    first, last = operation.first_priority, operation.last_priority
    past = u32(_FRA_GOTO, last)
    table = u32(FRA_TABLE, operation.table)
    # A socket of IPv6 looks for its route once, before it has an address.
    nameless = [_rule(family, first, _FR_ACT_GOTO, past, source=_NO_ADDRESS)] if family == socket.AF_INET else []
    return [
        _local_route(family, operation.table),
        _rule(family, last, _FR_ACT_NOP, b"", protocol=False),
        *nameless,
        _rule(family, first, _FR_ACT_GOTO, past + attribute(_FRA_SPORT_RANGE, _BGP)),
        _rule(family, first + 1, _FR_ACT_GOTO, past + attribute(_FRA_DPORT_RANGE, _BGP)),
        *(_rule(family, first + 2, FR_ACT_TO_TBL, table, to=prefix) for prefix in prefixes),
    ]


def _local_route(family: int, table: int) -> bytes:
    """`ip route add local default dev lo table TABLE`."""
    body = RTMSG.pack(family, 0, 0, 0, 0, RTPROT_STATIC, _RT_SCOPE_HOST, _RTN_LOCAL, 0)
    body += u32(RTA_TABLE, table) + u32(RTA_OIF, _LOOPBACK)
    return message(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_EXCL, body)


def _rule(
    family: int,
    priority: int,
    action: int,
    more: bytes,
    *,
    source: IPv4Network | None = None,
    to: IPv4Network | IPv6Network | None = None,
    protocol: bool = True,
) -> bytes:
    to_bits, source_bits = (0 if prefix is None else prefix.prefixlen for prefix in (to, source))
    body = RTMSG.pack(family, to_bits, source_bits, 0, 0, 0, 0, action, 0)
    body += u32(FRA_PRIORITY, priority) + more
    if protocol:
        body += attribute(_FRA_IP_PROTO, bytes([socket.IPPROTO_TCP]))
    if source is not None:
        body += attribute(FRA_SRC, source.network_address.packed)
    if to is not None:
        body += attribute(FRA_DST, to.network_address.packed)
    return message(RTM_NEWRULE, NLM_F_CREATE | NLM_F_EXCL, body)
