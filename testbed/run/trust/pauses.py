"""Trust checks of the pauses in a lab with `qos:`: no lossless packet dropped, every pause obeyed in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.lab.core.plan.operations import LabPlan
from testbed.record.record import Check
from testbed.run.measuring.observation import Observation
from testbed.run.placed.lab import LiveLab

if TYPE_CHECKING:
    from testbed.daemons.portd.client import LabStatus


def reset_reactions(lab: LiveLab) -> None:
    """Have the pause agent forget what it measured, so that the pauses of one run alone are judged."""
    if lossless_priorities(lab.plan):
        lab.pause_agent.reset()


def lossless_priorities(plan: LabPlan) -> list[int]:
    """The priorities of the lab's lossless classes; none without `qos:`."""
    if plan.qos is None:
        return []
    return sorted({item.priority for profile in plan.qos.profiles for item in profile.classes if item.lossless})


def check_lossless(plan: LabPlan, seen: Observation) -> list[Check]:
    """Tell whether a packet of a lossless class was dropped at a queue; nothing where there is no such class."""
    from testbed.lab.observe.telemetry import QUEUE_DROPS

    if not lossless_priorities(plan) or seen.growth is None or seen.table is None:
        return []
    queues = seen.growth.queues
    packets = sum(int(queues[f"{name}_packets"][seen.table.lossless].sum()) for name in QUEUE_DROPS.values())
    return [
        Check(
            name="lossless",
            title="No packet of a lossless class dropped",
            value=packets,
            limit=0,
            ok=not packets,
            message=f"{packets} packets of lossless classes were dropped",
        )
    ]


def check_reaction(pausing: LabStatus | None, plan: LabPlan) -> list[Check]:
    """Tell whether pauses were obeyed within the time that the headroom is planned for; nothing without lossless
    classes.
    """
    if pausing is None or plan.qos is None:
        return []
    reaction, planned_ns = pausing.reaction, plan.qos.reaction_ns
    return [
        Check.at_most(
            name="pause-reaction",
            title="Pauses obeyed within the planned time",
            value=reaction.max_ns / 1e6,
            limit=planned_ns / 1e6,
            message=f"{reaction.count} pauses were obeyed within p50 {reaction.p50_ns / 1e6:.2f}, p99"
            f" {reaction.p99_ns / 1e6:.2f}, at most {reaction.max_ns / 1e6:.2f} ms; headroom is planned for"
            f" {planned_ns / 1e6:.2f} ms",
        )
    ]
