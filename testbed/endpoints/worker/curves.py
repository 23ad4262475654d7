"""The course of channels over time: a sample of each every few milliseconds of lab time, thinned where a run is
long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, NamedTuple

MOST_SAMPLES = 512
"""The most samples of a channel. With one more, every other sample of all goes and the interval doubles: curves stay
even."""
MOST_CHANNELS = 64
"""The number of channels of a host that are sampled: those of the lowest index."""


class ChannelState(NamedTuple):
    """`acked_bytes` and `retransmits` so far.

    `rate_bps` is what its congestion control lets it send, where that sets a rate, and `control` what it knows besides,
    by name.
    """

    acked_bytes: int
    cwnd_bytes: int
    rtt_us: float
    retransmits: int
    rate_bps: float | None = None
    control: tuple[tuple[str, float], ...] = ()

    def stands_still(self, before: ChannelState) -> bool:
        """Tell whether nothing has happened since; what time alone does to a controller is nothing."""
        return self[:4] == before[:4]


def mean_state(states: Iterable[Mapping[str, float]]) -> tuple[tuple[str, float], ...]:
    """Return what several controllers of a channel know, each name's mean over those that have it."""
    values: dict[str, list[float]] = {}
    for state in states:
        for name, value in state.items():
            values.setdefault(name, []).append(value)
    return tuple((name, sum(found) / len(found)) for name, found in values.items())


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
            if samples and state.stands_still(samples[-1][1]):
                continue
            samples.append((at_ns, state))
            longest = max(longest, len(samples))
        if longest > MOST_SAMPLES:
            self.interval_ns *= 2
            for channel, samples in self._samples.items():
                self._samples[channel] = samples[::2]

    def columns(self, channel: int) -> dict[str, Any]:
        """Return `at_ns`, `acked_bytes`, `cwnd_bytes`, `rtt_us`, `retransmits`; empty where nothing was sampled.

        Where congestion control sets a rate there is `rate_bps`, and in `control` what it knows besides, a column for
        each name.
        """
        samples = self._samples.get(channel, [])
        states = [state for _, state in samples]
        columns: dict[str, Any] = {
            "at_ns": [at_ns for at_ns, _ in samples],
            "acked_bytes": [state.acked_bytes for state in states],
            "cwnd_bytes": [state.cwnd_bytes for state in states],
            "rtt_us": [state.rtt_us for state in states],
            "retransmits": [state.retransmits for state in states],
        }
        if any(state.rate_bps is not None for state in states):
            columns["rate_bps"] = [_finite(state.rate_bps) for state in states]
        names = dict.fromkeys(name for state in states for name, _ in state.control)
        if names:
            known = [dict(state.control) for state in states]
            columns["control"] = {name: [_finite(one.get(name)) for one in known] for name in names}
        return columns


def _finite(value: float | None) -> float | None:
    """The value as JSON can have it: an infinite one is not known."""
    return value if value is not None and isfinite(value) else None
