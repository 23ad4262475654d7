"""The operation that starts a service of the management network on a node."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address


@dataclass(frozen=True, slots=True, kw_only=True)
class StartService:
    """Start what a service runs on a node, listening at `address` alone: the node's in the management network.

    Its files are rendered from the plan (`testbed.lab.features.management.services`), its secrets made when it is
    started.
    """

    node: str
    service: str
    address: IPv4Address

    def __str__(self) -> str:
        return f"start service {self.service} on {self.node} at {self.address}"
