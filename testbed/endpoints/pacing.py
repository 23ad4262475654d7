"""A sender runs only a little ahead of its NIC: a NIC of the fabric asks its transport for a packet as its line gets
free.

Here the kernel's queue of the emulated NIC takes whatever it is given. What is given early chose its path early, by
what was known then (entropy values are fed back, UE Specification 1.0, section 3.6.16), and its wait in the queue would
count as the fabric's delay (section 3.6.13). So an endpoint is asked for no more than keeps the line busy until it is
asked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from testbed.protocols.datagram import NIC_PACKETS, Outgoing

AHEAD_PACKETS = 8
"""In a NIC's queue at most; it is filled again when half of them are gone, in one turn of the loop."""
LEAST_AHEAD_PACKETS = 2
LATE_NS = 7_000_000
"""So late a turn may be, and the line still has packets: a run in which one of a hundred timers is later than 5 ms is
not valid. Where packets take long, few of them are enough for that. What is given early goes by old news: with eight
packets of 6.7 ms ahead, a quarter of a BDP, REPS on four uplinks had 76 packets trimmed, with two to four 3 to 16."""
_SKB_BYTES = 256
"""struct sk_buff, as the slab has it."""
_SKB_ROOM_BYTES = 64 + 320
"""Room for lower headers, and struct skb_shared_info behind the data."""
_BELOW_BYTES = 14 + 20 + 8
"""Ethernet, IPv4 and UDP: what a shaped port of the lab counts beside the payload."""


class Pacer:
    """Follows the queue of a NIC of `rate_bps` that gets full packets of `packet_bytes` (UDP payload). Times in ns.

    `tick_ns`: the least time between two turns of the loop.
    """

    def __init__(self, rate_bps: int, packet_bytes: int, tick_ns: int = 0) -> None:
        if rate_bps <= 0 or packet_bytes <= 0:
            raise ValueError("a rate and a packet have a size")
        self._ns_per_byte = 8e9 / rate_bps
        self._packet_ns = (packet_bytes + _BELOW_BYTES) * self._ns_per_byte
        wanted = ceil(2 * (tick_ns + LATE_NS) / self._packet_ns)
        self.ahead_packets = max(LEAST_AHEAD_PACKETS, min(wanted, AHEAD_PACKETS))
        """In the NIC's queue at most."""
        self.pulls = AHEAD_PACKETS - self.ahead_packets + 1
        """An endpoint is asked so often in a turn at most, where its packets are so small that the NIC still has room:
        of small ones it takes no fewer in a turn than any NIC."""
        self._ahead_ns = self.ahead_packets * self._packet_ns
        self._free_at = 0.0
        """When the line has sent all that it was given."""
        self.held_back = False
        """The endpoint may have more than it was asked for."""

    @staticmethod
    def buffer_bytes(packet_bytes: int) -> int:
        """SO_SNDBUF with which `NIC_PACKETS` full packets (UDP payload) find room in the NIC's queue, and no more.

        The kernel counts what a packet takes of its memory, a power of two and its descriptor, until the packet leaves
        for the wire. A pacer knows nothing of pauses: what it goes on to hand over waits with the endpoint then, where
        congestion control can still hold it back.
        """
        data = packet_bytes + _BELOW_BYTES + _SKB_ROOM_BYTES
        return NIC_PACKETS * ((1 << (data - 1).bit_length()) + _SKB_BYTES) // 2  # which Linux doubles

    def line_ns(self, size: int) -> int:
        """Return how long the line takes for so many bytes."""
        return int(size * self._ns_per_byte)

    def room(self, now: int) -> int:
        """Full packets that may be given to the NIC now."""
        backlog_ns = self._free_at - now
        if backlog_ns <= 0:
            return self.ahead_packets
        return max(0, int((self._ahead_ns - backlog_ns) / self._packet_ns))

    def sent(self, datagrams: Sequence[Outgoing], now: int) -> None:
        """The NIC got these."""
        size = sum(len(item.header) + len(item.payload) for item in datagrams) + _BELOW_BYTES * len(datagrams)
        self._free_at = max(self._free_at, now) + size * self._ns_per_byte

    def next_due(self) -> int | None:
        """Return when to ask the endpoint again; None if it has nothing more."""
        return int(self._free_at - self._ahead_ns / 2) + 1 if self.held_back else None
