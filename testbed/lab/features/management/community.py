"""Lets hosts on the management switch speak with each other, by one nftables table of family bridge.

The bridge keeps isolated ports from each other by itself. Hosts are not isolated where tasks of one are started from
another, and this keeps them to that: a frame that the bridge is about to forward from one to another node's port passes
if both are hosts and it is ARP or of one of the TCP connections that are asked for.
"""

from __future__ import annotations

import struct

from testbed.base.linux import nftables as nft
from testbed.base.linux.nftables import Table
from testbed.lab.core.plan.management_plan import FormCommunity

TABLE = "testbed-community"
_ARP, _IPV4 = struct.pack("!H", 0x0806), struct.pack("!H", 0x0800)
_TCP, _ACK = b"\x06", b"\x10"
_SOURCE, _DESTINATION, _FLAGS = 0, 2, 13
"""Offsets in a TCP header (RFC 9293)."""
_PORT_BITS = 1 << 16


def community_messages(operation: FormCommunity) -> Table:
    """The messages of the transaction that puts a community in force.

    Raises `ValueError` for a range of ports that is not all ports under one mask.
    """
    table = Table(TABLE, nft.NFPROTO_BRIDGE)
    table.set("nodes", (nft.INTERFACE,), [struct.pack("=I", port) for port in operation.nodes])
    table.set("hosts", (nft.INTERFACE,), [struct.pack("=I", port) for port in operation.hosts])
    table.chain("hosts")
    table.rule("hosts", nft.load_meta(nft.META_PROTOCOL), nft.equal(_ARP), nft.verdict(nft.ACCEPT))
    tcp = (*(nft.load_meta(nft.META_PROTOCOL), nft.equal(_IPV4)), *(nft.load_meta(nft.META_L4PROTO), nft.equal(_TCP)))
    acknowledged = (nft.load_field(nft.TRANSPORT, _FLAGS, 1), nft.mask(_ACK), nft.equal(_ACK))
    for ports in operation.tcp:
        table.rule("hosts", *tcp, *_among(_DESTINATION, ports), nft.verdict(nft.ACCEPT))
        table.rule("hosts", *tcp, *_among(_SOURCE, ports), *acknowledged, nft.verdict(nft.ACCEPT))
    table.chain("between")
    table.rule("between", *_both("hosts"), nft.jump("hosts"))
    table.rule("between", nft.verdict(nft.DROP))
    table.hook_forwarded("forwarded")
    table.rule("forwarded", *_both("nodes"), nft.jump("between"))
    return table


def _both(name: str) -> tuple[bytes, ...]:
    """Go on with the rule if the ports that a frame came in by and leaves by are in a set."""
    return nft.load_meta(nft.META_IIF), nft.is_in(name), nft.load_meta(nft.META_OIF), nft.is_in(name)


def _among(offset: int, ports: range) -> tuple[bytes, ...]:
    """Go on with the rule if the port at an offset of the header is one of these."""
    size = len(ports)
    if not size or size & (size - 1) or ports.step != 1 or ports.start % size:
        raise ValueError(f"{ports} is not all ports under one mask")
    masked = nft.mask(struct.pack("!H", _PORT_BITS - size))
    return nft.load_field(nft.TRANSPORT, offset, 2), masked, nft.equal(struct.pack("!H", ports.start))
