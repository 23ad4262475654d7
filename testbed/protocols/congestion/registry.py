"""Every congestion controller of flows by the name that `cc` gives it: in scenarios, settings, and on command lines.

A new controller is a module that has a `CONTROLLER`, and its line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from testbed.protocols.congestion import ccti, dcqcn, dctcp, swift, timely
from testbed.protocols.congestion.control import CongestionControl
from testbed.protocols.congestion.controller import FlowController, FlowSettings
from testbed.protocols.errors import UsageError

NONE: Final = FlowController(
    name="none",
    description="the rate of the NIC, whatever happens",
    make=lambda settings: CongestionControl(float(settings.link_rate_bps)),
)
CONTROLLERS: Final[Mapping[str, FlowController]] = MappingProxyType(
    {
        one.name: one
        for one in (dcqcn.CONTROLLER, timely.CONTROLLER, swift.CONTROLLER, dctcp.CONTROLLER, ccti.CONTROLLER, NONE)
    }
)
"""In the order in which they are listed."""
DEFAULT_CONTROLLER: Final = dcqcn.CONTROLLER.name


def make_control(name: str, settings: FlowSettings) -> CongestionControl:
    """The state of a new flow under the controller of that name. Raises `UsageError`."""
    controller = CONTROLLERS.get(name)
    if controller is None:
        raise UsageError(f"congestion control {name!r} is none of {', '.join(CONTROLLERS)}")
    if (settings.parameters or settings.overrides) and not controller.defaults:
        raise UsageError(f"congestion control {name!r} has no parameters")
    return controller.make(settings)
