"""Whole plans against files that people have read: every operation, port number and expected route."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from golden_files import Golden

from testbed.fabric import FabricParams, RoutingParams, generate_fabric
from testbed.model import End, Lab, Link, LinkKind, Node, NodeKind, Protocol, Role
from testbed.plan import LabPlan, describe_operation, plan_lab, summarize_plan
from testbed.spec import load_topology
from testbed.units import Rate


def written() -> Lab:
    """Two switches of one's own, a host on each, a written prefix and a /31 of the pool."""

    def link(a: str, b: str, kind: LinkKind, prefix: str | None = None) -> Link:
        ends = [End(node=node, interface=name) for node, name in (a.split(":"), b.split(":"))]
        network = IPv4Network(prefix) if prefix is not None else None
        return Link(a=ends[0], b=ends[1], kind=kind, rate=Rate.parse("100G"), mtu_bytes=1500, prefix=network)

    return Lab(
        name="written",
        nodes=(
            Node(name="leaf1", kind=NodeKind.SWITCH, role=Role.RAIL, asn=65001),
            Node(name="spine1", kind=NodeKind.SWITCH, role=Role.SPINE),
            Node(name="a", kind=NodeKind.HOST),
            Node(name="b", kind=NodeKind.HOST),
        ),
        links=(
            link("a:eth1", "leaf1:eth1", LinkKind.ROUTED),
            link("b:eth1", "spine1:eth1", LinkKind.ROUTED, "192.0.2.0/30"),
            link("leaf1:eth2", "spine1:eth2", LinkKind.FABRIC),
        ),
    )


def lab(name: str) -> Lab:
    match name:
        case "rail-optimized":
            params = FabricParams(design=name, pods=2, hosts=2, gpus=2, spines=2, super_spines=1)
        case "multi-rail-switch":
            params = FabricParams(design=name, segments=2, hosts=2, spines=2)
        case "dual-switch":
            params = FabricParams(design=name, hosts=2, gpus=2)
        case "rail-only":
            params = FabricParams(design=name, hosts=2, gpus=2)
        case "ibgp":
            routing = RoutingParams(protocol=Protocol.IBGP)
            params = FabricParams(
                design="rail-optimized", pods=2, hosts=1, gpus=1, spines=2, super_spines=2, routing=routing
            )
        case "tenants":
            return load_topology(Path(__file__).parents[2] / "topologies" / "two-tenants.yml")
        case _:
            return written()
    return generate_fabric(params, name=name)


def lines(plan: LabPlan) -> Iterator[str]:
    yield summarize_plan(plan)
    yield ""
    for port in plan.ports:
        yield f"port {port.node}:{port.name} index {port.ifindex} mac {port.mac} peer {port.peer}"
    yield ""
    for switch in plan.switches:
        yield f"switch {switch.node} {switch.role} AS {switch.asn} id {switch.router_id} cluster {switch.cluster_id}"
        yield f"  networks {' '.join(map(str, switch.networks))}"
        if switch.aggregates:
            yield f"  aggregates {' '.join(map(str, switch.aggregates))}"
        for route in plan.expected_routes[switch.node]:
            yield f"  expects {route.prefix} {' '.join(route.interfaces) or 'blackhole'}"
    if plan.overlay is not None:
        for vrf in plan.overlay.vrfs:
            yield f"vrf {vrf.node} of {vrf.tenant} on {vrf.switch} vtep {vrf.vtep}"
            for entry in plan.overlay.expected[vrf.node]:
                yield f"  {entry.kind} {entry} from {' or '.join(map(str, entry.routes)) or 'itself'}"
    yield ""
    for operation in plan.operations:
        yield describe_operation(operation)


@pytest.mark.parametrize(
    "name", ["rail-optimized", "multi-rail-switch", "dual-switch", "rail-only", "ibgp", "written", "tenants"]
)
def test_the_plan(name: str, golden: Golden) -> None:
    golden(f"plan/{name}.txt").check("\n".join(lines(plan_lab(lab(name), k=1000))) + "\n")
