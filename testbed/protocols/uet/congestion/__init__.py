"""Congestion control of UET sources and destinations: NSCC, RCCC, the context that joins them, and the registry."""

from testbed.protocols.uet.congestion.context import CongestionContext
from testbed.protocols.uet.congestion.controller import ContextController
from testbed.protocols.uet.congestion.nscc import Nscc
from testbed.protocols.uet.congestion.nscc_config import NsccConfig
from testbed.protocols.uet.congestion.rccc import CreditScheduler, CreditSource
from testbed.protocols.uet.congestion.registry import CONTROLLERS, DEFAULT_CONTROLLER, make_context
from testbed.protocols.uet.congestion.window import CongestionWindow
