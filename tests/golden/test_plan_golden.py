"""Whole plans against files that people have read: every operation, port number and expected route."""

from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path

import pytest
from golden_files import Golden

from testbed.base.units import Rate
from testbed.lab.core.fabric import FabricParams, generate_fabric
from testbed.lab.core.model import End, Lab, LagBy, Link, LinkKind, Node, NodeKind, Protocol, Role, Routing, VrfBy
from testbed.lab.core.plan.describe import summarize_plan
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.schema.load import load_topology, load_topology_text

WRITTEN_NETWORK = """name: written-network
fabric: {design: single-switch, hosts: 2, gpus: 1}
networks:
  storage:
    design: hand-written
    nic: {rate: 200G}
    uplink: {rate: 400G}
    mtu: 9000
    switches: {stor-a: {role: leaf}, stor-b: {role: leaf, asn: 65002}, stor-top: {role: spine}}
    links:
      - {endpoints: ["p1-s1-h1:nvme0", "stor-a:eth1"]}
      - {endpoints: ["stor-b:eth1", "p1-s1-h2:nvme0"], rate: 100G}
      - {endpoints: ["server:nvme0", "stor-b:eth2"]}
      - {endpoints: ["stor-a:up1", "stor-top:eth1"]}
      - {endpoints: ["stor-top:eth2", "stor-b:up1"], delay: 1us}
topology: {nodes: {server: {kind: host}}}
"""
"""A network beside the back end that is written out, with a server that is in it alone."""

CARRIED_NETWORK = """name: carried-network
fabric: {design: single-switch, hosts: 2, gpus: 1}
networks:
  frontend: {leaves: 2, spines: 1, nic: {rate: 100G}, overlay: evpn, mtu: 9050}
  storage: {on: frontend, nic: {rate: 200G}, prefix: 198.18.7.0/24}
"""
"""A network over the leaves of another one."""

OUT_OF_BAND = """name: out-of-band
fabric: {design: single-switch, hosts: 2, gpus: 1}
networks:
  management: {design: out-of-band, prefix: 192.168.250.0/24}
"""
"""A management port on each node of a fabric of one switch."""

MLAG_TENANT = """name: mlag-tenant
fabric: {design: single-switch, hosts: 3, gpus: 1}
networks:
  frontend: {homing: mlag, nic: {per: host, ports: 2}, spines: 1, overlay: evpn}
tenants:
  red: {subnets: {web: {prefix: 10.200.0.0/24, nics: ["p1-s1-h1:fe0", "p1-s1-h2:fe0"]}}}
"""
"""A pair of leaves that is one VTEP, with two hosts in a tenant and one in none."""


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
            routing = Routing(protocol=Protocol.IBGP)
            params = FabricParams(
                design="rail-optimized", pods=2, hosts=1, gpus=1, spines=2, super_spines=2, routing=routing
            )
        case "tenants" | "tenants-devices":
            return load_topology(Path(__file__).parents[2] / "topologies" / "two-tenants.yml")
        case "routed-hosts" | "mlag-hosts":
            return load_topology(Path(__file__).parents[2] / "topologies" / f"{name}.yml")
        case "mlag-tenant" | "mlag-bonds":
            return load_topology_text(MLAG_TENANT, file="mlag-tenant.yml")
        case "written-network":
            return load_topology_text(WRITTEN_NETWORK, file="written-network.yml")
        case "carried-network":
            return load_topology_text(CARRIED_NETWORK, file="carried-network.yml")
        case "out-of-band":
            return load_topology_text(OUT_OF_BAND, file="out-of-band.yml")
        case _:
            return written()
    return generate_fabric(params, name=name)


def lines(plan: LabPlan) -> Iterator[str]:
    yield summarize_plan(plan)
    yield ""
    for port in plan.ports:
        yield f"port {port.node}:{port.name} index {port.ifindex} mac {port.mac} peer {port.peer}"
    yield ""
    for switch in plan.speakers:
        what = f"switch {switch.node} {switch.role}" if switch.role else f"host {switch.node}"
        yield f"{what} AS {switch.asn} id {switch.router_id} cluster {switch.cluster_id}"
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
        yield str(operation)


@pytest.mark.parametrize(
    "name",
    [
        "rail-optimized",
        "multi-rail-switch",
        "dual-switch",
        "rail-only",
        "ibgp",
        "written",
        "written-network",
        "carried-network",
        "out-of-band",
        "tenants",
        "tenants-devices",
        "routed-hosts",
        "mlag-hosts",
        "mlag-tenant",
        "mlag-bonds",
    ],
)
def test_the_plan(name: str, golden: Golden) -> None:
    auto_vrf = VrfBy.DEVICE if name == "tenants-devices" else VrfBy.NAMESPACE
    auto_lag = LagBy.BOND if name == "mlag-bonds" else LagBy.EBPF
    planned = plan_lab(lab(name), k=1000, auto_vrf=auto_vrf, auto_lag=auto_lag)
    golden(f"plan/{name}.txt").check("\n".join(lines(planned)) + "\n")
