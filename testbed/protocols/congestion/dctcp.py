"""DCTCP: a window that shrinks by the share of bytes that were marked in a round trip.

Source: RFC 8257, section 3.3, and Alizadeh et al., "Data Center TCP (DCTCP)", SIGCOMM 2010, section 3. It begins with a
bandwidth-delay product instead of slow start, as RoCE's NICs begin at line rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from testbed.protocols.congestion.control import CongestionControl
from testbed.protocols.congestion.controller import FlowController, FlowSettings, chosen_parameters, parameters_of
from testbed.protocols.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class DctcpParameters:
    """The gain is that of the RFC (section 4.2), the increase that of TCP. It gives no bounds of the window:
    `window_bdps` and `least_window` are ours."""

    gain: float = 1 / 16
    """g: the weight of the latest round trip in the estimate of how much is marked."""
    increase: float = 1.0
    """Packets in a round trip."""
    window_bdps: float = 1.5
    """The largest window, in bandwidth-delay products."""
    least_window: float = 1.0
    """The smallest window, in packets."""

    def __post_init__(self) -> None:
        for name in ("gain", "increase", "window_bdps", "least_window"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} of DCTCP is {getattr(self, name):g}; it must be above 0")
        if self.gain > 1:
            raise UsageError(f"gain of DCTCP is {self.gain:g}; it must be at most 1")


PARAMETER_SETS: Final[Mapping[str, DctcpParameters]] = MappingProxyType({"rfc8257": DctcpParameters()})


class DctcpFlow(CongestionControl):
    """One flow. `window` is in packets, `alpha` the estimate of the share of bytes that are marked."""

    def __init__(self, parameters: DctcpParameters, settings: FlowSettings) -> None:
        line = float(settings.link_rate_bps)
        super().__init__(line)
        self.precise_marks = True
        self._parameters: Final[DctcpParameters] = parameters
        self._mtu: Final[int] = settings.mtu_bytes
        bdp = line * settings.base_rtt_ns / 8e9 / settings.mtu_bytes
        self._least: Final[float] = parameters.least_window
        self._most: Final[float] = max(self._least, parameters.window_bdps * bdp)
        self._rtt_ns: int = settings.base_rtt_ns
        self._acked: int = 0
        self._marked: int = 0
        self._round: int = -1
        """When the round trip began in which bytes are counted; -1: none has."""
        self.alpha: float = 1.0
        self.window: float = max(self._least, min(self._most, bdp))
        self._apply()

    def on_ack(self, now: int, acked_bytes: int, marked: bool, rtt_ns: int) -> None:
        """Count what was acknowledged, grow, and at the end of a round trip shrink by what was marked of it."""
        if rtt_ns >= 0:
            self._rtt_ns = rtt_ns
        if not acked_bytes:
            return
        if self._round < 0:
            self._round = now
        self._acked += acked_bytes
        if marked:
            self._marked += acked_bytes
        else:
            self.window += self._parameters.increase * acked_bytes / self._mtu / max(self.window, 1.0)
        if now - self._round >= self._rtt_ns:
            self._end_round(now)
        self._apply()

    def on_loss(self, now: int, size: int) -> None:
        """A packet is missing: half the window, as TCP."""
        self.window /= 2
        self._apply()

    def on_timeout(self, now: int) -> None:
        """The peer is silent: the least window."""
        self.window = self._least
        self._apply()

    def state(self) -> dict[str, float]:
        """Return its estimate of the share of bytes that are marked."""
        return {"marked_share": self.alpha}

    def _end_round(self, now: int) -> None:
        self.alpha += self._parameters.gain * (self._marked / self._acked - self.alpha)
        if self._marked:
            self.window *= 1 - self.alpha / 2
        self._acked = 0
        self._marked = 0
        self._round = now

    def _apply(self) -> None:
        self.window = min(self._most, max(self._least, self.window))
        self.window_bytes = self.window * self._mtu


def _make(settings: FlowSettings) -> DctcpFlow:
    return DctcpFlow(chosen_parameters(PARAMETER_SETS, settings, "dctcp"), settings)


CONTROLLER: Final = FlowController(
    name="dctcp",
    description="a window that shrinks by the share of bytes that were marked",
    make=_make,
    parameter_sets=tuple(PARAMETER_SETS),
    defaults=parameters_of(next(iter(PARAMETER_SETS.values()))),
    values={name: parameters_of(one) for name, one in PARAMETER_SETS.items()},
)
