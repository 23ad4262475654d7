"""What passes between tenants, as it is planned: VRFs, wires, routes, and what may come in."""

from __future__ import annotations

from ipaddress import IPv6Address

import pytest

from testbed.lab.core.model import Lab, Service, ServiceProtocol
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.overlay.plan.policy_operations import PolicyPort, SetPolicy
from testbed.lab.features.overlay.policies_nft import policy_messages

TEXT = """name: dc
fabric: {design: rail-optimized, hosts: 6, gpus: 2, segments: 1, spines: 1, overlay: evpn}
tenants:
  hub: {subnets: {web: {prefix: 10.10.0.0/24, nics: ["p1-s1-h1:rail1"]}}}
  red:
    talks_to: [hub]
    subnets: {web: {prefix: 10.11.0.0/24, nics: ["p1-s1-h2:rail2", "p1-s1-h3:rail1"]}}
  blue:
    talks_to: {hub: [tcp/80, icmp]}
    subnets: {web: {prefix: 10.12.0.0/24, nics: ["p1-s1-h4:rail2"]}}
"""
HTTP, ECHO = Service(protocol=ServiceProtocol.TCP, port=80), Service(protocol=ServiceProtocol.ICMP)


@pytest.fixture(scope="module")
def lab() -> Lab:
    return load_topology_text(TEXT, file="dc.yml")


@pytest.fixture(scope="module")
def plan(lab: Lab) -> LabPlan:
    return plan_lab(lab, k=100)


def policies(plan: LabPlan) -> dict[tuple[str, str], PolicyPort]:
    return {
        (item.node, port.name): port for item in plan.operations if isinstance(item, SetPolicy) for port in item.ports
    }


@pytest.fixture(scope="module")
def dual() -> LabPlan:
    """Of which hub and red have IPv6, and blue has none."""
    text = TEXT.replace("prefix: 10.10.0.0/24", 'prefix: 10.10.0.0/24, prefix6: "fd00:10::/64"')
    text = text.replace("prefix: 10.11.0.0/24", 'prefix: 10.11.0.0/24, prefix6: "fd00:11::/64"')
    return plan_lab(load_topology_text(text, file="dc.yml"), k=100)


def test_the_policy_has_addresses_and_rules_of_ipv6_where_the_wire_has_some(plan: LabPlan, dual: LabPlan) -> None:
    hub, red = IPv6Address("fd00:10::2"), IPv6Address("fd00:11::2")
    from_red, from_blue = (policies(dual)["p1-s1-rail2-hub", name] for name in ("to50002", "to50003"))
    assert [item for item in from_red.sources if item.version == 6] == [red, red + 1]
    assert [item for item in from_red.targets if item.version == 6] == [hub]
    assert not [item for item in (*from_blue.sources, *from_blue.targets) if item.version == 6]
    plain, both = (
        b"".join(policy_messages(item))
        for made in (plan, dual)
        for item in made.operations
        if isinstance(item, SetPolicy) and item.node == "p1-s1-rail2-hub"
    )
    assert b"wire6" in both and hub.packed in both and b"wire6" not in plain


def test_who_may_ask_whom(plan: LabPlan) -> None:
    overlay = plan.overlay
    assert overlay is not None
    other = Service(protocol=ServiceProtocol.TCP, port=81)
    assert overlay.may_ask("red", "hub", other) and overlay.may_ask("hub", "red", other)
    assert overlay.may_ask("blue", "hub", HTTP) and overlay.may_ask("blue", "hub", ECHO)
    assert not overlay.may_ask("blue", "hub", other) and not overlay.may_ask("hub", "blue", HTTP)
    assert not overlay.may_ask("red", "blue", HTTP)
