"""Swift: a window that keeps the round trip time at a target, which is higher for flows with small windows.

Source: Kumar et al., "Swift: Delay is Simple and Effective for Congestion Control in the Datacenter", SIGCOMM 2020,
algorithm 1 and section 3.5 (target delay). Delays of hosts are not told from those of the fabric: endpoints here answer
at once. A window below one packet becomes a rate.

A flow may leave a path that is congested, as Falcon's and PLB's do (Qureshi et al., "PLB: Congestion Signals Are Simple
and Effective for Network Load Balancing", SIGCOMM 2022): after so many round trips in a row of which more than half
were above the target, it asks for another one. Packets overtake each other then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from types import MappingProxyType
from typing import Final

from testbed.protocols.congestion.control import CongestionControl
from testbed.protocols.congestion.controller import FlowController, FlowSettings, chosen_parameters, parameters_of
from testbed.protocols.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class SwiftParameters:
    """The parameters of algorithm 1; times in base round trips of the fabric, windows in packets.

    ai, beta, max_mdf, fs_min_cwnd and fs_max_cwnd are the paper's, and so is the base target, 25 us where a round trip
    takes 20. It gives no number for fs_range, min_cwnd and max_cwnd: `range_rtts`, `least_window` and `window_bdps` are
    ours.
    """

    target_rtts: float = 1.25
    """The base target, scaling by hops included."""
    increase: float = 1.0
    """ai, packets in a round trip."""
    decrease: float = 0.8
    """beta."""
    most_decrease: float = 0.5
    """max_mdf: no single decrease takes more of the window."""
    range_rtts: float = 2.5
    """fs_range: by how much the target of the smallest window is higher."""
    least_scaled: float = 0.1
    """fs_min_cwnd: windows below this have the highest target."""
    most_scaled: float = 100.0
    """fs_max_cwnd: windows above this have the base target."""
    least_window: float = 0.01
    """min_cwnd."""
    window_bdps: float = 1.5
    """max_cwnd, in bandwidth-delay products: the window that a flow begins with."""
    repath_rounds: int = 0
    """After so many congested round trips in a row another path is asked for; 0: never."""

    def __post_init__(self) -> None:
        for name in ("target_rtts", "increase", "least_scaled", "least_window", "window_bdps"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} of Swift is {getattr(self, name):g}; it must be above 0")
        for name in ("decrease", "most_decrease"):
            if not 0 < getattr(self, name) <= 1:
                raise UsageError(f"{name} of Swift is {getattr(self, name):g}; it must be above 0 and at most 1")
        if self.repath_rounds < 0:
            raise UsageError(f"repath_rounds of Swift is {self.repath_rounds}; it must not be below 0")
        if self.range_rtts < 0 or self.most_scaled <= self.least_scaled:
            raise UsageError("range_rtts of Swift must not be below 0, and most_scaled must be above least_scaled")


PARAMETER_SETS: Final[Mapping[str, SwiftParameters]] = MappingProxyType(
    {"paper": SwiftParameters(), "plb": SwiftParameters(repath_rounds=12)}
)


class Swift(CongestionControl):
    """One flow. `window` is in packets."""

    def __init__(self, parameters: SwiftParameters, settings: FlowSettings) -> None:
        line = float(settings.link_rate_bps)
        super().__init__(line)
        self._parameters: Final[SwiftParameters] = parameters
        self._line: Final[float] = line
        self._mtu: Final[int] = settings.mtu_bytes
        self._base_ns: Final[int] = settings.base_rtt_ns
        bdp = line * settings.base_rtt_ns / 8e9 / settings.mtu_bytes
        self._most: Final[float] = max(1.0, parameters.window_bdps * bdp)
        span = 1 / sqrt(parameters.least_scaled) - 1 / sqrt(parameters.most_scaled)
        self._slope: Final[float] = parameters.range_rtts / span
        self._offset: Final[float] = -self._slope / sqrt(parameters.most_scaled)
        self._rtt_ns: int = settings.base_rtt_ns
        self._cut_at: int = -1
        """When the window was last made smaller; -1: never."""
        self._round_at: int = -1
        """When the round trip began in which samples are counted; -1: none has."""
        self._sampled: int = 0
        self._above: int = 0
        """The samples of this round trip, and those of them that were above the target."""
        self._congested: int = 0
        """Round trips in a row that were congested."""
        self.window: float = self._most
        self._apply()

    @property
    def target_ns(self) -> float:
        """The round trip time that this window aims at."""
        scaled = self._slope / sqrt(self.window) + self._offset
        parameters = self._parameters
        return self._base_ns * (parameters.target_rtts + max(0.0, min(scaled, parameters.range_rtts)))

    def on_ack(self, now: int, acked_bytes: int, marked: bool, rtt_ns: int) -> None:
        """Shrink where a round trip is above its target, once in a round trip, and grow while the latest is below."""
        if rtt_ns >= 0:
            self._rtt_ns = rtt_ns
            target = self.target_ns
            if self._parameters.repath_rounds:
                self._count_round(now, rtt_ns > target)
            if rtt_ns > target:
                self._cut(now, 1 - self._parameters.decrease * (rtt_ns - target) / rtt_ns)
        if acked_bytes and self._rtt_ns < self.target_ns:
            packets = acked_bytes / self._mtu
            self.window += self._parameters.increase * packets / max(self.window, 1.0)
            self._apply()

    def on_loss(self, now: int, size: int) -> None:
        """A packet is missing."""
        self._cut(now, 0.0)

    def on_timeout(self, now: int) -> None:
        """The peer is silent."""
        self._cut(now, 0.0)

    def state(self) -> dict[str, float]:
        """Return the round trip that it aims at."""
        return {"target_ns": self.target_ns}

    def _count_round(self, now: int, above: bool) -> None:
        """Count a sample, and at the end of a round trip whether it was congested."""
        if self._round_at < 0:
            self._round_at = now
        self._sampled += 1
        self._above += above
        if now - self._round_at < self._rtt_ns:
            return
        self._congested = self._congested + 1 if 2 * self._above > self._sampled else 0
        self._round_at = now
        self._sampled = 0
        self._above = 0
        if self._congested >= self._parameters.repath_rounds:
            self._congested = 0
            self.path += 1

    def _cut(self, now: int, factor: float) -> None:
        if self._cut_at >= 0 and now - self._cut_at < self._rtt_ns:
            return
        self._cut_at = now
        self.window *= max(factor, 1 - self._parameters.most_decrease)
        self._apply()

    def _apply(self) -> None:
        self.window = min(self._most, max(self._parameters.least_window, self.window))
        if self.window < 1:  # one packet at a time, and a pause after it
            self.window_bytes = float(self._mtu)
            self.rate_bps = min(self._line, self.window * self._mtu * 8e9 / self._rtt_ns)
        else:
            self.window_bytes = self.window * self._mtu
            self.rate_bps = self._line


def _make(settings: FlowSettings) -> Swift:
    return Swift(chosen_parameters(PARAMETER_SETS, settings, "swift"), settings)


CONTROLLER: Final = FlowController(
    name="swift",
    description="a window that keeps the round trip time at a target",
    make=_make,
    parameter_sets=tuple(PARAMETER_SETS),
    defaults=parameters_of(next(iter(PARAMETER_SETS.values()))),
    values={name: parameters_of(one) for name, one in PARAMETER_SETS.items()},
)
