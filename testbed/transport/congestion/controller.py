"""Every congestion controller of flows by the name that `cc` gives it, and what one declares of itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from testbed.transport.congestion.control import CongestionControl


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSettings:
    """What a controller is made from."""

    link_rate_bps: int
    """Of the NIC, in the lab."""
    base_rtt_ns: int
    """Of the empty fabric, in the lab."""
    time_scale: float
    """By how much the lab is slower than the fabric that it models."""
    mtu_bytes: int
    """Of a full packet on the wire."""
    parameters: str = ""
    """The name of a set of parameters; "": the controller's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """One value of `cc`: its name, a line about it, and what makes the state of a new flow at a time (ns)."""

    name: str
    description: str
    make: Callable[[FlowSettings, int], CongestionControl]


NONE: Final = Controller(
    name="none",
    description="the NIC's rate, whatever happens",
    make=lambda settings, now: CongestionControl(settings.link_rate_bps),
)
CONTROLLERS: Final[Mapping[str, Controller]] = MappingProxyType({one.name: one for one in (NONE,)})
DEFAULT_CONTROLLER: Final = NONE.name
