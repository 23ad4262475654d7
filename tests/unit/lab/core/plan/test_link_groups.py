"""Link groups to pairs of leaves: what of them is planned when the pair is one VTEP of tenants."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network

import pytest

from testbed.base.errors import PlanError
from testbed.lab.core.model import Network, Node, NodeKind, Place, Role
from testbed.lab.core.plan.addressing import pair_vteps
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.schema.load import load_topology_text

TOPOLOGY = """
name: pairs
fabric: {design: rail-optimized, segments: 1, hosts: 6, gpus: 1, spines: 1}
networks:
  frontend: {homing: mlag, nic: {ports: 2}, leaves: 4, overlay: evpn}
tenants:
  red:
    subnets:
      web: {prefix: 10.200.0.0/24, nics: ["p1-s1-h1:fe0", "p1-s1-h4:fe0"]}
      db: {prefix: 10.200.1.0/24, nics: ["p1-s1-h5:fe0"]}
  blue:
    subnets:
      web: {prefix: 10.200.0.0/24, nics: ["p1-s1-h2:fe0"]}
"""
VTEP, FAR_VTEP = IPv4Address("192.168.0.190"), IPv4Address("192.168.0.189")


@pytest.fixture(scope="module")
def plan() -> LabPlan:
    return plan_lab(load_topology_text(TOPOLOGY, file="pairs.yml"), k=100)


@pytest.mark.parametrize("protocol", ["ebgp", "ibgp"])
def test_spines_send_to_both_leaves_of_a_pair_whatever_bgp_it_is(protocol: str) -> None:
    text = TOPOLOGY.replace("overlay: evpn}", f"overlay: evpn, routing: {{protocol: {protocol}}}}}")
    planned = plan_lab(load_topology_text(text, file="pairs.yml"), k=100)
    subnet = IPv4Network("192.168.1.0/24")
    for node, interfaces in (("fe-spine1", ("down1", "down2")), ("fe-leaf3", ("uplink1", "uplink2"))):
        routes = {route.prefix: route.interfaces for route in planned.expected_routes[node]}
        assert routes[subnet] == routes[IPv4Network(VTEP)] == interfaces
    assert subnet not in {route.prefix for route in planned.expected_routes["fe-leaf2"]}


def test_vteps_of_pairs_must_fit_beside_the_loopbacks() -> None:
    network = Network(name="frontend", number=1, prefix=IPv4Network("192.168.0.0/16"), design="leaf-spine")
    nodes = [
        Node(name=f"leaf{n}", kind=NodeKind.SWITCH, role=Role.LEAF, place=Place(index=n), network="frontend")
        for n in range(1, 129)
    ]
    pairs = list(zip(nodes[::2], nodes[1::2], strict=True))
    found = pair_vteps(network, pairs[:63])
    assert len(set(found.values())) == 63
    assert min(found.values()) - int(network.prefix.network_address) > 126
    with pytest.raises(PlanError, match="128 leaves in pairs have more loopbacks"):
        pair_vteps(network, pairs)
