"""Which mechanisms of this machine realise what a lab asks for, decided before anything of it is made."""

from __future__ import annotations

from testbed.deploy.live import RunningLab
from testbed.deploy.records.state import StateDirectory
from testbed.drivers.netlink.rdma import require_rxe
from testbed.drivers.probing.capabilities import Capabilities, probe_capabilities
from testbed.errors import CapabilityError
from testbed.model import DelayBy, Lab, Rdma
from testbed.plan.link_delays import decide_delay, has_delays
from testbed.plan.marking import check_kernel_markers, kernel_marked


def machine_capabilities(state: StateDirectory) -> Capabilities:
    """Return what this machine can do, probed once a boot and kept in the state directory."""
    return probe_capabilities(state.state)


def require_rdma(lab: Lab) -> None:
    """Raise `CapabilityError` where a host of `lab` has RDMA devices that this machine's kernel cannot make.

    Loads the modules that they need, which stay.
    """
    if any(node.rdma is Rdma.RXE for node in lab.nodes):
        require_rxe()


def require_marker(lab: Lab, state: StateDirectory) -> None:
    """Raise `CapabilityError` where a class is to be marked by a qdisc that this machine's kernel does not have."""
    if kernel_marked(lab):
        check_kernel_markers(lab, machine_capabilities(state).answers)


def require_guards(lab: Lab, state: StateDirectory) -> None:
    """Raise `CapabilityError` where switches are to guard their ports and this machine's kernel has no nf_tables."""
    asked = [name for name in lab.network_names if lab.of_network(name).guards]
    if asked and (why := machine_capabilities(state).why("filter.guards")):
        raise CapabilityError(
            f"the guards of {', '.join(asked)} need nf_tables, which this kernel lacks: {why}",
            missing="nf_tables",
            hint="guards: off deploys it without; `testbed doctor` says what the kernel has",
        )


def choose_delay(lab: Lab, state: StateDirectory) -> DelayBy | None:
    """Return what `by: auto` will mean for a lab about to be deployed; None where no link has a delay.

    Raises `CapabilityError` where a link insists on the kernel and the kernel cannot.
    """
    return decide_delay(lab, machine_capabilities(state).wire) if has_delays(lab) else None


def auto_delay(lab: RunningLab) -> DelayBy:
    """Return what `by: auto` means in a running lab: as recorded at its deployment, else what this machine can."""
    if lab.record.delay_by:
        return DelayBy(lab.record.delay_by)
    return decide_delay(lab.model, machine_capabilities(lab.state).wire)
