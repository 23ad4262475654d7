"""The lab of a point as the simulator has it: planned at the real fabric's rates, and made nowhere."""

from __future__ import annotations

from testbed.model import DelayBy, Lab
from testbed.plan import plan_lab
from testbed.scenario.sweep.outlook import PlannedLab

TIME_SCALE = 1.0
"""Simulated time is that of the real fabric."""
PAUSE_REACTION_NS = 1_000
"""From the arrival of a pause frame until the port has stopped: that of a MAC, in the order of the 905 pause quanta of
512 bit times that IEEE 802.3 (clause 31B.3.7) gives a port of 400 Gbit/s."""
PLANNED_REACTION_NS = 2 * PAUSE_REACTION_NS
"""What headroom is planned for: also the frames that have begun at both ends."""


def planned_lab(model: Lab) -> PlannedLab:
    """Plan a lab for the simulator. Raises `PlanError` where there can be no such lab."""
    plan = plan_lab(model, k=TIME_SCALE, auto_delay=DelayBy.KERNEL, reaction_ns=PLANNED_REACTION_NS)
    return PlannedLab(model=model, plan=plan)
