"""The time for which a packet may stay unacknowledged: the smoothed round trip of a PDC, and the time-out that follows
from it.

Source: RFC 6298 (Jacobson's estimator); UE Specification 1.0, section 3.5.12 for the back-off. Times are in ns.
"""

from __future__ import annotations

from typing import Final

LONGEST_RTO_NS: Final = 8_000_000_000
"""Section 3.5.12: a time-out doubles up to 8 s."""


class RoundTrips:
    """The round trips of one PDC. `floor_ns` is the shortest time-out."""

    def __init__(self, floor_ns: int) -> None:
        self._floor = floor_ns
        self._smoothed = 0
        self._variation = 0

    def take(self, rtt: int) -> None:
        """One was measured."""
        if self._smoothed == 0:
            self._smoothed = rtt
            self._variation = rtt // 2
        else:
            self._variation += (abs(rtt - self._smoothed) - self._variation) // 4
            self._smoothed += (rtt - self._smoothed) // 8

    def timeout(self, earlier: int) -> int:
        """Return the time-out of a packet that has had so many time-outs."""
        base = max(self._smoothed + 4 * self._variation, self._floor)
        longer = base << earlier
        return longer if longer < LONGEST_RTO_NS else LONGEST_RTO_NS
