"""Addresses that come, go, or are at another interface of their node from now on, of which neighbours are told the MAC
that they are behind.

A rail with one port has its gateway at the port, and one with several at a bridge. A host that knows the gateway would
go on sending to the MAC that it was behind, for as long as it believes it, and a port takes frames to its own alone.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from ipaddress import IPv4Interface

from testbed.base.linux.rtnetlink import mac_bytes
from testbed.daemons.lag.groups import CreateBond
from testbed.lab.core.drivers.nodes.changing import KernelChanges
from testbed.lab.core.drivers.nodes.inside import ask_inside
from testbed.lab.core.drivers.nodes.places import ends_of, is_on
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import AddAddress, CreateBridge, CreateVeth

_ETH_P_ARP = 0x0806
_REQUEST = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1)
"""Ethernet, IPv4, the lengths of their addresses, and the code of a request (RFC 826)."""
_EVERYBODY = bytes([0xFF] * 6)


def names_may_differ(kernel: KernelChanges, old: LabPlan, new: LabPlan) -> bool:
    """Tell whether a node or an address has come or gone, so that programs are to see other names of nodes.

    It costs a look at what changes, and not one at each address of a lab, of which there may be thousands.
    """
    if kernel.created or kernel.gone or old.management != new.management:
        return True
    if [speaker.node for speaker in old.speakers] != [speaker.node for speaker in new.speakers]:
        return True
    gone = (*kernel.first, *kernel.outdated, *kernel.removed)
    ends = ends_of(gone)
    return (
        _has_new(kernel)
        or any(isinstance(item, AddAddress) for item in gone)
        or (bool(ends) and any(isinstance(item, AddAddress) and is_on(item, ends) for item in old.operations))
    )


def _has_new(kernel: KernelChanges) -> bool:
    """Tell whether a node gets an address, or has one at another interface."""
    return any(isinstance(item, AddAddress) for item in (*kernel.made, *(new for _, new in kernel.changed)))


def announce_moved(kernel: KernelChanges, old: LabPlan, new: LabPlan) -> None:
    """Announce by ARP (RFC 5227, section 3) each address that both plans have, at different interfaces of its node."""
    if not _has_new(kernel):
        return
    before = {(node, address) for node, address, _ in _addresses(old)}
    stayed = set(_addresses(old))
    moved = [each for each in _addresses(new) if each[:2] in before and each not in stayed]
    if not moved:
        return
    macs = dict(_macs(new))
    wanted: dict[str, list[tuple[IPv4Interface, int]]] = {}
    for node, address, ifindex in moved:
        if (node, ifindex) in macs:
            wanted.setdefault(node, []).append((address, ifindex))

    def announce(node: str, opened: socket.socket) -> None:
        for address, ifindex in wanted[node]:
            mac, packed = mac_bytes(macs[node, ifindex]), address.ip.packed
            body = _REQUEST + mac + packed + bytes(6) + packed
            frame = _EVERYBODY + mac + struct.pack("!H", _ETH_P_ARP) + body
            with contextlib.suppress(OSError):  # who is cut off asks when it is back
                opened.bind((socket.if_indextoname(ifindex), _ETH_P_ARP))
                opened.send(frame)

    ask_inside(new.lab, wanted, lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW), announce)


def _addresses(plan: LabPlan) -> Iterator[tuple[str, IPv4Interface, int]]:
    for item in plan.operations:
        if isinstance(item, AddAddress) and isinstance(item.address, IPv4Interface):
            yield item.node, item.address, item.ifindex


def _macs(plan: LabPlan) -> Iterator[tuple[tuple[str, int], str]]:
    """The MAC of each interface that is a port, a bridge or a bond, by its node and index."""
    for item in plan.operations:
        if isinstance(item, CreateVeth):
            yield from (((end.node, end.ifindex), end.mac) for end in (item.a, item.b))
        elif isinstance(item, CreateBridge | CreateBond):
            yield (item.node, item.ifindex), item.mac
