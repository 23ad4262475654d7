"""Reading the counters of all interfaces of a namespace in one dump (struct rtnl_link_stats64, linux/if_link.h)."""

from __future__ import annotations

import struct

from testbed.drivers.netlink import rtnetlink
from testbed.drivers.netlink.rtnetlink import RouteSocket
from testbed.model.counters import PortCounters

_STATS = struct.Struct("=8Q")
_REQUEST = struct.pack("=BxHiII", 0, 0, 0, 0, 0)
OPERSTATE_UP = 6


def read_counters(route: RouteSocket) -> dict[str, PortCounters]:
    """Counters by interface name."""
    found: dict[str, PortCounters] = {}
    for body in route.dump(rtnetlink.RTM_GETLINK, _REQUEST):
        name = ""
        up = False
        values: tuple[int, ...] = ()
        for kind, payload in rtnetlink.attributes(body, 16):
            if kind == rtnetlink.IFLA_IFNAME:
                name = bytes(payload).rstrip(b"\0").decode()
            elif kind == rtnetlink.IFLA_OPERSTATE:
                up = payload[0] == OPERSTATE_UP
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
            up=up,
        )
    return found
