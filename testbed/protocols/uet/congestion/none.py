"""No congestion control: a window of MaxWnd that nothing moves, which is what controllers are measured against."""

from __future__ import annotations

from typing import Final

from testbed.protocols.uet.congestion.controller import ContextController, with_window
from testbed.protocols.uet.congestion.window import CongestionWindow

CONTROLLER: Final[ContextController] = ContextController(
    name="none",
    description="a window of 1.5 bandwidth-delay products that nothing moves",
    make=with_window(lambda config, now: CongestionWindow(config.max_wnd_bytes, config.mtu_bytes)),
)
