"""Rows of what guards, policies, borders and management ports have dropped: `inspect guards` and `stats`."""

from __future__ import annotations

from typing import Any

from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.plan.interfaces import natural_key
from testbed.lab.features.guards.watch import Dropped
from testbed.lab.features.overlay.policies_nft import DeniedBy


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
