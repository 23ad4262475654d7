"""Who realises the link groups of hosts: the kernel's bonding, or an eBPF program with a process that speaks LACP."""

from __future__ import annotations

from testbed.base.errors import PlanError
from testbed.daemons.lag.groups import LinkGroupPlan
from testbed.lab.core.model import Lab, LagBy, LinkKind


def has_link_groups(lab: Lab) -> bool:
    """Tell whether hosts of a lab have link groups."""
    return any(link.kind is LinkKind.MEMBER for link in lab.links)


def decide_lag(lab: Lab, why: str) -> LagBy:
    """Return what link groups are where it is left to the machine. `why` the kernel has no bonding; "" where it has.

    Raises `PlanError` where a network insists on bonds and the kernel has none.
    """
    for network in lab.networks:
        if why and network.lag_by is LagBy.BOND:
            raise PlanError(
                f"bonds need CONFIG_BONDING, which this kernel does not have ({why})",
                field=f"networks.{network.name}.lag_by",
                code="no-bond",
                hint="lag_by: auto, which has eBPF instead, or a kernel that has it: Debian's and Ubuntu's do, as a"
                " module, and the lab VM",
            )
    return LagBy.EBPF if why else LagBy.BOND


def bonded_networks(lab: Lab, auto: LagBy) -> frozenset[str]:
    """The networks whose link groups are bonds. `auto` is what they are where it is left to the machine."""
    chosen = {network.name: auto if network.lag_by is LagBy.AUTO else network.lag_by for network in lab.networks}
    return frozenset(name for name, by in chosen.items() if by is LagBy.BOND)


def lag_text(groups: LinkGroupPlan | None) -> str:
    """Return by which mechanism hosts have link groups, as a sentence; "" for none."""
    sentences = {
        frozenset(): "",
        frozenset({True}): "link groups of hosts by bond (the kernel's, which speaks LACP)",
        frozenset({False}): "link groups of hosts by ebpf (with a process that speaks LACP)",
        frozenset({True, False}): "link groups of hosts by bond in some networks and by ebpf in others",
    }
    return sentences[frozenset(host.is_bond for host in groups.hosts) if groups is not None else frozenset()]
