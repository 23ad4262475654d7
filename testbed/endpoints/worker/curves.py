"""How channels fare over time: a sample of each every few milliseconds of lab time, thinned where a run is long."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

MOST_SAMPLES = 512
"""The most samples of a channel. With one more, every other sample of all goes and the interval doubles: curves stay
even."""
MOST_CHANNELS = 64
"""How many channels of a host are sampled: those of the lowest index."""


class ChannelState(NamedTuple):
    """`acked_bytes` and `retransmits` so far."""

    acked_bytes: int
    cwnd_bytes: int
    rtt_us: float
    retransmits: int


class Curves:
    """Keeps the samples of all channels as columns. Times are ns after the begin."""

    def __init__(self, interval_ns: int) -> None:
        self.interval_ns = interval_ns
        self._samples: dict[int, list[tuple[int, ChannelState]]] = {}

    def add(self, at_ns: int, states: Iterable[tuple[int, ChannelState]]) -> None:
        """Take a sample of the channels given; channels that stand still add nothing."""
        longest = 0
        for channel, state in states:
            samples = self._samples.setdefault(channel, [])
            if samples and samples[-1][1] == state:
                continue
            samples.append((at_ns, state))
            longest = max(longest, len(samples))
        if longest > MOST_SAMPLES:
            self.interval_ns *= 2
            for channel, samples in self._samples.items():
                self._samples[channel] = samples[::2]

    def columns(self, channel: int) -> dict[str, list[int] | list[float]]:
        """Return `at_ns`, `acked_bytes`, `cwnd_bytes`, `rtt_us`, `retransmits`; empty where nothing was sampled."""
        samples = self._samples.get(channel, [])
        return {
            "at_ns": [at_ns for at_ns, _ in samples],
            "acked_bytes": [state.acked_bytes for _, state in samples],
            "cwnd_bytes": [state.cwnd_bytes for _, state in samples],
            "rtt_us": [state.rtt_us for _, state in samples],
            "retransmits": [state.retransmits for _, state in samples],
        }
