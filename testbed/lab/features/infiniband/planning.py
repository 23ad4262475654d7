"""Planning of an InfiniBand back end: a namespace for its management plane, and what its HCAs are called."""

from __future__ import annotations

from testbed.base.errors import PlanError
from testbed.base.names import SUBNET_NODE
from testbed.lab.core.model import Lab
from testbed.lab.core.plan.lab_plan import InfinibandPlan
from testbed.lab.core.plan.operations import CreateNode, SetSysctl

HELD_DATAGRAMS = 4096
"""The kernel's own is 10."""


def plan_infiniband(lab: Lab) -> InfinibandPlan | None:
    """Return the plan of a lab's subnet; None where its back end is Ethernet.

    Raises `PlanError` where a node has the name of the namespace.
    """
    if lab.infiniband is None:
        return None
    if any(node.name == SUBNET_NODE for node in lab.nodes):
        raise PlanError(
            f"the management plane of the subnet is called {SUBNET_NODE}, and so is a node",
            field="topology.nodes",
            code="duplicate-node",
            hint="give the node another name",
        )
    from testbed.lab.features.infiniband.configuration import plan_subnet

    hosts: dict[str, list[tuple[str, str]]] = {}
    for hca in plan_subnet(lab.infiniband).hcas:
        hosts.setdefault(hca.host, []).append((hca.name.partition(":")[2], hca.identifier))
    return InfinibandPlan(node=SUBNET_NODE, hcas=tuple((host, tuple(hcas)) for host, hcas in hosts.items()))


def create_plane(plan: InfinibandPlan | None) -> list[CreateNode]:
    """The namespace of the management plane."""
    return [] if plan is None else [CreateNode(node=plan.node, cpu_slot=0)]


def plane_sysctls(plan: InfinibandPlan | None) -> list[SetSysctl]:
    """No packet is in that namespace, and ibsim's sockets hold what a manager has not read yet: a datagram for which
    there is no room is lost, and OpenSM waits for its answer for ever."""
    if plan is None:
        return []
    return [
        SetSysctl(node=plan.node, key="net/ipv6/conf/all/disable_ipv6", value="1"),
        SetSysctl(node=plan.node, key="net/unix/max_dgram_qlen", value=str(HELD_DATAGRAMS)),
    ]
