"""NSCC and RCCC together: a source sends what its window and its credit both permit."""

from __future__ import annotations

from typing import Final

from testbed.protocols.uet.congestion.context import CongestionContext
from testbed.protocols.uet.congestion.controller import ContextController
from testbed.protocols.uet.congestion.nscc import Nscc
from testbed.protocols.uet.congestion.rccc import make_credit, make_scheduler

CONTROLLER: Final[ContextController] = ContextController(
    name="both",
    description="nscc and rccc: a source sends what both permit",
    make=lambda config, now: CongestionContext(Nscc(config, now), make_credit(config, now)),
    make_grants=make_scheduler,
)
