"""CUBIC (RFC 9438) with HyStart, as Linux has it (net/ipv4/tcp_cubic.c).

The window grows along W(t) = C (t - K)^3 + W_max, t since the last reduction, where it was W_max before; K is when it
is there again. HyStart leaves slow start before losses do: where acknowledgements of a round keep coming for half of
the least round trip, or where a round's trips take longer than the least one by an eighth. Times are ns.
"""

from __future__ import annotations

from typing import Final

from testbed.protocols.tcp.congestion.control import TcpControl

SECOND: Final = 1_000_000_000
C: Final = 0.4
"""Segments per s^3 (RFC 9438, section 5)."""
BETA: Final = 717 / 1024
"""The share of the window that is left after a loss."""
LOW_WINDOW: Final = 16
"""HyStart does nothing below so many segments."""
LEAST_SAMPLES: Final = 8
"""Round trips of a round that are looked at before it is judged."""
ACK_GAP_NS: Final = 2_000_000
"""Acknowledgements that are no further apart belong to one train (hystart_ack_delta_us)."""
ACK_DELAY_NS: Final = 1_000_000
"""The most that a receiver is expected to wait on purpose at low rates (hystart_ack_delay)."""
LEAST_DELAY_NS: Final = 4_000_000
MOST_DELAY_NS: Final = 16_000_000
"""Bounds of the eighth."""
PER_RENO: Final = 3 * (1 - BETA) / (1 + BETA)
"""Segments by which the window of a flow of AIMD with the same reduction grows in a round trip (section 4.3)."""


class Cubic(TcpControl):
    """The window is a function of the time since the last reduction."""

    def __init__(self) -> None:
        super().__init__()
        self.most_window = 0
        """W_max: the window before the last reduction, or less of it where it had shrunk before (fast convergence)."""
        self._epoch_ns = -1
        """When the present growth began; -1: it is to begin."""
        self._origin = 0.0
        self._k_s = 0.0
        self._since_epoch = 0
        self._reno_window = 0.0
        self._per_segment = 0
        self._last_window = 0
        self._last_ns = -SECOND
        self.least_rtt_ns = 0
        self.found = False
        """HyStart has ended slow start."""
        self._round_begin_ns = -1
        self._round_end = 0
        self._last_ack_ns = 0
        self._round_rtt_ns = 0
        self._samples = 0

    def on_ack(self, now: int, acked: int, unacknowledged: int, following: int) -> None:
        if self.in_slow_start:
            acked = self.slow_start(acked)
            if not acked:
                return
        self._update(now, acked)
        self.grow(self._per_segment, acked)

    def target(self, t_s: float) -> float:
        """Return the window of the curve at a time since the present growth began (s)."""
        return self._origin + C * (t_s - self._k_s) ** 3

    def _update(self, now: int, acked: int) -> None:
        """Decide after how many segments the window is to grow by one."""
        self._since_epoch += acked
        if self._last_window == self.window and now - self._last_ns <= SECOND // 32:
            return
        window = self.window
        self._last_window, self._last_ns = window, now
        if self._epoch_ns < 0:
            self._epoch_ns = now
            self._since_epoch = acked
            self._reno_window = float(window)
            if self.most_window <= window:
                self._k_s, self._origin = 0.0, float(window)
            else:
                self._k_s, self._origin = ((self.most_window - window) / C) ** (1 / 3), float(self.most_window)
        # the window that is to be there a round trip from now
        target = self.target((now - self._epoch_ns + self.least_rtt_ns) / SECOND)
        per_segment = window / (target - window) if target > window else 100.0 * window
        if not self.most_window:
            per_segment = min(per_segment, 20.0)
        self._per_segment = max(2, int(min(per_segment, self._per_reno())))

    def _per_reno(self) -> float:
        """Return the same for a flow of AIMD, which CUBIC is never slower than."""
        each = self.window / PER_RENO
        if self._since_epoch > each:
            steps = self._since_epoch // each
            self._since_epoch -= int(steps * each)
            self._reno_window += steps
        if self._reno_window > self.window:
            return self.window / (self._reno_window - self.window)
        return float(1 << 30)

    def threshold_after_loss(self) -> int:
        self._epoch_ns = -1
        window = self.window
        self.most_window = int(window * (1 + BETA) / 2) if window < self.most_window else window
        return max(int(window * BETA), 2)

    def on_timeout(self) -> None:
        self.most_window = 0
        self._epoch_ns = -1
        self._last_window = 0
        self._last_ns = -SECOND
        self._per_segment = 0
        self._since_epoch = 0
        self.found = False
        self.least_rtt_ns = 0
        self._round_begin_ns = -1

    def on_idle_over(self, idle_ns: int) -> None:
        """Shift the curve by the time in which the application had nothing to send."""
        if self._epoch_ns >= 0:
            self._epoch_ns += idle_ns

    # --- HyStart -----------------------------------------------------------------------------------------

    def on_rtt(self, now: int, rtt_ns: int, unacknowledged: int, following: int) -> None:
        if self._epoch_ns >= 0 and now - self._epoch_ns < SECOND:
            return  # right after a recovery
        if not self.least_rtt_ns or rtt_ns < self.least_rtt_ns:
            self.least_rtt_ns = rtt_ns
        if not self.found and self.in_slow_start and self.window >= LOW_WINDOW:
            self._watch(now, rtt_ns, unacknowledged, following)

    def _watch(self, now: int, rtt_ns: int, unacknowledged: int, following: int) -> None:
        if self._round_begin_ns < 0 or unacknowledged > self._round_end:
            self._round_begin_ns = self._last_ack_ns = now
            self._round_end = following
            self._round_rtt_ns = 0
            self._samples = 0
        if now - self._last_ack_ns <= ACK_GAP_NS:
            self._last_ack_ns = now
            if now - self._round_begin_ns > (self.least_rtt_ns + ACK_DELAY_NS) // 2:
                self._end_slow_start()
        if not self._round_rtt_ns or rtt_ns < self._round_rtt_ns:
            self._round_rtt_ns = rtt_ns
        if self._samples < LEAST_SAMPLES:
            self._samples += 1
            return
        room = min(max(self.least_rtt_ns >> 3, LEAST_DELAY_NS), MOST_DELAY_NS)
        if self._round_rtt_ns > self.least_rtt_ns + room:
            self._end_slow_start()

    def _end_slow_start(self) -> None:
        self.found = True
        self.threshold = self.window

    def state(self) -> dict[str, float]:
        return {"most_window_segments": float(self.most_window), "k_s": self._k_s}
