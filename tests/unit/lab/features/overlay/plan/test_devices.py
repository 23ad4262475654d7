"""VRFs that are devices of the kernel: in the namespace of their switch, and all else as where they are namespaces."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import pytest

from testbed.base.errors import PlanError
from testbed.lab.core.model import BACKEND, Lab, VrfBy
from testbed.lab.core.plan.hosts import MAIN_TABLE
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import (
    GuardSwitch,
)
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.guards.apply import guard_messages
from testbed.lab.features.overlay.plan.devices import decide_vrf
from testbed.lab.features.overlay.plan.policy_operations import SetBorder, SetPolicy
from testbed.lab.features.overlay.policies_nft import border_messages, policy_messages

TEXT = """name: pod
fabric: {{design: rail-optimized, hosts: 6, gpus: 2, segments: 1, spines: 1, guards: on,
         overlay: {{evpn: {{vrf_by: {by}}}}}}}
tenants:
  hub: {{vni: 16777215, subnets: {{web: {{prefix: 10.210.0.0/24, nics: ["p1-s1-h1:rail1"]}}}}}}
  red:
    talks_to: [hub]
    external: {{leaf: p1-s1-rail1, asn: 64999, prefixes: [198.51.100.0/24], rate: 10G}}
    subnets: {{web: {{prefix: 10.211.0.0/24, nics: ["p1-s1-h2:rail2", "p1-s1-h3:rail1"]}}}}
  blue:
    vni: 254  # the number of the kernel's main table
    talks_to: {{hub: [tcp/80]}}
    subnets: {{web: {{prefix: 10.212.0.0/24, nics: ["p1-s1-h4:rail2", "p1-s1-h5:rail1"]}}}}
  green:
    external: {{leaf: p1-s1-rail1, asn: 64998, prefixes: [198.51.100.0/24], rate: 10G}}
    subnets: {{web: {{prefix: 10.211.0.0/24, nics: ["p1-s1-h6:rail1"]}}}}
"""
LEAF, FAR = "p1-s1-rail1", "p1-s1-rail2"
_T = TypeVar("_T")


def lab(by: str = "auto") -> Lab:
    return load_topology_text(TEXT.format(by=by), file="pod.yml")


def plan(by: VrfBy) -> LabPlan:
    return plan_lab(lab(), k=1000, auto_vrf=by)


def of(planned: LabPlan, kind: type[_T]) -> list[_T]:
    return [item for item in planned.operations if isinstance(item, kind)]


@pytest.fixture(scope="module")
def devices() -> LabPlan:
    return plan(VrfBy.DEVICE)


@pytest.fixture(scope="module")
def namespaces() -> LabPlan:
    return plan(VrfBy.NAMESPACE)


def test_what_evpn_brings_and_what_hosts_have_is_the_same(devices: LabPlan, namespaces: LabPlan) -> None:
    assert devices.overlay is not None and namespaces.overlay is not None
    assert devices.overlay.expected == namespaces.overlay.expected
    assert devices.overlay.nics == namespaces.overlay.nics
    assert devices.hosts == namespaces.hosts
    assert devices.expected_routes == namespaces.expected_routes
    assert [replace(port, vrf="") for port in namespaces.ports] == list(devices.ports)
    assert {vrf.table for vrf in namespaces.overlay.vrfs} == {MAIN_TABLE}


def test_guards_and_policies_are_those_of_namespaces_in_a_table_for_each_tenant(
    devices: LabPlan, namespaces: LabPlan
) -> None:
    there = {(item.node, item.tenant): item for item in of(devices, GuardSwitch)}
    for item in of(namespaces, GuardSwitch):
        tenant = item.vrf.removeprefix(f"{item.node}-") if item.vrf else ""
        assert replace(item, vrf="", tenant=tenant) == there.pop((item.node, tenant))
    assert not there
    policies = {(item.node, item.tenant): item for item in of(devices, SetPolicy)}
    for item in of(namespaces, SetPolicy):
        same = policies.pop((item.node.removesuffix(f"-{item.tenant}"), item.tenant))
        assert [replace(port, name="", ifindex=0) for port in item.ports] == [
            replace(port, name="", ifindex=0) for port in same.ports
        ]
    assert not policies
    messages = [guard_messages(item)[0] for item in of(devices, GuardSwitch) if item.node == LEAF]
    messages += [policy_messages(item)[0] for item in of(devices, SetPolicy) if item.node == LEAF]
    messages += [border_messages(item)[0] for item in of(devices, SetBorder)]
    assert len(set(messages)) == len(messages) == 5 + 3 + 2, "each table has a name of its own"


def test_the_kernel_decides_unless_the_file_does() -> None:
    why = "Unknown device type"
    assert decide_vrf(lab(), "") is VrfBy.DEVICE
    assert decide_vrf(lab(), why) is VrfBy.NAMESPACE
    with pytest.raises(PlanError, match="Unknown device type") as caught:
        decide_vrf(lab("device"), why)
    assert (caught.value.code, caught.value.field) == ("no-vrf-device", "fabric.overlay.evpn.vrf_by")
    for by in ("device", "namespace"):
        for auto in (VrfBy.DEVICE, VrfBy.NAMESPACE):
            planned = plan_lab(lab(by), k=1000, auto_vrf=auto)
            assert planned.overlay is not None
            assert {vrf.is_device for vrf in planned.overlay.vrfs} == {by == "device"}
    assert lab().overlay == lab("auto").overlay
    assert lab("device").overlay.vrf_by == {BACKEND: VrfBy.DEVICE}  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["uplink1", "br254", "vx10101", "lo0"])
def test_a_tenant_with_the_name_of_another_interface_is_refused(name: str) -> None:
    clashing = load_topology_text(TEXT.format(by="auto").replace("  green:", f"  {name}:"), file="pod.yml")
    plan_lab(clashing, k=1000)
    if name == "lo0":
        plan_lab(clashing, k=1000, auto_vrf=VrfBy.DEVICE)
        return
    with pytest.raises(PlanError, match=f"the VRF of {name} on {LEAF} would be an interface") as caught:
        plan_lab(clashing, k=1000, auto_vrf=VrfBy.DEVICE)
    assert (caught.value.code, caught.value.field) == ("duplicate-interface", f"tenants.{name}")
