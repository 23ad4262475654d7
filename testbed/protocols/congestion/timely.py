"""TIMELY: a rate that follows the gradient of the round trip time.

Source: Mittal et al., "TIMELY: RTT-based Congestion Control for the Datacenter", SIGCOMM 2015, algorithm 1. Its
thresholds, given there for a fabric of 20 us and NICs of 10 Gbit/s, are kept as multiples of the base round trip and
shares of the rate of the NIC.
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
class TimelyParameters:
    """The parameters of algorithm 1, as section 5 of the paper sets them; `least` is ours."""

    low_rtts: float = 2.5
    """T_low, below which the rate rises whatever the gradient: 50 us, in base round trips."""
    high_rtts: float = 25.0
    """T_high, above which it falls: 500 us, in base round trips."""
    increase: float = 0.001
    """delta, of the rate of the NIC: 10 Mbit/s of 10 Gbit/s."""
    decrease: float = 0.8
    """beta."""
    weight: float = 0.875
    """alpha, of the latest difference of two round trips in their mean."""
    hyper_after: int = 5
    """Increases in a row after which each counts as five (hyper-active increase)."""
    least: float = 0.001
    """The part of the NIC's rate below which the rate does not fall."""

    def __post_init__(self) -> None:
        for name in ("low_rtts", "increase", "least"):
            if getattr(self, name) <= 0:
                raise UsageError(f"{name} of TIMELY is {getattr(self, name):g}; it must be above 0")
        for name in ("decrease", "weight"):
            if not 0 < getattr(self, name) <= 1:
                raise UsageError(f"{name} of TIMELY is {getattr(self, name):g}; it must be above 0 and at most 1")
        if self.high_rtts <= self.low_rtts:
            raise UsageError(f"high_rtts of TIMELY is {self.high_rtts}; it must be above low_rtts, {self.low_rtts}")


_HYPER: Final = 5
PARAMETER_SETS: Final[Mapping[str, TimelyParameters]] = MappingProxyType({"paper": TimelyParameters()})


class Timely(CongestionControl):
    """One flow."""

    def __init__(self, parameters: TimelyParameters, settings: FlowSettings) -> None:
        line = float(settings.link_rate_bps)
        super().__init__(line)
        self._parameters: Final[TimelyParameters] = parameters
        self._line: Final[float] = line
        self._least: Final[float] = parameters.least * line
        self._unit_ns: Final[float] = float(settings.base_rtt_ns)
        self._low_ns: Final[float] = parameters.low_rtts * settings.base_rtt_ns
        self._high_ns: Final[float] = parameters.high_rtts * settings.base_rtt_ns
        self._rtt_ns: int = 0
        """The latest; 0: none."""
        self._difference_ns: float = 0.0
        """The difference of two round trips in a row, on average."""
        self._rises: int = 0
        """Increases in a row."""

    def on_ack(self, now: int, acked_bytes: int, marked: bool, rtt_ns: int) -> None:
        """Change the rate by a round trip."""
        if rtt_ns < 0:
            return
        parameters = self._parameters
        before, self._rtt_ns = self._rtt_ns, rtt_ns
        if not before:
            return
        self._difference_ns += parameters.weight * (rtt_ns - before - self._difference_ns)
        gradient = self._difference_ns / self._unit_ns
        if rtt_ns < self._low_ns:
            self._rise(1)
        elif rtt_ns > self._high_ns:
            self._fall(1 - self._high_ns / rtt_ns)
        elif gradient <= 0:
            self._rise(_HYPER if self._rises >= parameters.hyper_after else 1)
        else:
            self._fall(gradient)

    def on_timeout(self, now: int) -> None:
        """Half the rate: the paper says nothing of losses."""
        self._fall(0.5 / self._parameters.decrease)

    def state(self) -> dict[str, float]:
        """Return the gradient of round trips, in base round trips."""
        return {"gradient": self._difference_ns / self._unit_ns}

    def _rise(self, times: int) -> None:
        self._rises += 1
        self.rate_bps = min(self._line, self.rate_bps + times * self._parameters.increase * self._line)

    def _fall(self, share: float) -> None:
        self._rises = 0
        self.rate_bps = max(self._least, self.rate_bps * max(0.0, 1 - self._parameters.decrease * share))


def _make(settings: FlowSettings) -> Timely:
    return Timely(chosen_parameters(PARAMETER_SETS, settings, "timely"), settings)


CONTROLLER: Final = FlowController(
    name="timely",
    description="a rate that follows the gradient of the round trip time",
    make=_make,
    parameter_sets=tuple(PARAMETER_SETS),
    defaults=parameters_of(next(iter(PARAMETER_SETS.values()))),
    values={name: parameters_of(one) for name, one in PARAMETER_SETS.items()},
)
