"""Services of the management network: the nodes that run them, and the station that switches report BGP to."""

from __future__ import annotations

from collections.abc import Iterator

from testbed.lab.core.model import NETNS, Lab, NodeKind
from testbed.lab.core.model.management import SERVICES
from testbed.lab.core.plan.management_plan import ManagementPlan, MonitoringStation, StartService

BMP = "bmp"
"""The service that is a station of BGP monitoring."""


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


def monitoring_station(lab: Lab, management: ManagementPlan | None, node: str) -> MonitoringStation | None:
    """The station that a node reports to; None where the lab has none, or the node no management port."""
    network = lab.management
    if network is None or management is None or node not in management.addresses:
        return None
    if BMP not in {service.name for service in network.services}:
        return None
    return MonitoringStation(name=management.server, address=management.server_address.ip, interface=management.port)
