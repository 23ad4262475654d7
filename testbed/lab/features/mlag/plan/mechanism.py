"""Who realises the link groups of hosts: the kernel's bonding, or an eBPF program with a process that speaks LACP."""

from __future__ import annotations

from testbed.daemons.lag.groups import LinkGroupPlan
from testbed.lab.core.model import Lab, LagBy


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
