"""The kernel's counters of one interface at one moment: its traffic, and what waits in its queue."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PortCounters:
    """Counters since the interface was created (`rtnl_link_stats64` of linux/if_link.h)."""

    rx_bytes: int = 0
    tx_bytes: int = 0
    rx_packets: int = 0
    tx_packets: int = 0
    rx_dropped: int = 0
    tx_dropped: int = 0
    up: bool = True
    """Administratively up and with carrier at the time of reading."""
    mtu_bytes: int = 0
    """The longest packet that it sends, at the time of reading; 0: not known."""

    def since(self, before: PortCounters) -> PortCounters:
        """Return what was counted after `before`, which must be an earlier reading of the same port."""
        return PortCounters(
            rx_bytes=self.rx_bytes - before.rx_bytes,
            tx_bytes=self.tx_bytes - before.tx_bytes,
            rx_packets=self.rx_packets - before.rx_packets,
            tx_packets=self.tx_packets - before.tx_packets,
            rx_dropped=self.rx_dropped - before.rx_dropped,
            tx_dropped=self.tx_dropped - before.tx_dropped,
            up=self.up,
            mtu_bytes=self.mtu_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainQueue:
    """The one queue of a port without QoS (`gnet_stats_queue` of linux/gen_stats.h): `dropped_packets` since the port
    was created, `waiting_bytes` of the moment. The counters of the interface itself have no packet that a queue
    dropped."""

    dropped_packets: int = 0
    waiting_bytes: int = 0
