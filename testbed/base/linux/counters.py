"""Reading the counters of all interfaces of a namespace, or of all their queues, in one dump.

Formats: struct rtnl_link_stats64 of linux/if_link.h, struct gnet_stats_queue of linux/gen_stats.h.
"""

from __future__ import annotations

import struct
import sys

from testbed.base.linux import rtnetlink
from testbed.base.linux.port_counters import PlainQueue, PortCounters
from testbed.base.linux.rtnetlink import RouteSocket

_STATS = struct.Struct("=8Q")
_REQUEST = struct.pack("=BxHiII", 0, 0, 0, 0, 0)
_TCA_STATS2 = 7
_TCA_STATS_QUEUE = 3
_QUEUE = struct.Struct("=5I")
"""Packets waiting, bytes waiting, drops, requeues, overlimits."""


def read_counters(route: RouteSocket) -> dict[str, PortCounters]:
    """Counters by interface name."""
    found: dict[str, PortCounters] = {}
    for body in route.dump(rtnetlink.RTM_GETLINK, _REQUEST):
        name = ""
        _, _, _, flags, _ = rtnetlink.IFINFOMSG.unpack_from(body)
        mtu_bytes = 0
        values: tuple[int, ...] = ()
        for kind, payload in rtnetlink.attributes(body, 16):
            if kind == rtnetlink.IFLA_IFNAME:
                name = bytes(payload).rstrip(b"\0").decode()
            elif kind == rtnetlink.IFLA_MTU:
                mtu_bytes = int.from_bytes(payload, sys.byteorder)
            elif kind == rtnetlink.IFLA_STATS64:
                values = _STATS.unpack_from(payload)
        if not values:
            continue
        rx_packets, tx_packets, rx_bytes, tx_bytes, _, _, rx_dropped, tx_dropped = values
        found[name] = PortCounters(
            rx_bytes=rx_bytes,
            tx_bytes=tx_bytes,
            rx_packets=rx_packets,
            tx_packets=tx_packets,
            rx_dropped=rx_dropped,
            tx_dropped=tx_dropped,
            up=rtnetlink.has_carrier(flags),
            mtu_bytes=mtu_bytes,
        )
    return found


def read_queues(route: RouteSocket) -> dict[int, PlainQueue]:
    """Drops and backlog of the root queue of each interface, by interface index. HTB counts its classes' in."""
    found: dict[int, PlainQueue] = {}
    for body in route.dump(rtnetlink.RTM_GETQDISC, rtnetlink.TCMSG.pack(0, 0, 0, 0, 0)):
        _, ifindex, _, parent, _ = rtnetlink.TCMSG.unpack_from(body)
        if parent != rtnetlink.TC_H_ROOT:
            continue
        for kind, statistics in rtnetlink.attributes(body, rtnetlink.TCMSG.size):
            if kind != _TCA_STATS2:
                continue
            for part, payload in rtnetlink.attributes(statistics):
                if part == _TCA_STATS_QUEUE:
                    _, waiting, dropped, _, _ = _QUEUE.unpack_from(payload)
                    found[ifindex] = PlainQueue(dropped_packets=dropped, waiting_bytes=waiting)
    return found
