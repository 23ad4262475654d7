"""What guards, policies between tenants, borders and management ports have dropped: `inspect guards` and `stats`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.deploy.live import RunningLab
from testbed.deploy.watch.management import read_kept_apart
from testbed.drivers.netlink.policies import DeniedBy
from testbed.plan.interfaces import natural_key

Dropped = Mapping[tuple[str, str, str], tuple[int, int]]
"""Packets and bytes by switch, port and guard. The port of a policy is its tenant and the wire to the other one."""


def read_dropped(lab: RunningLab) -> Dropped:
    """Read the counters of the guards in the network that the lab is seen in; empty where it has none."""
    ports = {(port.node, port.name) for port in lab.plan.ports}
    switches = {switch.node for switch in lab.plan.switches}
    dropped = {
        (node, counter.interface, counter.guard.value): (counter.packets, counter.bytes)
        for node, counters in lab.guard_counters().items()
        for counter in counters
        if (node, counter.interface) in ports
    }
    for (switch, tenant), denied in lab.denied_counters().items():
        for counter in denied if switch in switches else ():
            dropped[switch, counter.port(tenant), counter.by.value] = (counter.packets, counter.bytes)
    for (node, port), apart in read_kept_apart(lab).items():
        for side in apart:
            dropped[node, port, side.side.value] = (side.packets, side.bytes)
    return dropped


def guard_rows(lab: RunningLab, now: Dropped, before: Dropped | None = None) -> list[dict[str, Any]]:
    """A row for each guard of each port, in the order of switches and ports, with what it dropped since `before`."""
    hosts = {(port.node, port.name): port.peer for port in lab.plan.ports}
    tenants = () if lab.model.overlay is None else lab.model.overlay.tenants
    others = {f"to{tenant.vni}": f"tenant {tenant.name}" for tenant in tenants}
    earlier = before or {}
    rows = []
    for key in sorted(now, key=lambda key: (key[0], natural_key(key[1]))):
        (switch, port, guard), (packets, size) = key, now[key]
        packets_before, size_before = earlier.get(key, (0, 0))
        rows.append(
            {
                "switch": switch,
                "port": port,
                "host": others[port.partition(":")[2]] if guard == DeniedBy.POLICY else hosts[switch, port],
                "guard": guard,
                "dropped": packets - packets_before,
                "bytes": size - size_before,
            }
        )
    return rows


def guard_words(rows: list[dict[str, Any]]) -> str:
    """One line for all of them; "" where there are no guards."""
    if not rows:
        return ""
    packets = sum(row["dropped"] for row in rows)
    ports = len({(row["switch"], row["port"]) for row in rows if row["dropped"]})
    return f"guards dropped {packets} packets at {ports} ports; `testbed inspect guards` lists them"
