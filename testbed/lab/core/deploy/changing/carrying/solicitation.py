"""New sessions of a lab that is up, hastened: the routers on new links are asked to say at once that they are there.

A session that is unnumbered begins when its router has heard an advertisement of the other (RFC 5549; FRR user guide,
BGP unnumbered). zebra sends some when it is told of an interface, a second apart, and the other end may not listen yet.
It answers a solicitation (RFC 4861, section 6.3.7) at once.

One end of a link asks first, and the other once the first knows it. Where both hear of each other at the same moment,
both connect: FRR 8.4 then may end the session with what is left of the connection that it gave up, and begins anew a
second later. The first end connects to one that does not know it yet, and is turned away at once.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.base.errors import DriverError
from testbed.base.linux import vty
from testbed.lab.core.drivers.nodes.inside import ask_inside
from testbed.lab.core.plan.lab_plan import LabPlan

_ALL_ROUTERS = "ff02::2"
_SOLICITATION = struct.pack("!BBHI", 133, 0, 0, 0)
"""Type, code, the checksum, which the kernel fills in, and 32 bits that are reserved."""
_ONLY_FROM_THE_LINK = 255
"""The hop limit that a receiver insists on."""
PATIENCE_S = 0.25
"""The longest time for which the first end is waited for: after that sessions begin by FRR's own timers."""
_LOOKED_AGAIN_S = 0.004
"""Between two looks at sessions: bgpd tells nobody."""


def solicit_neighbours(old: LabPlan, new: LabPlan, run: Path) -> None:
    """Ask over each link whose session only the new plan has, from one end and then from the other; who does not answer
    is waited for. `run` is the lab's run directory."""
    indexes = {(port.node, port.name): port.ifindex for port in new.ports}
    before = {(speaker.node, neighbor.interface) for speaker in old.speakers for neighbor in speaker.neighbors}
    first: dict[str, list[str]] = {}
    second: dict[str, list[str]] = {}
    for speaker in new.speakers:
        for neighbor in speaker.neighbors:
            port = (speaker.node, neighbor.interface)
            if port not in before and port in indexes:
                ends = first if port < (neighbor.remote, neighbor.remote_interface) else second
                ends.setdefault(speaker.node, []).append(neighbor.interface)
    _solicit(new.lab, first, indexes)
    if first and second:
        _await_known(first, run)
    _solicit(new.lab, second, indexes)


def _solicit(lab: str, wanted: Mapping[str, Sequence[str]], indexes: Mapping[tuple[str, str], int]) -> None:
    ask_inside(lab, wanted, _open, lambda node, item: _ask(item, [indexes[node, name] for name in wanted[node]]))


def _await_known(wanted: Mapping[str, Sequence[str]], run: Path, timeout_s: float = PATIENCE_S) -> None:
    """Return when bgpd of each of these nodes knows the routers behind its ports, or after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    for node, names in wanted.items():
        with contextlib.suppress(DriverError):  # the other end is asked in any case
            while not _knows(run / node, names) and time.monotonic() < deadline:
                time.sleep(_LOOKED_AGAIN_S)


def _knows(directory: Path, names: Sequence[str]) -> bool:
    """Tell whether no session over these ports still waits for the address of its neighbour."""
    answer = vty.ask_json(directory, "bgpd", "show bgp ipv4 unicast summary json")
    peers = answer.get("ipv4Unicast", answer).get("peers", {})
    return all(peers.get(name, {}).get("state", "Idle") != "Idle" for name in names)


def _open() -> socket.socket:
    opened = socket.socket(socket.AF_INET6, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.IPPROTO_ICMPV6)
    opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, _ONLY_FROM_THE_LINK)
    return opened


def _ask(opened: socket.socket, interfaces: list[int]) -> None:
    for ifindex in interfaces:
        with contextlib.suppress(OSError):  # the interface has no address yet: the routers' own timers remain
            opened.sendto(_SOLICITATION, (_ALL_ROUTERS, 0, 0, ifindex))
