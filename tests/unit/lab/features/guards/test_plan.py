"""The guards of access ports as they are planned: who is expected where, and what stays out."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from testbed.base.errors import PlanError
from testbed.base.units import Duration
from testbed.lab.core.model import Delay, DelayBy, Lab, LinkKind
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import GuardSwitch
from testbed.lab.core.schema.load import load_topology_text

TEXT = """name: dc
fabric: {design: rail-optimized, hosts: 3, gpus: 2, segments: 2, spines: 1, guards: on}
networks:
  frontend: {leaves: 2, nic: {ports: 2}, guards: {storm: false, vlan: false}}
  storage: {leaves: 2}
"""


@pytest.fixture(scope="module")
def lab() -> Lab:
    return load_topology_text(TEXT, file="dc.yml")


@pytest.fixture(scope="module")
def plan(lab: Lab) -> LabPlan:
    return plan_lab(lab, k=1000)


def guarded(plan: LabPlan) -> dict[str, GuardSwitch]:
    return {item.node: item for item in plan.operations if isinstance(item, GuardSwitch)}


def test_what_the_kernel_delays_cannot_be_guarded(lab: Lab) -> None:
    delay = Delay(value=Duration.parse("1us"), by=DelayBy.KERNEL)
    links = [replace(link, delay=delay) if link.kind is LinkKind.ACCESS else link for link in lab.links]
    with pytest.raises(PlanError, match="cannot be guarded") as caught:
        plan_lab(replace(lab, links=tuple(links)), k=1000)
    assert "by: endpoint" in (caught.value.hint or "")


def test_a_routed_link_to_a_host_is_guarded_too() -> None:
    plan = plan_lab(
        load_topology_text(
            """name: routed
fabric: {guards: on}
topology:
  nodes: {h1: {kind: host}, h2: {kind: host}, s1: {kind: switch, role: leaf}}
  links:
    - {endpoints: ["h1:eth0", "s1:p1"], rate: 100G}
    - {endpoints: ["h2:eth0", "s1:p2"], rate: 100G}
""",
            file="routed.yml",
        ),
        k=1000,
    )
    item = guarded(plan)["s1"]
    assert [port.name for port in item.ports] == ["p1", "p2"]
    assert all(isinstance(port.gateway, IPv4Address) and port.gateway in item.switches for port in item.ports)
