"""What guards, policies between tenants, borders and management ports of a live lab have dropped since its deploy."""

from __future__ import annotations

from collections.abc import Mapping

from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.features.management.watch import read_kept_apart

Dropped = Mapping[tuple[str, str, str], tuple[int, int]]
"""Packets and bytes by switch, port and guard. The port of a policy is its tenant and the wire to the other one."""


def read_dropped(lab: RunningLab) -> Dropped:
    """Read the counters of the guards in the network that the lab is seen in; empty where it has none."""
    ports = {(port.node, port.name) for port in lab.plan.ports}
    dropped = {
        (node, counter.interface, counter.guard.value): (counter.packets, counter.bytes)
        for node, counters in lab.guard_counters().items()
        for counter in counters
        if (node, counter.interface) in ports
    }
    for (switch, tenant), denied in lab.denied_counters().items():
        for counter in denied:
            dropped[switch, counter.port(tenant), counter.by.value] = (counter.packets, counter.bytes)
    for (node, port), apart in read_kept_apart(lab).items():
        for side in apart:
            dropped[node, port, side.side.value] = (side.packets, side.bytes)
    return dropped
