"""VRFs that are devices of the kernel: in the namespace of their switch, and all else as where they are namespaces."""

from collections import Counter
from dataclasses import replace
from typing import TypeVar

import pytest

from testbed.base.errors import PlanError
from testbed.base.names import MAX_INTERFACE_NAME
from testbed.lab.core.deploy.mechanisms import decide_vrf
from testbed.lab.core.model import BACKEND, Lab, VrfBy
from testbed.lab.core.plan.hosts import MAIN_TABLE
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.operations import (
    AddAddress,
    AddRoute,
    CreateBridge,
    CreateVeth,
    GuardSwitch,
    SetSysctl,
    SetUp,
)
from testbed.lab.core.plan.overlay_operations import (
    CreateVrf,
    CreateVrfDevice,
    CreateVxlan,
    PreferVrfs,
    SetBorder,
    SetPolicy,
)
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.guards.apply import guard_messages
from testbed.lab.features.overlay.plan.devices import FIRST_TABLE, FIRST_VRF
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


def test_everything_of_them_is_in_the_namespace_of_their_switch(devices: LabPlan) -> None:
    assert not of(devices, CreateVrf)
    assert devices.overlay is not None
    switches = {switch.node for switch in devices.switches}
    assert {(vrf.place, vrf.is_device) for vrf in devices.overlay.vrfs} == {(LEAF, True), (FAR, True)}
    made = [*of(devices, CreateVrfDevice), *of(devices, CreateBridge), *of(devices, CreateVxlan)]
    interfaces = [(item.node, item.name, item.ifindex) for item in made]
    interfaces += [(end.node, end.name, end.ifindex) for item in of(devices, CreateVeth) for end in (item.a, item.b)]
    assert max(Counter((node, name) for node, name, _ in interfaces).values()) == 1
    assert max(Counter((node, ifindex) for node, _, ifindex in interfaces).values()) == 1
    assert all(len(name) <= MAX_INTERFACE_NAME and ifindex < 1 << 31 for _, name, ifindex in interfaces)
    assert {item.node for item in made} <= switches
    assert all(port.place == port.node for port in devices.ports)


def test_a_vrf_has_a_table_and_its_interfaces(devices: LabPlan) -> None:
    made = {(item.node, item.name): item for item in of(devices, CreateVrfDevice)}
    assert set(made) == {(leaf, tenant) for leaf in (LEAF, FAR) for tenant in ("hub", "red", "blue")} | {
        (LEAF, "green")
    }
    blue = made[LEAF, "blue"]
    assert (blue.ifindex, blue.table) == (FIRST_VRF + 254, FIRST_TABLE + 254)
    assert len({item.table for item in made.values() if item.node == LEAF} | {253, 254, 255}) == 4 + 3
    masters = {bridge.name: bridge.master for bridge in of(devices, CreateBridge) if bridge.node == LEAF}
    assert masters["br254"] == blue.ifindex
    ends = [end for item in of(devices, CreateVeth) for end in (item.a, item.b) if end.node == LEAF]
    (port,) = (end for end in ends if end.name == "ext50002")
    assert port.master == made[LEAF, "red"].ifindex
    up = [(item.node, item.name) for item in of(devices, SetUp)]
    assert all(key in up for key in made)
    routed = {item.key for item in of(devices, SetSysctl) if item.node == LEAF and item.key.endswith("/forwarding")}
    assert {f"net/ipv4/conf/{name}/forwarding" for name in ("br254", "ext50002", "tfe-ffffff")} <= routed


def test_they_are_there_before_what_is_in_them_and_come_before_the_local_table(devices: LabPlan) -> None:
    kinds = [type(item) for item in devices.operations]
    preferred = [index for index, kind in enumerate(kinds) if kind is PreferVrfs]
    assert [devices.operations[index].node for index in preferred] == [LEAF, FAR]  # type: ignore[union-attr]
    last_device = max(index for index, kind in enumerate(kinds) if kind is CreateVrfDevice)
    in_them = [
        index
        for index, item in enumerate(devices.operations)
        if (isinstance(item, CreateBridge) and item.master) or isinstance(item, AddAddress | CreateVeth)
    ]
    assert last_device < min(preferred) <= max(preferred) < min(in_them)


def test_wires_lead_from_table_to_table(devices: LabPlan) -> None:
    ends = {
        end.name: end for item in of(devices, CreateVeth) for end in (item.a, item.b) if end.node == FAR and end.master
    }
    wires = {name: end.master - FIRST_VRF for name, end in ends.items() if name.startswith("t")}
    assert wires == {"tfe-ffffff": 254, "tffffff-fe": 16_777_215, "tc352-ffffff": 50_002, "tffffff-c352": 16_777_215}
    routes = {(item.ifindex, item.table) for item in of(devices, AddRoute) if item.node == FAR}
    assert routes == {(end.ifindex, FIRST_TABLE + end.master - FIRST_VRF) for n, end in ends.items() if n in wires}


def test_what_evpn_brings_and_what_hosts_have_is_the_same(devices: LabPlan, namespaces: LabPlan) -> None:
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
