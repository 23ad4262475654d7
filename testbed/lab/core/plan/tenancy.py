"""The meeting of an overlay and what stands below it: whose tenant a port is, and which VRF of a switch it lies in."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from ipaddress import IPv6Address, IPv6Interface
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from testbed.lab.core.model import End
    from testbed.lab.core.plan.overlay_plan import VrfPlan

ROUTER = "router"
"""The name that stands for an interface where the MAC of a VTEP's router is planned."""


class Tenancy(Protocol):
    """The answers of an overlay's plan about ports, for features that plan them below it."""

    @property
    def vrfs(self) -> Sequence[VrfPlan]:
        """Every VRF of every switch."""

    def tenant_of(self, end: End) -> str:
        """The tenant that a NIC, or the port that it is on, belongs to; "" for none."""

    def reached_by(self, tenant: str) -> Collection[str]:
        """The tenants that one may ask for something, itself among them."""

    def vrf_of(self, end: End) -> str:
        """The node whose namespace a switch's port lies in where that is a VRF's; "" else."""

    def master(self, end: End) -> int:
        """The bridge that a switch's port in a VRF is a port of."""

    def ipv6_of(self, end: End) -> tuple[IPv6Interface | None, IPv6Address | None]:
        """The IPv6 address and gateway of a NIC; None where its subnet has none."""
