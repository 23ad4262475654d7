"""New sessions of a lab that is up, hastened: the routers on new links are asked to say at once that they are there.

A session that is unnumbered begins when its router has heard an advertisement of the other (RFC 5549; FRR user guide,
BGP unnumbered). zebra sends some when it is told of an interface, a second apart, and the other end may not listen yet.
It answers a solicitation (RFC 4861, section 6.3.7) at once.
"""

from __future__ import annotations

import contextlib
import socket
import struct

from testbed.lab.core.drivers.nodes.inside import ask_inside
from testbed.lab.core.plan.lab_plan import LabPlan

_ALL_ROUTERS = "ff02::2"
_SOLICITATION = struct.pack("!BBHI", 133, 0, 0, 0)
"""Type, code, the checksum, which the kernel fills in, and 32 bits that are reserved."""
_ONLY_FROM_THE_LINK = 255
"""The hop limit that a receiver insists on."""


def solicit_neighbours(old: LabPlan, new: LabPlan) -> None:
    """Ask over each link whose session only the new plan has, from both ends; who does not answer is waited for."""
    indexes = {(port.node, port.name): port.ifindex for port in new.ports}
    before = {(speaker.node, neighbor.interface) for speaker in old.speakers for neighbor in speaker.neighbors}
    wanted: dict[str, list[int]] = {}
    for speaker in new.speakers:
        for neighbor in speaker.neighbors:
            port = (speaker.node, neighbor.interface)
            if port not in before and port in indexes:
                wanted.setdefault(speaker.node, []).append(indexes[port])
    ask_inside(new.lab, wanted, _open, lambda node, item: _ask(item, wanted[node]))


def _open() -> socket.socket:
    opened = socket.socket(socket.AF_INET6, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.IPPROTO_ICMPV6)
    opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, _ONLY_FROM_THE_LINK)
    return opened


def _ask(opened: socket.socket, interfaces: list[int]) -> None:
    for ifindex in interfaces:
        with contextlib.suppress(OSError):  # the interface has no address yet: the routers' own timers remain
            opened.sendto(_SOLICITATION, (_ALL_ROUTERS, 0, 0, ifindex))
