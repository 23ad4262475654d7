"""Counts what switches refuse to forward: guards of ports, policies between tenants, borders, and management ports.

Three features count it, each in its own tables of nftables. Here they meet, for `inspect guards`, `stats`, and runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.plan.interfaces import natural_key
from testbed.lab.features.guards.watch import guard_counters
from testbed.lab.features.management.watch import read_kept_apart
from testbed.lab.features.overlay.policies_nft import DeniedBy
from testbed.lab.features.overlay.watch_tenants import denied_counters

Dropped = Mapping[tuple[str, str, str], tuple[int, int]]
"""Packets and bytes by switch, port and guard. The port of a policy is its tenant and the wire to the other one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedRow:
    """The packets that a guard has dropped at a port; `host` is whom the port leads to."""

    switch: str
    port: str
    host: str
    guard: str
    dropped: int
    bytes: int


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


def dropped_rows(lab: RunningLab, now: Dropped, before: Dropped | None = None) -> list[DroppedRow]:
    """Make a row for each guard of each port, in the order of switches and ports, of what it dropped since `before`."""
    hosts = {(port.node, port.name): port.peer for port in lab.plan.ports}
    tenants = () if lab.model.overlay is None else lab.model.overlay.tenants
    others = {f"to{tenant.vni}": f"tenant {tenant.name}" for tenant in tenants}
    rows = []
    for key in sorted(now, key=lambda key: (key[0], natural_key(key[1]))):
        switch, port, guard = key
        packets_before, size_before = (before or {}).get(key, (0, 0))
        packets, size = now[key][0] - packets_before, now[key][1] - size_before
        host = others[port.partition(":")[2]] if guard == DeniedBy.POLICY else hosts[switch, port]
        rows.append(DroppedRow(switch=switch, port=port, host=host, guard=guard, dropped=packets, bytes=size))
    return rows


def dropped_sentence(rows: Sequence[DroppedRow]) -> str:
    """Sum all guards up in a line; "" where there are none."""
    if not rows:
        return ""
    packets = sum(row.dropped for row in rows)
    ports = len({(row.switch, row.port) for row in rows if row.dropped})
    return f"guards dropped {packets} packets at {ports} ports; `testbed inspect guards` lists them"
