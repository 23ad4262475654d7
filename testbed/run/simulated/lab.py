"""The lab of a point as the simulator has it: planned at the real fabric's rates, and made nowhere."""

from __future__ import annotations

from testbed.lab.core.model import DelayBy, Lab
from testbed.lab.core.plan import plan_lab
from testbed.run.sweep.outlook import PlannedLab

TIME_SCALE = 1.0
"""Simulated time is that of the real fabric."""
PAUSE_REACTION_NS = 0
"""From the arrival of a pause frame until the port sends no more but what it has begun: as in HPCC's simulator, and as
good as in an emulated lab, whose hundreds of microseconds are some ten nanoseconds of the fabric at a time scale of
20,000. A MAC may take longer: 905 pause quanta of 512 bit times at 400 Gbit/s, 1.2 us (IEEE 802.3, 31B.3.7)."""


def planned_lab(model: Lab) -> PlannedLab:
    """Plan a lab for the simulator. Raises `PlanError` where there can be no such lab."""
    plan = plan_lab(model, k=TIME_SCALE, auto_delay=DelayBy.KERNEL, reaction_ns=PAUSE_REACTION_NS)
    return PlannedLab(model=model, plan=plan)
