"""Which mechanisms of this machine realise what a lab asks for, decided before anything of it is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from testbed.base.datapath.markers import MARKERS, MarkerDeclaration
from testbed.base.errors import CapabilityError
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.drivers.netlink.rdma import require_rxe
from testbed.lab.core.drivers.probing.capabilities import Capabilities, probe_capabilities
from testbed.lab.core.model import DelayBy, Lab, LagBy, Rdma, VrfBy
from testbed.lab.core.plan.link_delays import decide_delay, has_delays
from testbed.lab.features.mlag.plan.mechanism import decide_lag, has_link_groups
from testbed.lab.features.overlay.plan.devices import decide_vrf


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanisms:
    """The mechanisms that a lab uses where its file leaves the choice to the machine.

    `delay_by` is None without delays, `vrf_by` without an overlay, `lag_by` without link groups of hosts.
    """

    delay_by: DelayBy | None
    vrf_by: VrfBy | None
    lag_by: LagBy | None


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


def kernel_marked(lab: Lab) -> list[tuple[str, MarkerDeclaration]]:
    """Return the classes that a qdisc of the kernel is to mark, each with its marker; empty where eBPF marks all."""
    classes = [item for policy in lab.policies for profile in policy.profiles for item in profile.classes]
    marked = ((item.name, MARKERS[item.ecn.by]) for item in classes if item.ecn)
    return list(dict.fromkeys((name, marker) for name, marker in marked if marker.qdisc))


def check_kernel_markers(lab: Lab, answers: Mapping[str, str]) -> None:
    """Raise `CapabilityError` where a class is to be marked by a qdisc that the kernel does not have.

    `answers` are the machine's, by the name of the capability: "" where it has it, else its word.
    """
    for name, marker in kernel_marked(lab):
        if why := answers[marker.capability]:
            raise CapabilityError(
                f"qos.classes.{name}.ecn: marks by the kernel need {marker.option}, which this kernel does not have"
                f" ({why})",
                missing=marker.option,
                hint="run a kernel that has it (Debian's and Ubuntu's do, as a module; `testbed --on vm` runs one), or"
                " say `by: ebpf`",
            )


def require_password(lab: Lab, state: StateDirectory) -> None:
    """Raise `CapabilityError` where BGP is to have a password and this machine's kernel does not sign TCP segments."""
    asked = [name for name in lab.network_names if lab.of_network(name).routing.password]
    if asked and (why := machine_capabilities(state).why("socket.md5")):
        raise CapabilityError(
            f"the BGP password of {', '.join(asked)} needs TCP MD5 signatures, which this kernel lacks: {why}",
            missing="TCP MD5 signatures",
            hint="routing: {password: false} deploys it without; the kernel option is CONFIG_TCP_MD5SIG",
        )


def choose_delay(lab: Lab, state: StateDirectory) -> DelayBy | None:
    """Return what `by: auto` will mean for a lab about to be deployed; None where no link has a delay.

    Raises `CapabilityError` where a link insists on the kernel and the kernel cannot.
    """
    return decide_delay(lab, machine_capabilities(state).wire) if has_delays(lab) else None


def choose_mechanisms(lab: Lab, state: StateDirectory) -> Mechanisms:
    """Return what everything that is left to the machine will mean for a lab about to be deployed.

    Raises as `choose_delay`, and `PlanError` where a network insists on VRF devices, or on bonds, and the kernel has
    none.
    """
    return Mechanisms(
        delay_by=choose_delay(lab, state),
        vrf_by=None if lab.overlay is None else decide_vrf(lab, machine_capabilities(state).why("link.vrf")),
        lag_by=decide_lag(lab, machine_capabilities(state).why("link.bond")) if has_link_groups(lab) else None,
    )


def auto_delay(lab: RunningLab) -> DelayBy:
    """Return what `by: auto` means in a running lab: as recorded at its deployment, else what this machine can."""
    if lab.record.delay_by:
        return DelayBy(lab.record.delay_by)
    return decide_delay(lab.model, machine_capabilities(lab.state).wire)
