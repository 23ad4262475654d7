"""InfiniBand's congestion control at a sender: an index into a table of delays, which BECNs raise and a timer lowers.

A switch marks frames (FECN) where a queue is too long; the HCA that gets one tells its sender (BECN, here a CNP). The
sender's congestion control table (CCT) has, by its index (CCTI), how long a queue pair waits after each packet: so
many times as long as the packet takes. A BECN raises the index by `increase`, up to `limit`; every `timer_us` it falls
by one, down to `minimum`. The rate is that of the line over one and the entry.

The entries are the subnet manager's; here each is by `step` more than the one before it. Times of the parameters are
those of the fabric; the lab's are longer by its time scale. Nothing here has a timer: what time has done is made up for
whenever the rate is asked for.

Source: InfiniBand Architecture Specification volume 1, release 1.4, annex A10.2.1.2 (CA congestion control), A10.4.3.8
(CongestionControlTable: 14 bits and a shift of up to 3, so that entries come in eighths).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from testbed.protocols.congestion.control import CongestionControl
from testbed.protocols.congestion.controller import FlowController, FlowSettings, chosen_parameters, parameters_of
from testbed.protocols.errors import UsageError

TIMER_UNIT_US: Final = 1.024
"""The unit of CCTI_Timer (annex A10.4.3.6)."""
_US: Final = 1000
_LARGEST_ENTRY: Final = 1 << 14
_EIGHTHS: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CctiParameters:
    """A set of parameters, of a fabric at its full speed."""

    increase: int
    """The index rises by so much with each BECN (CCTI_Increase)."""
    timer_us: float
    """The index falls by one so often (CCTI_Timer)."""
    limit: int
    """The largest index (CCT_Limit)."""
    minimum: int
    """The least index (CCTI_Min)."""
    step: float
    """An entry of the table is so many packet times more than the one before it, rounded down to eighths."""

    def __post_init__(self) -> None:
        for name in ("increase", "limit", "minimum"):
            if getattr(self, name) != int(getattr(self, name)):
                raise UsageError(f"{name} of ccti is {getattr(self, name):g}; it must be a whole number")
        if not 1 <= self.increase <= 255:
            raise UsageError(f"increase of ccti is {self.increase:g}; it must be 1 to 255")
        if self.timer_us <= 0:
            raise UsageError(f"timer_us of ccti is {self.timer_us:g}; it must be above 0")
        if not 0 <= self.minimum <= self.limit <= 65_535 or not self.limit:
            raise UsageError(f"minimum {self.minimum:g} and limit {self.limit:g} of ccti: 0 to 65535, in this order")
        if self.step <= 0 or self.step * self.limit >= _LARGEST_ENTRY:
            raise UsageError(f"step of ccti is {self.step:g}: above 0, and {self.limit:g} times that below 16384")


def _default() -> CctiParameters:
    """An index up at each BECN and down with each unit of the timer; entries up to 32 packet times, in fine steps.

    The specification leaves all values to the subnet manager: these are ours. With steps of an eighth the rates of an
    incast swing so far that a victim of it has 65 % of its line, where it has 72 % of the 75 % that there are with
    these.
    """
    return CctiParameters(increase=1, timer_us=TIMER_UNIT_US, limit=1023, minimum=0, step=1 / 32)


PARAMETER_SETS: Final[Mapping[str, CctiParameters]] = MappingProxyType({"default": _default()})
"""By the name that `parameters` gives them."""


class Ccti(CongestionControl):
    """The state of one queue pair. It starts at the rate of its NIC."""

    def __init__(self, parameters: CctiParameters, settings: FlowSettings) -> None:
        line = float(settings.link_rate_bps)
        super().__init__(line)
        self.notification_ns = 0
        self._line: Final[float] = line
        self._timer_ns: Final[int] = max(1, int(parameters.timer_us * _US * settings.time_scale))
        self._rise: Final[int] = int(parameters.increase)
        self._limit: Final[int] = int(parameters.limit)
        self._least: Final[int] = int(parameters.minimum)
        self._step: Final[float] = float(parameters.step)
        self.index: int = self._least
        """CCTI."""
        self._falls_at: int = 0
        """When the timer lowers it next; there is nothing to lower before."""
        self._set_rate()

    def on_notification(self, now: int) -> None:
        """A BECN has come."""
        self.update(now)
        if self.index == self._least:
            self._falls_at = now + self._timer_ns
        self.index = min(self._limit, self.index + self._rise)
        self._set_rate()

    def update(self, now: int) -> None:
        """Lower the index by what the timer has done up to now."""
        if self.index == self._least or now < self._falls_at:
            return
        times = (now - self._falls_at) // self._timer_ns + 1
        self._falls_at += times * self._timer_ns
        self.index = max(self._least, self.index - times)
        self._set_rate()

    def state(self) -> dict[str, float]:
        """Return the index."""
        return {"ccti": float(self.index)}

    def _set_rate(self) -> None:
        entry = int(self.index * self._step * _EIGHTHS) / _EIGHTHS
        self.rate_bps = self._line / (1 + entry)


def _make(settings: FlowSettings) -> Ccti:
    return Ccti(chosen_parameters(PARAMETER_SETS, settings, "ccti"), settings)


CONTROLLER: Final = FlowController(
    name="ccti",
    description="InfiniBand's: a delay behind each packet, from a table that marks lead up and a timer down",
    make=_make,
    parameter_sets=tuple(PARAMETER_SETS),
    defaults=parameters_of(next(iter(PARAMETER_SETS.values()))),
    values={name: parameters_of(one) for name, one in PARAMETER_SETS.items()},
)
