"""Every congestion controller by the name that `cc` gives it: in scenarios, settings, and on command lines.

A new controller is a module that has a `CONTROLLER`, and its line here.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from testbed.protocols.uet.congestion import both, none, nscc, rccc
from testbed.protocols.uet.congestion.context import CongestionContext
from testbed.protocols.uet.congestion.controller import ContextController
from testbed.protocols.uet.congestion.nscc_config import NsccConfig

CONTROLLERS: Final[Mapping[str, ContextController]] = MappingProxyType(
    {one.name: one for one in (nscc.CONTROLLER, rccc.CONTROLLER, both.CONTROLLER, none.CONTROLLER)}
)
"""In the order in which they are listed."""

DEFAULT_CONTROLLER: Final = nscc.CONTROLLER.name


def make_context(name: str, config: NsccConfig, now: int) -> CongestionContext:
    """Return the context of a source in its initial state, under the controller of that name, at `now` (ns)."""
    return CONTROLLERS[name].make(config, now)
