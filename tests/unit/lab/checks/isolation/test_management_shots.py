"""What is sent between management and data: from everywhere that could, to where it would be seen."""

from collections import Counter
from ipaddress import IPv4Address

import pytest

from testbed.base.linux.rtnetlink import mac_bytes
from testbed.lab.checks.isolation.management import MOST_PORTS, Shot, Way, management_shots
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.schema.load import load_topology_text

TEXT = """name: dc
fabric: {{design: rail-optimized, hosts: {hosts}, gpus: 2, segments: 1, spines: 1}}
networks:
  frontend: {{leaves: 2, nic: {{ports: 2}}{frontend}}}
  management: {{design: out-of-band}}
"""
SERVER = IPv4Address("192.168.64.1")


def planned(hosts: int = 2, frontend: str = "") -> LabPlan:
    return plan_lab(load_topology_text(TEXT.format(hosts=hosts, frontend=frontend), file="dc.yml"), k=1000)


def by_way(plan: LabPlan) -> dict[Way, list[Shot]]:
    shots = management_shots(plan)
    return {way: [shot for shot in shots if shot.way is way] for way in Way}


def test_every_node_is_a_target_of_each_side_and_every_data_port_sends() -> None:
    plan = planned()
    nodes = set(plan.management.nodes)
    found = by_way(plan)
    assert {shot.seen_at for shot in found[Way.MANAGED]} == nodes | {"mgmt1"}
    nics = {(nic.node, nic.name) for host in plan.hosts for nic in host.nics}
    assert {shot.origin for shot in found[Way.TO_SERVER]} == nics
    assert {shot.origin for shot in found[Way.TO_NODES]} == nics
    assert {shot.origin for shot in found[Way.TO_DATA]} == {("mgmt1", "mgmt0")}
    assert {shot.seen_at for shot in found[Way.TO_DATA]} == nodes
    assert {shot.origin[0] for shot in found[Way.BETWEEN]} == {shot.seen_at for shot in found[Way.BETWEEN]} == nodes
    assert Counter(shot.origin for shot in found[Way.BETWEEN]) == {(node, "mgmt0"): 3 for node in nodes}


def test_addresses_are_those_of_the_side_that_is_tried() -> None:
    plan = planned()
    prefix = plan.management.prefix
    for way, shots in by_way(plan).items():
        of_management = way in (Way.MANAGED, Way.TO_SERVER, Way.TO_NODES, Way.BETWEEN, Way.POSING)
        assert {shot.target in prefix for shot in shots} == {of_management}, way
        assert {shot.source in prefix for shot in shots} == {way not in (Way.TO_SERVER, Way.TO_NODES)}, way
    assert {shot.source for shot in by_way(plan)[Way.IN_ITS_NAME]} == {SERVER}
    macs = {(port.node, port.name): mac_bytes(port.mac) for port in plan.ports}
    for shot in by_way(plan)[Way.POSING]:
        own = shot.source == plan.management.addresses[shot.origin[0]].ip
        assert shot.seen_at == "mgmt1" and own == (shot.source_mac != macs[shot.origin])


@pytest.mark.parametrize("frontend", [", homing: routed", ", homing: mlag", ", overlay: evpn"])
def test_hosts_of_every_homing_are_tried(frontend: str) -> None:
    plan = planned(frontend=frontend)
    ports = {f"{port.node}:{port.name}": port for port in plan.ports}
    for shot in by_way(plan)[Way.TO_SERVER]:
        nic = next(nic for host in plan.hosts for nic in host.nics if (nic.node, nic.name) == shot.origin)
        assert shot.source == (nic.address.ip if nic.address else None)
        assert shot.target_mac != mac_bytes(nic.mac)
        assert ports[nic.peer].node in {switch.node for switch in plan.switches}
    assert {shot.origin[0] for shot in by_way(plan)[Way.TO_SERVER]} == {host.node for host in plan.hosts}


def test_of_many_ports_an_even_choice_sends() -> None:
    found = by_way(planned(hosts=60))[Way.TO_SERVER]
    assert len(found) == MOST_PORTS
    assert len({shot.origin[0] for shot in found}) >= 50


def test_a_lab_without_management_ports_has_nothing_to_try() -> None:
    text = TEXT.format(hosts=2, frontend="").partition("  management")[0]
    assert management_shots(plan_lab(load_topology_text(text, file="dc.yml"), k=1000)) == []
