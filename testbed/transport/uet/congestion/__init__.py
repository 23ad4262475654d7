"""Congestion control of UET sources and destinations: NSCC, RCCC, and the context that joins them."""

from testbed.transport.uet.congestion.context import (
    CcKind,
    CcState,
    CongestionContext,
    NoCongestionControl,
    make_context,
)
from testbed.transport.uet.congestion.nscc import Nscc, NsccConfig
from testbed.transport.uet.congestion.rccc import CreditScheduler, CreditSource

__all__ = [
    "CcKind",
    "CcState",
    "CongestionContext",
    "CreditScheduler",
    "CreditSource",
    "NoCongestionControl",
    "Nscc",
    "NsccConfig",
    "make_context",
]
