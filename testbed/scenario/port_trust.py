"""Trust checks of a lab with `qos:`: no lossless packet dropped, pauses obeyed in time, counters that add up."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field

from testbed.portd.client import LabStatus
from testbed.results import Check
from testbed.scenario.lab import LiveLab


@dataclass(slots=True)
class PortFindings:
    """The checks of one run; filled when the watch ends, empty for a lab without `qos:`."""

    checks: list[Check] = field(default_factory=list)


@contextlib.contextmanager
def watch_ports(lab: LiveLab) -> Iterator[PortFindings]:
    """Watch the ports while the traffic of a run flows."""
    findings = PortFindings()
    qos = lab.plan.qos
    if qos is None:
        yield findings
        return
    from testbed.collect.port_table import tabulate_ports
    from testbed.collect.reconcile import Balance, reconcile
    from testbed.collect.telemetry import QUEUE_DROPS, take_snapshot

    lossless = sorted({item.priority for profile in qos.profiles for item in profile.classes if item.lossless})
    maps = lab.maps()
    try:
        before = take_snapshot(maps)
        if lossless:
            lab.pause_agent.reset()
        yield findings
        growth = take_snapshot(maps).since(before)
        if lossless:
            dropped = sum(int(growth.queues[f"{name}_packets"][:, lossless].sum()) for name in QUEUE_DROPS.values())
            findings.checks.append(_no_drops(dropped))
            findings.checks.append(_reaction(lab.pause_agent.status().labs[lab.name], qos.reaction_ns))
        result = reconcile(maps, tabulate_ports(lab.plan))
        broken = sum(item.state is Balance.BROKEN for item in result.imbalances)
        findings.checks.append(
            Check(
                name="reconcile",
                title="Counters of the ports add up",
                value=broken,
                limit=0,
                ok=not broken,
                message=str(result),
            )
        )
    finally:
        maps.close()


def _no_drops(packets: int) -> Check:
    return Check(
        name="lossless",
        title="No packet of a lossless class dropped",
        value=packets,
        limit=0,
        ok=not packets,
        message=f"{packets} packets of lossless classes were dropped",
    )


def _reaction(status: LabStatus, planned_ns: int) -> Check:
    reaction = status.reaction
    return Check(
        name="pause-reaction",
        title="Pauses obeyed within the planned time",
        value=reaction.max_ns / 1e6,
        limit=planned_ns / 1e6,
        ok=reaction.max_ns <= planned_ns,
        message=f"{reaction.count} pauses were obeyed within p50 {reaction.p50_ns / 1e6:.2f}, p99"
        f" {reaction.p99_ns / 1e6:.2f}, at most {reaction.max_ns / 1e6:.2f} ms; headroom is planned for"
        f" {planned_ns / 1e6:.2f} ms",
    )
