"""The share of its link's rate that a destination grants as credit, where the fabric before it carries less.

A destination sees its own link, not the uplinks that its sources share with others: granted at the link's rate, an
oversubscribed fabric is fed what it can only trim. What arrives marked, or trimmed before the last hop, tells so. The
rules are those of the UEC simulator (`OversubscribedCC`). That is told how far its fabric is oversubscribed, and marks
nothing at last hops; a destination here is told nothing, but sees what is carried to it and judges by that
(`CARRIED_FLOOR`, `FULL_LINK`).
"""

from __future__ import annotations

from typing import Final

MARK_GAIN: Final = 0.5
"""Weight of the latest interval in the mean share of marked packets."""
MARK_TARGET: Final = 0.3
"""Marked packets up to this share are no reason to grant less."""
MARK_DECREASE: Final = 0.5
"""The part of the share that is lost for each marked packet of all beyond the target."""
INCREASE: Final = 0.01
"""The gain in an interval without a decrease, in link rates; doubled with each one in a row, if that has no mark."""
MOST_DOUBLINGS: Final = 3
"""Ours: without a limit, the share rises within one round trip by more than the fabric's queues hold."""
LEAST_SHARE: Final = 0.01
CARRIED_FLOOR: Final = 0.8
"""A decrease does not go below this part of the most that was carried lately. (The simulator's: of what its fabric
can carry.) Else it goes on while the queues drain, and what they have drained to is a fabric that nobody uses."""
CARRIED_DECAY: Final = 0.95
"""The most that was carried counts for this much of itself with each interval, for others may have come."""
FULL_LINK: Final = 0.9
"""Marks are no reason to grant less while the link carries this part of its rate: they are the last hop's."""
_MOST_MISSED: Final = 100
"""After so many intervals without an arrival, nothing is left of what was before."""


class GrantShare:
    """Rises and falls once in an interval of a base RTT, by what has arrived in it. Times in ns."""

    def __init__(self, link_rate_bps: int, base_rtt_ns: int, now: int) -> None:
        self.share: float = 1.0
        self._bits_per_ns: float = link_rate_bps / 1e9
        self._interval_ns: int = base_rtt_ns
        self._began: int = now
        self._carried: float = 0.0
        """The most that was carried lately, as a part of the link's rate."""
        self._mean: float = 0.0
        """The mean of the share of marked packets in the intervals so far."""
        self._increases: int = 0
        """Intervals in a row without a decrease."""
        self._packets: int = 0
        """Packets that arrived whole in this interval; `_bytes` and `_marked` are of these."""
        self._bytes: int = 0
        self._marked: int = 0
        self._trimmed: int = 0
        """Arrived trimmed by a switch other than the last: at that one, it is a queue of ours, not of the fabric."""

    def on_packet(self, size: int, marked: bool) -> None:
        """A packet of `size` bytes has arrived whole."""
        self._packets += 1
        self._bytes += size
        if marked:
            self._marked += 1

    def on_trimmed(self) -> None:
        """A packet has arrived that was trimmed before the last hop."""
        self._trimmed += 1

    def update(self, now: int) -> None:
        """End the interval if that is due. Those that have gone by since without a word are made up for."""
        elapsed = now - self._began
        if elapsed < self._interval_ns:
            return
        self._began = now
        self._end_interval(8 * self._bytes / (elapsed * self._bits_per_ns))
        for _ in range(min(elapsed // self._interval_ns - 1, _MOST_MISSED)):
            self._end_interval(0.0)

    def _end_interval(self, carried: float) -> None:
        """`carried`: in this interval, of the link's rate."""
        packets, marked, trimmed = self._packets, self._marked, self._trimmed
        self._packets = self._bytes = self._marked = self._trimmed = 0
        self._carried = max(carried, CARRIED_DECAY * self._carried)
        share = self.share
        if trimmed:
            share -= trimmed / (packets + trimmed)
        self._mean += MARK_GAIN * ((marked / packets if packets and carried < FULL_LINK else 0.0) - self._mean)
        if self._mean > MARK_TARGET:
            share *= 1 - (self._mean - MARK_TARGET) * MARK_DECREASE
        if share < self.share:
            self._increases = 0
            self.share = min(self.share, max(share, CARRIED_FLOOR * self._carried, LEAST_SHARE))
        else:
            share += INCREASE if marked else INCREASE * 2**self._increases
            self._increases = min(self._increases + 1, MOST_DOUBLINGS)
            self.share = min(share, 1.0)
