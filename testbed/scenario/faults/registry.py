"""Which kinds of faults there are. A kind is known everywhere as soon as its class stands here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from testbed.errors import Finding
from testbed.model import Lab
from testbed.model.scenario import Fault
from testbed.scenario.faults.agent_kill import AgentKill
from testbed.scenario.faults.daemon_kill import DaemonKill
from testbed.scenario.faults.domain_kill import DomainKill
from testbed.scenario.faults.lab_fault import LabFault
from testbed.scenario.faults.link_down import LinkDown
from testbed.scenario.faults.link_flap import LinkFlap
from testbed.scenario.faults.link_set import LinkSet
from testbed.scenario.faults.node_kill import NodeKill
from testbed.scenario.faults.pfc_storm import PfcStorm
from testbed.scenario.faults.plane_down import PlaneDown, TrayDown
from testbed.scenario.faults.plane_flap import PlaneFlap
from testbed.scenario.faults.plane_set import PlaneSet

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
