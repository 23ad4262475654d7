"""The DSCPs of packets on a lab: that of data, by the class that it is of, and that of what is to wait nowhere."""

from __future__ import annotations

from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.qos.qos_plan import PortProfile

CONTROL_DSCP = 48


def port_profile(plan: LabPlan) -> PortProfile | None:
    """Return how the lab's switches treat packets; None for a lab without `qos:`."""
    qos = plan.qos
    return None if qos is None else next((item for item in qos.profiles if item.switch), qos.profiles[0])


def data_dscp(profile: PortProfile | None) -> int:
    """Return the lowest DSCP of the lossless class, or the first with ECN; 0, the default class, without either."""
    if profile is None:
        return 0
    found = {profile.class_of_dscp[dscp]: dscp for dscp in range(63, -1, -1)}
    classes = [item for item in profile.classes if item.priority in found]
    preferred = [item for item in classes if item.lossless]
    preferred += [item for item in classes if item.kmin_bytes is not None and not item.strict]
    return found[preferred[0].priority] if preferred else 0


def control_dscp(profile: PortProfile | None) -> int:
    """Return the DSCP of what is to wait nowhere: acknowledgements, and the like."""
    if profile is None:
        return CONTROL_DSCP
    found = [dscp for dscp, item in enumerate(profile.class_of_dscp) if item == profile.control_class]
    return CONTROL_DSCP if CONTROL_DSCP in found or not found else found[0]
