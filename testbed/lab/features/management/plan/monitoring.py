"""BGP monitoring: the station that switches report their sessions and routes to (BMP, RFC 7854)."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address

from testbed.lab.core.model import Lab
from testbed.lab.features.management.plan.management_plan import ManagementPlan

SERVICE = "bmp"
STATION_PORT = 1790
"""The TCP port of the station, for which the RFC has none: the default of pmbmpd (pmacct's CONFIG-KEYS)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoringStation:
    """The station on the server of the management network, and the port that a switch reaches it by."""

    name: str
    address: IPv4Address
    interface: str
    port: int = STATION_PORT


def monitoring_station(lab: Lab, management: ManagementPlan | None, node: str) -> MonitoringStation | None:
    """The station that a node reports to; None where the lab has none, or the node no management port."""
    network = lab.management
    if network is None or management is None or node not in management.addresses:
        return None
    if SERVICE not in {service.name for service in network.services}:
        return None
    return MonitoringStation(name=management.server, address=management.server_address.ip, interface=management.port)
