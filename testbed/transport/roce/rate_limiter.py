"""The rate limiter of a queue pair: when its next packet may leave, and how it makes up for having been asked late.

A NIC's limiter lets packets go to the nanosecond, and after a pause a small burst. One in software is asked when its
worker takes a turn, and everything of a turn leaves at once. So what was waiting when its time came may be as far
behind its rate as the turn is late, and the rate holds over any longer time; what had nothing to send saves up no more
than the hardware's burst.
"""

from __future__ import annotations

from typing import Final

BURST_PACKETS: Final = 2
"""After a pause, so many packets may leave at the rate of the line."""
MOST_LATE_PACKETS: Final = 64
"""Of one turn that is late, no more is made up for."""


class RateLimiter:
    """Times in ns."""

    __slots__ = ("_late_ns", "next_at", "waiting")

    def __init__(self) -> None:
        self.next_at: float = 0.0
        """When the rate allows the next packet."""
        self.waiting: bool = False
        """There is a packet that waits for `next_at`."""
        self._late_ns: float = 0.0
        """So far it may be behind its rate."""

    @property
    def due(self) -> int:
        """The first nanosecond at which the next packet may leave."""
        return int(self.next_at) + 1

    def begin(self) -> None:
        """Forget what was sent: this is a new flow."""
        self.next_at = 0.0
        self.waiting = False
        self._late_ns = 0.0

    def wait(self) -> None:
        """There is a packet, and its time has not come."""
        self.waiting = True

    def go_on(self, now: int, packet_bytes: int, rate_bps: float) -> None:
        """What waited is asked for, its time having come: full packets have so many bytes."""
        self.waiting = False
        self._late_ns = min(now - self.next_at, MOST_LATE_PACKETS * packet_bytes * 8e9 / rate_bps)

    def reset(self) -> None:
        """Whatever was sent before does not count."""
        self.next_at = 0.0
        self.waiting = False
        self._late_ns = 0.0

    def pause(self) -> None:
        """There is nothing to send."""
        self._late_ns = 0.0

    def on_send(self, now: int, size: int, rate_bps: float) -> None:
        """A packet of so many bytes leaves."""
        packet_ns = size * 8e9 / rate_bps
        self.next_at = max(self.next_at, now - max(BURST_PACKETS * packet_ns, self._late_ns)) + packet_ns
