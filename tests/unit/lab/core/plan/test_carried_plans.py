"""Networks that another one carries, as they are planned: VRFs on its leaves, ports in them, and routes of hosts."""

from ipaddress import IPv4Address

import pytest

from testbed.base.errors import PlanError
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import GuardSwitch, InstallPort, ShapePort
from testbed.lab.core.schema.load import load_topology_text

TEXT = """name: conv
fabric: {design: rail-optimized, segments: 1, hosts: 4, gpus: 2, spines: 1}
networks:
  frontend: {leaves: 2, spines: 2, nic: {rate: 100G}, overlay: evpn, mtu: 4000}
  storage: {on: frontend, nic: {rate: 200G}, prefix: 192.168.200.0/24, mtu: 3000}
"""


def planned(text: str = TEXT) -> LabPlan:
    return plan_lab(load_topology_text(text, file="conv.yml"), k=1000)


def test_the_carrier_is_planned_as_without_it_but_for_its_vrfs(plan: LabPlan) -> None:
    alone = planned(TEXT[: TEXT.index("  storage")])
    seen, before = plan.of_network("frontend"), alone.of_network("frontend")
    assert (seen.ports, seen.hosts, seen.expected_routes) == (before.ports, before.hosts, before.expected_routes)
    assert [(switch.asn, switch.loopback) for switch in seen.switches] == [
        (switch.asn, switch.loopback) for switch in before.switches
    ]


def test_it_is_seen_with_the_ports_between_its_carriers_switches(plan: LabPlan) -> None:
    seen = plan.of_network("storage")
    assert {(port.network, port.name.rstrip("0123456789")) for port in seen.ports} == {
        ("storage", "st"),
        ("storage", "st-down"),
        ("frontend", "uplink"),
        ("frontend", "down"),
    }
    assert {switch.node for switch in seen.switches} == {"fe-leaf1", "fe-leaf2", "fe-spine1", "fe-spine2"}
    assert {nic.name for host in seen.hosts for nic in host.nics} == {"st1"}
    assert plan.of_network("backend").overlay == planned(TEXT[: TEXT.index("  storage")]).of_network("backend").overlay


def test_ports_of_it_have_the_queues_and_guards_of_their_switches() -> None:
    text = TEXT.replace("overlay: evpn", "overlay: evpn, guards: on, qos: {preset: dcqcn}")
    plan = planned(text)
    installed = {f"{item.node}:{item.name}": item for item in plan.operations if isinstance(item, InstallPort)}
    assert set(installed) == {f"{port.node}:{port.name}" for port in plan.ports if port.network != "backend"}
    assert installed["fe-leaf1:st-down1"].vrf == "fe-leaf1-storage"
    assert installed["fe-leaf1:st-down1"].peer == installed["p1-s1-h1:st1"].port
    assert not [item for item in plan.operations if isinstance(item, ShapePort) and item.name.startswith("st")]
    assert plan.of_network("storage").qos == plan.of_network("frontend").qos is not None
    guarded = {item.vrf: item for item in plan.operations if isinstance(item, GuardSwitch)}
    assert {"fe-leaf1-storage", "fe-leaf2-storage"} <= set(guarded)
    kept_from = guarded["fe-leaf1-storage"].switches
    loopbacks = {switch.loopback.ip for switch in plan.switches if switch.network == "frontend"}
    assert loopbacks <= set(kept_from) and IPv4Address("192.168.200.1") in kept_from


def test_a_prefix_that_a_host_has_on_a_link_is_an_error_about_the_network() -> None:
    text = (
        TEXT
        + """topology:
  nodes: {extra: {kind: host}}
  links:
    - {endpoints: ["extra:eth1", "p1-s1-h1:eth9"], prefix: 192.168.200.0/30}
"""
    )
    with pytest.raises(PlanError, match=r"p1-s1-h1:st1 would be in 192\.168\.200\.0/24") as caught:
        planned(text)
    assert (caught.value.field, caught.value.code) == ("networks.storage", "overlap")
