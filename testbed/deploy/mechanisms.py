"""Which mechanism delays the links of a lab on this machine, and the delays of a live lab's paths."""

from __future__ import annotations

from testbed.deploy.live import RunningLab
from testbed.deploy.records.state import StateDirectory
from testbed.drivers.probing.capabilities import Capabilities, probe_capabilities
from testbed.model import DelayBy, Lab
from testbed.plan.link_delays import decide_delay, has_delays


def machine_capabilities(state: StateDirectory) -> Capabilities:
    """What this machine can do, probed once a boot and kept in the state directory."""
    return probe_capabilities(state.state)


def choose_delay(lab: Lab, state: StateDirectory) -> DelayBy | None:
    """What `by: auto` will mean for a lab about to be deployed; None where no link has a delay.

    Raises `CapabilityError` where a link insists on the kernel and the kernel cannot.
    """
    return decide_delay(lab, machine_capabilities(state).wire) if has_delays(lab) else None


def auto_delay(lab: RunningLab) -> DelayBy:
    """What `by: auto` means in a running lab: as recorded at its deployment, else what this machine can."""
    if lab.record.delay_by:
        return DelayBy(lab.record.delay_by)
    return decide_delay(lab.model, machine_capabilities(lab.state).wire)
