"""Which kinds of faults there are. A kind is known everywhere as soon as its class stands here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from testbed.base.errors import Finding
from testbed.lab.core.model import Lab
from testbed.run.faults.agent_kill import AgentKill
from testbed.run.faults.daemon_kill import DaemonKill
from testbed.run.faults.domain_kill import DomainKill
from testbed.run.faults.lab_fault import LabFault
from testbed.run.faults.link_down import LinkDown
from testbed.run.faults.link_flap import LinkFlap
from testbed.run.faults.link_set import LinkSet
from testbed.run.faults.node_kill import NodeKill
from testbed.run.faults.pfc_storm import PfcStorm
from testbed.run.faults.plane_down import PlaneDown, TrayDown
from testbed.run.faults.plane_flap import PlaneFlap
from testbed.run.faults.plane_set import PlaneSet
from testbed.run.schema.model import Fault

FAULTS: Mapping[str, type[LabFault]] = MappingProxyType(
    {
        one.kind: one
        for one in (
            *(LinkDown, LinkFlap, LinkSet, NodeKill, DaemonKill, AgentKill, PfcStorm),
            *(PlaneDown, PlaneFlap, PlaneSet, TrayDown, DomainKill),
        )
    }
)
"""The classes of faults by kind."""


def lab_fault(fault: Fault) -> LabFault:
    """Return what a fault of a scenario means for a lab. Raises `KeyError` for a kind that is not registered."""
    return FAULTS[fault.kind](fault)


def fault_findings(fault: Fault, lab: Lab) -> Iterator[Finding]:
    """Return what a fault of a scenario asks of a lab that its topology does not have."""
    return lab_fault(fault).check(lab)
