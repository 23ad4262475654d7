"""Keeps a node's management port apart from its other ports, by one nftables table of family ip.

A packet meets it before it is routed, and so before the node takes it for its own or passes it on. Between the
management port and the others nothing is let through, whatever addresses it has.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Network

from testbed.base.linux import nftables as nft
from testbed.base.linux.nftables import NetfilterSocket, Table
from testbed.lab.core.plan.management_plan import GuardManagement

TABLE = "testbed-management"
PRIORITY = -300
"""Before connection tracking (NF_IP_PRI_RAW)."""
_SOURCE, _TARGET = 12, 16
"""Offsets of the addresses in an IPv4 header (RFC 791)."""
_LOOPBACK_IFINDEX = 1
_NOBODY, _EVERYBODY = IPv4Network("0.0.0.0/32"), IPv4Network("255.255.255.255/32")
"""The addresses that a node without an address asks from and to (DHCP, RFC 2131)."""
_GROUPS = IPv4Network("224.0.0.0/4")
_ACCEPT, _DROP = nft.verdict(nft.ACCEPT), nft.verdict(nft.DROP)


class Side(StrEnum):
    """The origin of what was dropped, as it is called beside the guards of access ports."""

    DATA = "from-data"
    """By another port, from or to an address of management."""
    MANAGEMENT = "from-management"
    """By the management port, from or to any other address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApartCounter:
    """The packets that a node has dropped of a side since the deploy."""

    side: Side
    packets: int
    bytes: int


def management_messages(operation: GuardManagement) -> Table:
    """The messages of the transaction that puts the guard of a node in force."""
    prefix = operation.prefix
    table = Table(TABLE, nft.NFPROTO_IPV4)
    for side in Side:
        table.counter(side)
    table.chain("managed")
    for source, target in ((prefix, prefix), (prefix, _GROUPS), (prefix, _EVERYBODY), (_NOBODY, _EVERYBODY)):
        table.rule("managed", *_within(_SOURCE, source), *_within(_TARGET, target), _ACCEPT)
    table.rule("managed", nft.count(Side.MANAGEMENT), _DROP)
    table.hook_arrivals("arrivals", PRIORITY)
    port = nft.load_meta(nft.META_IIF)
    table.rule("arrivals", port, nft.equal(struct.pack("=I", operation.ifindex)), nft.jump("managed"))
    elsewhere = (port, nft.unequal(struct.pack("=I", _LOOPBACK_IFINDEX)))
    for offset in (_TARGET, _SOURCE):
        table.rule("arrivals", *_within(offset, prefix), *elsewhere, nft.count(Side.DATA), _DROP)
    return table


def read_apart(socket: NetfilterSocket) -> list[ApartCounter]:
    """The counters of the node in whose namespace the socket is; none where it has no management port."""
    return [
        ApartCounter(side=Side(name), packets=packets, bytes=size)
        for _, name, packets, size in socket.counters(TABLE, nft.NFPROTO_IPV4)
    ]


def _within(offset: int, prefix: IPv4Network) -> tuple[bytes, ...]:
    """Go on with the rule if the address at an offset of the header is in a prefix."""
    address = nft.load_field(nft.NETWORK, offset, 4)
    return address, nft.mask(prefix.netmask.packed), nft.equal(prefix.network_address.packed)
