"""What guards, policies between tenants, borders and management ports of a live lab have dropped since its deploy."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from testbed.base.linux import syscalls
from testbed.base.linux.namespaces import enter_namespace
from testbed.base.linux.nftables import NetfilterSocket
from testbed.base.names import namespace_name
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.plan.operations import GuardSwitch
from testbed.lab.features.guards.apply import GuardCounter, read_guards
from testbed.lab.features.management.watch import read_kept_apart
from testbed.lab.features.overlay.watch_tenants import denied_counters

Dropped = Mapping[tuple[str, str, str], tuple[int, int]]
"""Packets and bytes by switch, port and guard. The port of a policy is its tenant and the wire to the other one."""


def guard_counters(lab: RunningLab) -> Mapping[str, list[GuardCounter]]:
    """What the guards of each switch have dropped since the deploy; switches without guards are left out."""
    guarded = {(item.node, item.vrf): None for item in lab.plan.operations if isinstance(item, GuardSwitch)}

    def read() -> dict[str, list[GuardCounter]]:
        found: dict[str, list[GuardCounter]] = {}
        for node, vrf in guarded:  # tenants whose VRFs are devices have their ports in one namespace
            enter_namespace(namespace_name(lab.name, vrf or node))
            with closing(NetfilterSocket()) as socket:
                found.setdefault(node, []).extend(read_guards(socket))
        return found

    return syscalls.in_thread(read)


def read_dropped(lab: RunningLab) -> Dropped:
    """Read the counters of the guards in the network that the lab is seen in; empty where it has none."""
    ports = {(port.node, port.name) for port in lab.plan.ports}
    dropped = {
        (node, counter.interface, counter.guard.value): (counter.packets, counter.bytes)
        for node, counters in guard_counters(lab).items()
        for counter in counters
        if (node, counter.interface) in ports
    }
    for (switch, tenant), denied in denied_counters(lab).items():
        for counter in denied:
            dropped[switch, counter.port(tenant), counter.by.value] = (counter.packets, counter.bytes)
    for (node, port), apart in read_kept_apart(lab).items():
        for side in apart:
            dropped[node, port, side.side.value] = (side.packets, side.bytes)
    return dropped
