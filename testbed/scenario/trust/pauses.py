"""Trust checks of a lab with `qos:`: no lossless packet dropped, pauses obeyed in time, counters that add up."""

from __future__ import annotations

import contextlib

from testbed.plan.operations import LabPlan
from testbed.portd.client import LabStatus
from testbed.results import Check
from testbed.scenario.run.lab import LiveLab
from testbed.scenario.run.observation import Observation


def reset_reactions(lab: LiveLab) -> None:
    """Measure the pauses of a run alone."""
    if _lossless_priorities(lab.plan):
        lab.pause_agent.reset()


def check_ports(lab: LiveLab, seen: Observation) -> list[Check]:
    """The checks of the run that `seen` watched; none for a lab without `qos:`."""
    qos = lab.plan.qos
    if qos is None or seen.growth is None or seen.table is None:
        return []
    from testbed.collect.reconcile import Balance, reconcile
    from testbed.collect.telemetry import QUEUE_DROPS

    checks = []
    lossless = _lossless_priorities(lab.plan)
    if lossless:
        queues = seen.growth.queues
        dropped = sum(int(queues[f"{name}_packets"][:, lossless].sum()) for name in QUEUE_DROPS.values())
        checks.append(_no_drops(dropped))
        checks.append(_reaction(lab.pause_agent.status().labs[lab.name], qos.reaction_ns))
    with contextlib.closing(lab.maps()) as maps:
        result = reconcile(maps, seen.table)
    broken = sum(item.state is Balance.BROKEN for item in result.imbalances)
    checks.append(
        Check.at_most(
            name="reconcile",
            title="Counters of the ports add up",
            value=broken,
            limit=0,
            message=str(result),
        )
    )
    return checks


def _lossless_priorities(plan: LabPlan) -> list[int]:
    if plan.qos is None:
        return []
    return sorted({item.priority for profile in plan.qos.profiles for item in profile.classes if item.lossless})


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
    return Check.at_most(
        name="pause-reaction",
        title="Pauses obeyed within the planned time",
        value=reaction.max_ns / 1e6,
        limit=planned_ns / 1e6,
        message=f"{reaction.count} pauses were obeyed within p50 {reaction.p50_ns / 1e6:.2f}, p99"
        f" {reaction.p99_ns / 1e6:.2f}, at most {reaction.max_ns / 1e6:.2f} ms; headroom is planned for"
        f" {planned_ns / 1e6:.2f} ms",
    )
