"""The rate limiter of a queue pair: when its next packet may leave, and how it makes up for having been asked late.

A NIC's limiter lets packets go to the nanosecond, and after a pause a small burst. One in software is asked when its
worker takes a turn, and everything of a turn leaves at once. So what was waiting when its time came may be as far
behind its rate as the turn is late, and the rate holds over any longer time; what had nothing to send, or whose NIC was
full since its class was paused, saves up no more than the hardware's burst.
"""

from __future__ import annotations

from typing import Final

BURST_PACKETS: Final = 2
"""After a pause, so many packets may leave at the rate of the line."""
MOST_LATE_PACKETS: Final = 64
"""No more packets are made up for after one turn that is late."""
_NEVER: Final = 1 << 62


class RateLimiter:
    """Times in ns. What waits is asked for no less often than every `patience_ns`: its rate may be another one then."""

    def __init__(self, patience_ns: int) -> None:
        self._patience_ns: Final[int] = patience_ns
        self._look_at: int = _NEVER
        """When to look whether the rate has changed."""
        self._rate_bps: float = 1.0
        """By which `next_at` was set."""
        self.next_at: float = 0.0
        """When the rate allows the next packet."""
        self.waiting: bool = False
        """There is a packet that waits for `next_at`."""
        self._late_ns: float = 0.0
        """So far it may be behind its rate."""

    @property
    def due(self) -> int:
        """When to ask for the next packet: as soon as it may leave, unless its rate is to be looked at before."""
        return min(int(self.next_at) + 1, self._look_at)

    def begin(self) -> None:
        """Forget what was sent: this is a new flow."""
        self.next_at = 0.0
        self.waiting = False
        self._late_ns = 0.0
        self._look_at = _NEVER

    def wait(self, now: int, rate_bps: float) -> None:
        """There is a packet, and its time has not come. At another rate it is what is left of the wait that changes, as
        in NICs: a flow that was cut to nearly nothing does not sit it out once it may go on."""
        if rate_bps != self._rate_bps:
            self.next_at = now + (self.next_at - now) * self._rate_bps / rate_bps
            self._rate_bps = rate_bps
        self.waiting = True
        self._look_at = now + self._patience_ns

    def go_on(self, now: int, packet_bytes: int, rate_bps: float) -> None:
        """The packet that waited is asked for, its time having come: full packets have so many bytes."""
        self.waiting = False
        self._look_at = _NEVER
        self._late_ns = min(now - self.next_at, MOST_LATE_PACKETS * packet_bytes * 8e9 / rate_bps)

    def pause(self) -> None:
        """There is nothing to send."""
        self._late_ns = 0.0

    def on_send(self, now: int, room_at: int, size: int, rate_bps: float) -> None:
        """A packet of so many bytes leaves. Before `room_at` its NIC would not have taken it, however early it had been
        asked for."""
        packet_ns = size * 8e9 / rate_bps
        self._rate_bps = rate_bps
        late_ns = max(BURST_PACKETS * packet_ns, min(self._late_ns, now - room_at))
        self.next_at = max(self.next_at, now - late_ns) + packet_ns
