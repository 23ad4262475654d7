"""Routers outside of the fabric: each a node of its own, on the border leaf of the tenant that it belongs to.

The leaf speaks eBGP with it in the tenant's VRF, over link-local addresses as everywhere in the fabric (RFC 5549), and
hands on what it announces to the other leaves as type-5 routes (RFC 9136).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from ipaddress import IPv4Network

from testbed.base.errors import PlanError
from testbed.base.names import vrf_node_name
from testbed.lab.core.model import End, External, Lab, Protocol, Role, Tenant
from testbed.lab.core.plan.asn import PRIVATE_FIRST
from testbed.lab.core.plan.interfaces import LOOPBACK_IFINDEX
from testbed.lab.core.plan.lab_plan import ExpectedRoute, Neighbor, SwitchPlan
from testbed.lab.core.plan.operations import AddAddress, Operation, SetSysctl
from testbed.lab.core.plan.overlay_operations import SetBorder
from testbed.lab.core.plan.overlay_plan import ExternalPeer
from testbed.lab.core.plan.sysctls import FABRIC_WITH_IPV6, settings
from testbed.lab.features.overlay.plan.devices import FIRST_VRF, interface_sysctls

_RANGES = {
    "10.0.0.0/8": "the back end's rails",
    "100.64.0.0/10": "routed links",
    "172.16.0.0/12": "loopbacks of switches",
    "127.0.0.0/8": "no link",
    "169.254.0.0/16": "one link alone",
    "224.0.0.0/3": "groups, and nobody",
}
"""Prefixes that no router outside may announce (RFC 6890, `testbed.lab.core.plan.addressing`), and what they are
for."""


class ExternalPlanner:
    """The part of a plan about routers outside; empty where no tenant has one."""

    def __init__(self, lab: Lab, devices: Collection[str]) -> None:
        """`devices` are the switches whose VRFs are devices. Raises `PlanError` for a prefix that the lab has for
        itself."""
        self._devices = devices
        tenants = () if lab.overlay is None else lab.overlay.tenants
        self.tenants: list[tuple[Tenant, External]] = [
            (tenant, tenant.external) for tenant in tenants if tenant.external is not None
        ]
        self._lab = lab
        self._by_end: dict[End, Tenant] = {}
        self._leaves: dict[End, Tenant] = {}
        for tenant, external in self.tenants:
            self._by_end |= {external.router: tenant, external.port: tenant}
            self._leaves[external.port] = tenant
            self._check_prefixes(tenant, external)

    def _check_prefixes(self, tenant: Tenant, external: External) -> None:
        taken = {IPv4Network(prefix): use for prefix, use in _RANGES.items()}
        taken |= {network.prefix: f"the network {network.name}" for network in self._lab.networks}
        taken |= {link.prefix: f"{link.a} to {link.b}" for link in self._lab.links if link.prefix is not None}
        for prefix in external.prefixes:
            for other, use in taken.items():
                if prefix.overlaps(other):
                    raise PlanError(
                        f"{prefix} overlaps {other}, which is for {use}",
                        field=f"tenants.{tenant.name}.external.prefixes",
                        code="overlap",
                        hint="choose prefixes that nothing in the lab has, such as 198.51.100.0/24",
                    )

    def check_as_numbers(self, asns: Mapping[str, int]) -> None:
        """Raise `PlanError` for a router whose AS is that of a switch, or one of those that switches are given."""
        for tenant, external in self.tenants:
            same = next((name for name, asn in asns.items() if asn == external.asn), None)
            if same is None and external.asn < PRIVATE_FIRST:
                continue
            whose = f"that of {same}" if same else "one of those that switches are given"
            raise PlanError(
                f"the AS {external.asn} is {whose}: leaves would refuse what the router announces",
                field=f"tenants.{tenant.name}.external.asn",
                code="same-asn",
                hint=f"choose another one below {PRIVATE_FIRST}, such as 64999",
            )

    def tenant_of(self, end: End) -> str:
        """The tenant that an end of a link to a router outside belongs to; "" for other ends."""
        tenant = self._by_end.get(end) if self._by_end else None
        return "" if tenant is None else tenant.name

    def vrf_of(self, end: End) -> str:
        """The node whose namespace a leaf's port to a router outside lies in where that is a VRF's; "" else."""
        tenant = self._leaves.get(end) if self._leaves else None
        return "" if tenant is None or end.node in self._devices else vrf_node_name(end.node, tenant.name)

    def master(self, end: End) -> int:
        """The VRF device that a leaf's port to a router outside is in; 0 for none."""
        tenant = self._leaves.get(end)
        return 0 if tenant is None or end.node not in self._devices else FIRST_VRF + tenant.vni

    def peer(self, switch: str, tenant: str) -> ExternalPeer | None:
        """The router outside that a tenant's VRF on a switch speaks with."""
        for owner, external in self.tenants:
            if (external.port.node, owner.name) == (switch, tenant):
                return ExternalPeer(
                    interface=external.port.interface,
                    remote=external.router.node,
                    remote_interface=external.router.interface,
                    asn=external.asn,
                    accepts=external.prefixes,
                    announces=_subnets(owner, external),
                )
        return None

    def opening(self) -> list[SetSysctl]:
        """IPv6 for the ports that those VRFs of borders get from now on that are namespaces."""
        vrfs = [vrf for _, external in self.tenants if (vrf := self.vrf_of(external.port))]
        return [item for vrf in vrfs for item in settings(vrf, FABRIC_WITH_IPV6)]

    def borders(self) -> list[Operation]:
        """Return the filters of what VRFs take from the routers, put in force before their ports are up."""
        operations: list[Operation] = []
        for tenant, external in self.tenants:
            port, vrf = external.port, self.vrf_of(external.port)
            if not vrf:
                operations += interface_sysctls(port.node, port.interface)
            operations.append(
                SetBorder(
                    node=vrf or port.node,
                    tenant=tenant.name,
                    shared=not vrf,
                    name=port.interface,
                    sources=external.prefixes,
                    targets=_subnets(tenant, external),
                )
            )
        return operations

    def addresses(self) -> list[Operation]:
        """The addresses of routers beside their first ones."""
        return [
            AddAddress(node=external.router.node, name="lo", ifindex=LOOPBACK_IFINDEX, address=address)
            for _, external in self.tenants
            for address in external.addresses[1:]
        ]

    def routers(self, asns: Mapping[str, int]) -> tuple[tuple[SwitchPlan, ...], dict[str, tuple[ExpectedRoute, ...]]]:
        """The routing of the routers, and the routes that BGP brings them. `asns` are those of switches."""
        plans = []
        expected = {}
        nodes = {node.name: node for node in self._lab.nodes}
        for tenant, external in self.tenants:
            leaf, router = external.port.node, external.router
            neighbor = Neighbor(
                interface=router.interface,
                remote=leaf,
                remote_role=nodes[leaf].role or Role.RAIL,
                remote_asn=asns[leaf],
                remote_interface=external.port.interface,
            )
            first = external.addresses[0]
            routing = self._lab.of_network(external.network).routing
            plans.append(
                SwitchPlan(
                    node=router.node,
                    role=None,
                    asn=external.asn,
                    router_id=first.ip,
                    loopback=first,
                    neighbors=(neighbor,),
                    networks=external.prefixes,
                    aggregates=(),
                    protocol=Protocol.EBGP,
                    ecmp=1,
                    bfd=None,
                    network=external.network,
                    password=routing.password,
                    ttl_security=routing.ttl_security,
                )
            )
            expected[router.node] = tuple(
                ExpectedRoute(prefix=prefix, interfaces=(router.interface,)) for prefix in _subnets(tenant, external)
            )
        return tuple(plans), expected


def _subnets(tenant: Tenant, external: External) -> tuple[IPv4Network, ...]:
    """The prefixes of a tenant that are on a leaf of the network of its router."""
    return tuple(
        sorted(subnet.prefix for subnet in tenant.subnets if subnet.nics and subnet.network == external.network)
    )
