"""Whether this machine has the marker that a lab asks for."""

from __future__ import annotations

from testbed.deploy.mechanisms import machine_capabilities
from testbed.deploy.records.state import StateDirectory
from testbed.model import Lab
from testbed.plan.marking import check_red, wants_red


def require_marker(lab: Lab, state: StateDirectory) -> None:
    """Raise `CapabilityError` where a class is to be marked by the kernel's RED and there is none."""
    if name := wants_red(lab):
        check_red(name, machine_capabilities(state).answers["qdisc.red"])
