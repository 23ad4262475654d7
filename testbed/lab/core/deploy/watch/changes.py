"""Waiting for a lab to change by itself: neighbours that answer again, links and routes that come back."""

from __future__ import annotations

import select
import time
from typing import ClassVar

from testbed.base.cleanup import on_failure
from testbed.base.errors import DriverError
from testbed.base.linux import rtnetlink, syscalls
from testbed.base.linux.namespaces import enter_namespace
from testbed.base.linux.routes import RouteMonitor
from testbed.base.names import namespace_name
from testbed.lab.core.deploy.live import RunningLab

QUIET_S = 0.05
"""Changes that come together are over once none has come for so long."""


class _NodeMonitor(RouteMonitor):
    """Notice that links, neighbours or routes of a namespace changed."""

    GROUPS: ClassVar[tuple[int, ...]] = (
        rtnetlink.RTNLGRP_LINK,
        rtnetlink.RTNLGRP_NEIGH,
        rtnetlink.RTNLGRP_IPV4_ROUTE,
        rtnetlink.RTNLGRP_IPV6_ROUTE,
    )


class ChangeWatch:
    """Hears of every change of links, neighbours and routes in a lab, from when it was made until it is closed.

    A node that is not there tells nothing.
    """

    def __init__(self, lab: RunningLab) -> None:
        places = {node.name for node in lab.model.nodes} | {port.place for port in lab.plan.ports}
        self._monitors: dict[int, _NodeMonitor] = {}
        self._poller = select.epoll()

        def subscribe() -> None:
            for place in places:
                try:
                    enter_namespace(namespace_name(lab.name, place))
                except DriverError:
                    continue
                monitor = _NodeMonitor()
                self._monitors[monitor.fileno()] = monitor
                self._poller.register(monitor.fileno(), select.EPOLLIN)

        with on_failure(self.close):
            syscalls.in_thread(subscribe)

    def wait(self, timeout_s: float) -> bool:
        """Wait for a change, and until none follows it; tell whether there was one within the time."""
        end_s = time.monotonic() + timeout_s
        changed = False
        while (left_s := end_s - time.monotonic()) > 0:
            ready = self._poller.poll(min(left_s, QUIET_S) if changed else left_s)
            heard = [self._monitors[descriptor].drain() for descriptor, _ in ready]
            if changed and not ready:
                break
            changed = changed or any(heard)
        return changed

    def close(self) -> None:
        """Let go of all sockets."""
        for monitor in self._monitors.values():
            monitor.close()
        self._poller.close()
