"""Congestion control of UET sources and destinations: NSCC, RCCC, the context that joins them, and the registry."""

from testbed.transport.uet.congestion.context import CcState, CongestionContext
from testbed.transport.uet.congestion.controller import ContextController
from testbed.transport.uet.congestion.nscc import Nscc, NsccConfig
from testbed.transport.uet.congestion.rccc import CreditScheduler, CreditSource
from testbed.transport.uet.congestion.registry import CONTROLLERS, DEFAULT_CONTROLLER, make_context
from testbed.transport.uet.congestion.window import Window

__all__ = [
    "CONTROLLERS",
    "DEFAULT_CONTROLLER",
    "CcState",
    "CongestionContext",
    "ContextController",
    "CreditScheduler",
    "CreditSource",
    "Nscc",
    "NsccConfig",
    "Window",
    "make_context",
]
