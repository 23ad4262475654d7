"""The retransmission time-out: RFC 6298 as Linux has it, with a floor below the variance rather than below the sum.

Source: net/ipv4/tcp_input.c, tcp_rtt_estimator and __tcp_set_rto; include/net/tcp.h. Times are ns.
"""

from __future__ import annotations

from typing import Final

MS: Final = 1_000_000
MIN_RTO_NS: Final = 200 * MS
"""TCP_RTO_MIN: a time-out is the smoothed round trip and at least so much."""
MAX_RTO_NS: Final = 120_000 * MS
INITIAL_RTO_NS: Final = 1_000 * MS
"""Before the first sample (RFC 6298, section 2.1)."""


class RttEstimator:
    """The smoothed round trip of a connection, how much it varies, and the time-out that follows from both."""

    def __init__(self, min_rto_ns: int = MIN_RTO_NS) -> None:
        self.min_rto_ns = min_rto_ns
        self.srtt_ns = 0
        """0 before the first sample."""
        self.least_ns = 0
        """The shortest sample; 0 before there is one."""
        self.latest_ns = 0
        self.rto_ns = INITIAL_RTO_NS
        self.backoff = 0
        """The time-outs in a row, each of which doubles the next one (RFC 6298, section 5.5)."""
        self._deviation_ns = 0
        """Four times the mean deviation."""
        self._most_deviation_ns = 0
        self._variance_ns = 0
        self._round_end = 0

    def sample(self, rtt_ns: int, acknowledged: int, sent: int) -> None:
        """Take a round trip of a segment that was sent once (Karn's algorithm).

        `acknowledged` and `sent` are the first sequence number that is not acknowledged, and the next one.
        """
        rtt_ns = max(1, rtt_ns)
        self.latest_ns = rtt_ns
        self.least_ns = min(self.least_ns, rtt_ns) if self.least_ns else rtt_ns
        if not self.srtt_ns:
            self.srtt_ns = rtt_ns
            self._deviation_ns = 2 * rtt_ns
            self._variance_ns = self._most_deviation_ns = max(self._deviation_ns, self.min_rto_ns)
            self._round_end = sent
        else:
            self._smooth(rtt_ns, acknowledged, sent)
        self.backoff = 0
        self.rto_ns = min(self.srtt_ns + self._variance_ns, MAX_RTO_NS)

    def _smooth(self, rtt_ns: int, acknowledged: int, sent: int) -> None:
        error = rtt_ns - self.srtt_ns
        self.srtt_ns = max(1, self.srtt_ns + (error >> 3))
        if error < 0:
            # a round trip that is shorter than expected tells little of how much longer one may be
            change = -error - (self._deviation_ns >> 2)
            if change > 0:
                change >>= 3
        else:
            change = error - (self._deviation_ns >> 2)
        self._deviation_ns += change
        if self._deviation_ns > self._most_deviation_ns:
            self._most_deviation_ns = self._deviation_ns
            self._variance_ns = max(self._variance_ns, self._most_deviation_ns)
        if acknowledged > self._round_end:
            if self._most_deviation_ns < self._variance_ns:
                self._variance_ns -= (self._variance_ns - self._most_deviation_ns) >> 2
            self._round_end = sent
            self._most_deviation_ns = self.min_rto_ns

    def on_timeout(self) -> None:
        """Double the time-out, up to `MAX_RTO_NS`."""
        self.backoff += 1
        self.rto_ns = min(2 * self.rto_ns, MAX_RTO_NS)
