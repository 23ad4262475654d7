"""Networks beside the back end as they are planned: addresses, AS numbers, routes, and what hosts do with packets."""

from __future__ import annotations

import pytest

from testbed.lab.core.model import BACKEND, Lab
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import InstallPort
from testbed.lab.core.schema.load import load_topology_text

TEXT = """name: dc
fabric: {design: rail-optimized, hosts: 4, gpus: 2, segments: 1, spines: 1}
qos: {preset: uec}
networks:
  frontend: {leaves: 2, nic: {ports: 2, rate: 100G}}
  storage: {leaves: 2, nic: {rate: 200G}, mtu: 9000, routing: {protocol: ibgp}}
"""


@pytest.fixture(scope="module")
def lab() -> Lab:
    return load_topology_text(TEXT, file="dc.yml")


@pytest.fixture(scope="module")
def plan(lab: Lab) -> LabPlan:
    return plan_lab(lab, k=1000)


def test_the_back_end_is_planned_as_without_the_others(plan: LabPlan) -> None:
    alone = plan_lab(load_topology_text(TEXT[: TEXT.index("networks:")], file="dc.yml"), k=1000)
    seen = plan.of_network(BACKEND)
    assert (seen.ports, seen.switches, seen.hosts) == (alone.ports, alone.switches, alone.hosts)
    assert (seen.expected_routes, seen.qos) == (alone.expected_routes, alone.qos)
    installed = [item for item in plan.operations if isinstance(item, InstallPort)]
    assert installed == [item for item in alone.operations if isinstance(item, InstallPort)]


WITH_QOS = """name: dc
fabric: {design: rail-optimized, hosts: 4, gpus: 2, segments: 1, spines: 1}
qos: {preset: uec}
networks:
  plain: {leaves: 2, short: pl}
  frontend:
    leaves: 2
    nic: {ports: 2, rate: 100G}
    qos: {preset: dcqcn, nodes: {fe-leaf1: {load_balancing: {mode: spray}}}}
"""


def test_a_network_has_classes_of_its_own_and_the_back_end_those_that_it_had() -> None:
    lab = load_topology_text(WITH_QOS, file="dc.yml")
    plan = plan_lab(lab, k=1000)
    alone = plan_lab(load_topology_text(WITH_QOS[: WITH_QOS.index("networks:")], file="dc.yml"), k=1000)
    assert plan.of_network(BACKEND).installs == alone.installs and plan.of_network(BACKEND).qos == alone.qos
    seen = plan.of_network("frontend")
    assert {(item.node, item.name) for item in seen.installs} == {(port.node, port.name) for port in seen.ports}
    assert not plan.of_network("plain").installs and plan.of_network("plain").qos is None
    assert [item.port for item in plan.installs] == list(range(1, len(plan.installs) + 1))
    assert plan.tables is not None and seen.qos is not None
    assert {plan.tables.profiles[item.profile] for item in seen.installs} == set(seen.qos.profiles)
    peers = {item.port: item for item in plan.installs}
    links = {(f"{port.node}:{port.name}", port.peer) for port in plan.ports}
    for item in seen.installs:
        peer = peers[item.peer]
        assert (f"{item.node}:{item.name}", f"{peer.node}:{peer.name}") in links
        assert plan.tables.buffers[item.buffer].node == (item.node if item.switch else "")
    assert {b.node: b.mode.value for b in seen.qos.buffers if b.node}["fe-leaf1"] == "spray"


def test_a_network_has_classes_where_the_back_end_has_none() -> None:
    lab = load_topology_text(WITH_QOS.replace("qos: {preset: uec}\n", "", 1), file="dc.yml")
    plan = plan_lab(lab, k=1000)
    assert plan.qos is None and plan.tables is not None
    assert {plan.tables.buffers[item.buffer].node for item in plan.installs if item.switch} == {
        node.name for node in lab.of_network("frontend").switches
    }
    assert all(port.network == "frontend" for port in plan.ports if f"{port.node}:{port.name}" in plan.port_numbers)
