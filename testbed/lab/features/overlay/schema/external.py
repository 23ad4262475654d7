"""The key `external` of a tenant: resolved to a router, and held against the lab and the other tenants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network

from testbed.base.errors import Problem
from testbed.base.names import known_names_hint
from testbed.base.units import Rate
from testbed.base.yaml.paths import Path
from testbed.lab.core.model import NETNS, End, External, Lab, Link, LinkKind, Node, NodeKind, Role, Tenant
from testbed.lab.core.model.overlay import external_port
from testbed.lab.features.overlay.schema.talks import ProblemAt
from testbed.lab.features.overlay.schema.tenant_spec import ExternalSpec

MOST_PREFIXES = 32
"""They are meant for people."""
ROUTER_PORT = "uplink1"
_LEAVES = (None, Role.RAIL, Role.LEAF)


def router_name(tenant: str) -> str:
    """The node that is a tenant's router outside."""
    return f"{tenant}-external"


def external_of(tenant: str, vni: int, spec: ExternalSpec, lab: Lab) -> External:
    """Return the router of a tenant's `external`; sound only where `check_leaf` finds nothing. `vni` is its L3VNI."""
    leaf = next((node for node in lab.switches if node.name == spec.leaf), None)
    return External(
        router=End(node=router_name(tenant), interface=ROUTER_PORT),
        port=external_port(spec.leaf, vni),
        network="" if leaf is None else leaf.network,
        asn=spec.asn,
        prefixes=tuple(spec.prefixes),
    )


def router_node(external: External) -> Node:
    """The router outside as a node."""
    return Node(name=external.router.node, kind=NodeKind.ROUTER, network=external.network)


def router_link(external: External, rate: Rate, mtu_bytes: int) -> Link:
    """The link between a router outside and its leaf."""
    return Link(
        a=external.router,
        b=external.port,
        kind=LinkKind.EXTERNAL,
        rate=rate,
        mtu_bytes=mtu_bytes,
        network=external.network,
    )


def check_leaf(
    tenant: str, spec: ExternalSpec, lab: Lab, overlays: Sequence[str], problem: ProblemAt
) -> Iterator[Problem]:
    """Find what is wrong with the leaf, and with the name of the router. `overlays` are the networks that have one."""
    path: Path = ("tenants", tenant, "external", "leaf")
    nodes = {node.name: node for node in lab.nodes}
    leaves = [node.name for node in lab.switches if node.role in _LEAVES and node.network in overlays]
    leaf = nodes.get(spec.leaf)
    if leaf is None:
        yield problem("unknown-switch", path, f"there is no switch {spec.leaf}", known_names_hint(spec.leaf, leaves))
    elif leaf.kind is not NodeKind.SWITCH or leaf.role not in _LEAVES:
        what = "a host" if leaf.kind is not NodeKind.SWITCH else f"a {leaf.role}"
        hint = known_names_hint(spec.leaf, leaves)
        yield problem("unknown-switch", path, f"{spec.leaf} is {what}, not a leaf", hint)
    elif leaf.network not in overlays:
        message = f"{spec.leaf} is in the network {leaf.network}, which has no overlay"
        yield problem("no-overlay", path, message, known_names_hint(spec.leaf, leaves))
    elif leaf.runtime != NETNS:
        message = f"{spec.leaf} is a container: VRFs are built in switches that are namespaces alone"
        yield problem("not-built", path, message, None)
    elif lab.qos_of(leaf.network) is not None:
        message = f"{spec.leaf} is in a network with qos: its ports to routers outside are not built"
        yield problem("external-with-qos", path, message, "another network, or one without qos")
    elif first := next((first for first, second in lab.leaf_pairs if second == spec.leaf), None):
        message = f"{spec.leaf} is the second leaf of a pair, which is no VTEP while their peer link is down"
        yield problem("external-on-pair", path, message, f"leaf: {first}")
    if router_name(tenant) in nodes:
        message = f"the router would have the name of the node {router_name(tenant)}"
        yield problem("duplicate-node", path[:3], message, "give the tenant another name")


def check_externals(tenants: Sequence[Tenant], lab: Lab, problem: ProblemAt) -> Iterator[Problem]:
    """Find routers outside that nobody reaches, or whose prefixes cannot be told apart from others."""
    paired = {leaf for pair in lab.leaf_pairs for leaf in pair}
    for tenant in tenants:
        external = tenant.external
        if external is None:
            continue
        path: Path = ("tenants", tenant.name, "external")
        if not any(subnet.nics and subnet.network == external.network for subnet in tenant.subnets):
            message = f"{tenant.name} has no NICs in the network {external.network} of {external.port.node}"
            yield problem("no-common-network", (*path, "leaf"), message, "networks share hosts, and no routes")
        nics = {end for subnet in tenant.subnets for end in subnet.nics}
        leaf = external.port.node
        if leaf in paired and not any(link.b.node == leaf and link.nic in nics for link in lab.links):
            message = f"{tenant.name} has no NICs on {leaf}, and so no VLAN between it and the other leaf of the pair"
            yield problem("external-on-pair", (*path, "leaf"), message, "a leaf that a NIC of the tenant is on")
        if not external.prefixes or len(external.prefixes) > MOST_PREFIXES:
            message = f"has {len(external.prefixes)} prefixes, there must be 1 to {MOST_PREFIXES}"
            yield problem("out-of-range", (*path, "prefixes"), message, None)
        seen: list[tuple[IPv4Network, str]] = list(_near(tenant, tenants))
        for index, prefix in enumerate(external.prefixes):
            if clash := next(((other, whose) for other, whose in seen if prefix.overlaps(other)), None):
                message = f"{prefix} overlaps {clash[0]} of {clash[1]}"
                hint = "what a tenant, those that it talks to and its hosts reach must be apart"
                yield problem("overlap", (*path, "prefixes", index), message, hint)
            seen.append((prefix, f"tenants.{tenant.name}.external"))


def _near(tenant: Tenant, tenants: Sequence[Tenant]) -> Iterator[tuple[IPv4Network, str]]:
    """The prefixes of a tenant, of those that it talks to, and of those that share a host with it."""
    hosts = {end.node for subnet in tenant.subnets for end in subnet.nics}
    for other in tenants:
        talks = tenant.services_of(other.name) is not None or other.services_of(tenant.name) is not None
        shares = any(end.node in hosts for subnet in other.subnets for end in subnet.nics)
        if talks or shares or other is tenant:
            for subnet in other.subnets:
                yield subnet.prefix, f"{other.name}.{subnet.name}"
            if other is not tenant and other.external is not None:
                for prefix in other.external.prefixes:
                    yield prefix, f"tenants.{other.name}.external"
