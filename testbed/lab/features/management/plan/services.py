"""Which nodes run which services of the management network, and at which addresses."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.lab.core.model import NETNS, Lab, NodeKind
from testbed.lab.features.management.model import SERVICES
from testbed.lab.features.management.plan.management_plan import ManagementPlan
from testbed.lab.features.management.plan.service_operations import StartService


def plan_services(lab: Lab, management: ManagementPlan | None) -> Iterator[StartService]:
    """Plan the services of the lab's management network, service by service, the server first.

    A node that is a container has none: what would be started is of this machine, and not of its image.
    """
    network = lab.management
    if network is None or management is None:
        return
    namespaces = {node.name for node in lab.nodes if node.runtime == NETNS}
    hosts = {node.name for node in lab.nodes if node.kind is NodeKind.HOST}
    wanted = {service.name for service in network.services}
    for name, kind in SERVICES.items():
        if name in wanted:
            for node, address in management.addresses.items():
                if kind.runs_on.includes(node, management.server, host=node in hosts) and node in namespaces:
                    yield StartService(node=node, service=name, address=address.ip)
