"""The services of the management network: which there are, where each runs, and what a file may say of it.

What a service is made of is `testbed.services`, which has a module for each of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from testbed.units import Duration


class RunsOn(StrEnum):
    """The nodes that run a service."""

    SERVER = "server"
    """The server of the management network alone."""
    NODES = "nodes"
    """Every node of it that is a network namespace, the server among them."""
    MANAGED = "managed"
    """All of these but the server."""

    def includes(self, node: str, server: str) -> bool:
        """Tell whether a node is one of them."""
        return self is RunsOn.NODES or (node == server) is (self is RunsOn.SERVER)


SERVICES: Mapping[str, RunsOn] = MappingProxyType(
    {
        "ssh": RunsOn.NODES,
        "dns": RunsOn.SERVER,
        "dhcp": RunsOn.SERVER,
        "time": RunsOn.NODES,
        "syslog": RunsOn.NODES,
        "telemetry": RunsOn.SERVER,
        "lldp": RunsOn.MANAGED,
        "redfish": RunsOn.SERVER,
        "bmp": RunsOn.SERVER,
        "aaa": RunsOn.SERVER,
    }
)
"""Where each service runs, in the order in which they are started and listed."""

SCRAPE_INTERVAL = Duration.parse("1s")


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementService:
    """A service that a lab has. `interval` is that of telemetry: how often counters are asked for."""

    name: str
    interval: Duration = SCRAPE_INTERVAL
