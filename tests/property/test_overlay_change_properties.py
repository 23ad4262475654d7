"""Tenants, guards, policies, routers outside and link groups of two plans: what is changed is what is deployed, and no
port is without its guard in between."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from fake_kernel import FakeKernel, FakeMachine, NodeContent, hooks_of
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.base.names import namespace_name
from testbed.lab.core.drivers.nodes.changing import Filter, KernelChanges, kernel_changes
from testbed.lab.core.drivers.nodes.places import places_of
from testbed.lab.core.model import LagBy, VrfBy
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.management_plan import StartService
from testbed.lab.core.plan.operations import CreateNode, CreateVeth, InstallPort, Operation, StartRouting, place_of
from testbed.lab.core.plan.overlay_operations import CreateVrf, CreateVxlan
from testbed.lab.core.plan.qos.numbers import keep_numbers, numbers_of
from testbed.lab.core.schema.load import load_topology_text

SUBNETS = (("red", "web"), ("red", "db"), ("blue", "web"), ("blue", "own"), ("green", "all"))
PREFIXES = {subnet: f"172.31.{number}.0/24" for number, subnet in enumerate(SUBNETS)}
OUTSIDE = {"leaf": "p1-s1-rail1", "asn": 64_999, "prefixes": ["198.51.100.0/24"], "rate": "100G"}
LEAVES = {"leaves": 2, "spines": 1, "nic": {"per": "host", "ports": 2, "rate": "100G"}}
FRONTENDS: Sequence[Mapping[str, Any] | None] = (
    None,
    {**LEAVES, "guards": "on"},
    {**LEAVES, "homing": "mlag"},
    {**LEAVES, "homing": "mlag", "guards": "on", "overlay": "evpn"},
)
BESIDE = CreateNode | CreateVrf | StartRouting | StartService
By = tuple[VrfBy, LagBy]


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A pod with tenants on its back end, and a front end beside it."""
    hosts = draw(st.integers(2, 4))
    tenants: dict[str, dict[str, Any]] = {}
    for host in range(1, hosts + 1):
        first = None  # the NICs of a host are in subnets that it can tell apart
        for rail in (1, 2):
            where = draw(st.sampled_from((None, *SUBNETS)))
            if where is not None and where != first:
                first = where
                subnets = tenants.setdefault(where[0], {"subnets": {}})["subnets"]
                subnet = subnets.setdefault(where[1], {"prefix": PREFIXES[where], "nics": []})
                subnet["nics"].append(f"p1-s1-h{host}:rail{rail}")
    for (tenant, name), number in zip(SUBNETS, range(1, len(SUBNETS) + 1), strict=True):
        if tenant in tenants and name in tenants[tenant]["subnets"] and draw(st.booleans()):
            tenants[tenant]["subnets"][name]["prefix6"] = f"fd00:{number}::/64"
    if "red" in tenants:
        if "blue" in tenants:
            talks = draw(st.sampled_from((None, ["blue"], {"blue": ["tcp/80", "icmp"]})))
            if talks is not None:
                tenants["red"]["talks_to"] = talks
        if draw(st.booleans()):
            tenants["red"]["external"] = OUTSIDE
    fabric = {
        "design": "rail-optimized",
        "segments": 1,
        "hosts": hosts,
        "gpus": 2,
        "spines": draw(st.integers(1, 2)),
        "guards": draw(st.sampled_from(("on", "off"))),
        "overlay": "evpn",
    }
    document = {"name": "x", "fabric": fabric}
    if (frontend := draw(st.sampled_from(FRONTENDS))) is not None:
        document["networks"] = {"frontend": frontend}
    if tenants:
        document["tenants"] = tenants
    return document


def planned(document: Mapping[str, Any], by: By) -> LabPlan:
    lab = load_topology_text(json.dumps(document), file="x.yml")
    return plan_lab(lab, k=5000, auto_vrf=by[0], auto_lag=by[1])


class WatchedKernel(FakeKernel):
    """A kernel that looks after each step whether a port is up without the filter that it is to have."""

    guarded: frozenset[tuple[str, str]] = frozenset()
    """The ports that always have one, by place and name."""
    fresh_guarded: frozenset[tuple[str, str]] = frozenset()
    """Those that have one from the moment that they are made."""
    _fresh: set[tuple[str, str]]

    def watch(self, old: LabPlan, new: LabPlan) -> None:
        before, after = hooked_in(old), hooked_in(new)
        staying = {(end.node, end.name) for link in links(new) for end in (link.a, link.b)}
        self.guarded = frozenset(before & (after | (before - staying)))
        self.fresh_guarded = frozenset(after)
        self._fresh = set()

    def apply(self, operations: Sequence[Operation], *, replacing: bool = False) -> None:
        for operation in operations:
            super().apply([operation], replacing=replacing)
            if isinstance(operation, CreateVeth):
                self._fresh |= {(end.node, end.name) for end in (operation.a, operation.b)}
            self.look(places_of(operation))

    def undo(self, operations: Iterable[Operation]) -> None:
        for operation in operations:
            super().undo([operation])
            self.look(places_of(operation))

    def look(self, places: Iterable[str]) -> None:
        for place in places:
            node = self._open()[place]
            hooked = {name for names in node.hooked.values() for name in names}
            for interface in node.interfaces.values():
                port = place, interface.name
                if interface.up and (port in self.guarded or (port in self._fresh and port in self.fresh_guarded)):
                    assert interface.name in hooked, f"{place}:{interface.name} is up without its guard"


def links(plan: LabPlan) -> list[CreateVeth]:
    return [item for item in plan.operations if isinstance(item, CreateVeth)]


def hooked_in(plan: LabPlan) -> set[tuple[str, str]]:
    return {(place_of(item), name) for item in plan.operations if isinstance(item, Filter) for name in hooks_of(item)}


def deployed(plan: LabPlan) -> tuple[FakeMachine, dict[str, int]]:
    machine = FakeMachine()
    kernel = FakeKernel(plan.lab, machine=machine)
    creations = [item for item in plan.operations if isinstance(item, CreateNode | CreateVrf)]
    identities = dict(kernel.create_nodes(creations))
    kernel.publish()
    kernel.apply([item for item in plan.operations if not isinstance(item, BESIDE)])
    return machine, identities


def changed(machine: FakeMachine, identities: dict[str, int], old: LabPlan, new: LabPlan) -> KernelChanges:
    changes = kernel_changes(old, new)
    kernel = WatchedKernel(new.lab, changes.places, machine=machine)
    kernel.watch(old, new)
    identities |= kernel.create_nodes(changes.created)
    kernel.publish({item.node for item in changes.created})
    kernel.undo(changes.first)
    kernel.apply(changes.made, replacing=True)
    kernel.change(changes)
    kernel.undo(changes.removed)
    kernel.apply(changes.settled, replacing=True)
    for node in changes.gone:
        FakeKernel(new.lab, machine=machine).remove({node: identities.pop(node)})
    return changes


def contents(plan: LabPlan, machine: FakeMachine) -> dict[str, NodeContent]:
    """All that the kernel has of each node."""
    nodes = [item.node for item in plan.operations if isinstance(item, CreateNode | CreateVrf)]
    assert machine.published.keys() == {namespace_name(plan.lab, node) for node in nodes}
    return {node: machine.published[namespace_name(plan.lab, node)] for node in nodes}


MECHANISMS = [
    pytest.param((VrfBy.NAMESPACE, LagBy.EBPF), id="namespaces"),
    pytest.param((VrfBy.DEVICE, LagBy.BOND), id="devices"),
]


@pytest.mark.parametrize("by", MECHANISMS)
@given(first=documents(), second=documents())
@settings(max_examples=30)
def test_a_lab_with_tenants_that_is_changed_is_the_one_that_was_meant(
    by: By, first: dict[str, Any], second: dict[str, Any]
) -> None:
    old, new = planned(first, by), planned(second, by)
    machine, identities = deployed(old)
    changed(machine, identities, old, new)
    assert contents(new, machine) == contents(new, deployed(new)[0])
    assert not kernel_changes(new, planned(second, by)), "a second time there is nothing to do"
    changed(machine, identities, new, old)
    assert contents(old, machine) == contents(old, deployed(old)[0])


TENANTS = """\
name: x
fabric: {{design: rail-optimized, segments: 1, hosts: 4, gpus: 2, spines: 1, guards: on, nic: {{rate: 400G}},
         overlay: evpn}}
qos:
  classes:
    gold: {{dscp: [26], weight: 60}}
    bulk: {{default: true, weight: 40}}
tenants:
  red: {{vni: 7, {red}subnets: {{web: {{vni: 70, prefix: 172.31.0.0/24, nics: [{nics}]}}}}}}
  blue: {{vni: 8, subnets: {{own: {{vni: 80, prefix: 172.31.1.0/24, nics: ["p1-s1-h3:rail1", "p1-s1-h3:rail2"]}}}}}}
"""
ONE, TWO = '"p1-s1-h1:rail1", "p1-s1-h2:rail2"', '"p1-s1-h1:rail1", "p1-s1-h2:rail2", "p1-s1-h4:rail1"'
NAMESPACES = (VrfBy.NAMESPACE, LagBy.EBPF)


def of_tenants(*, red: str = "", nics: str = ONE) -> LabPlan:
    lab = load_topology_text(TENANTS.format(red=red, nics=nics), file="x.yml")
    return plan_lab(lab, k=5000, auto_vrf=VrfBy.NAMESPACE)


def between(old: LabPlan, new: LabPlan) -> KernelChanges:
    return kernel_changes(old, keep_numbers(new, numbers_of(old)))


def test_a_nic_more_in_a_tenant_leaves_other_tenants_alone() -> None:
    changes = between(of_tenants(), of_tenants(nics=TWO))
    assert not [place for place in changes.places if place.endswith("-blue")]
    remade = [item for item in changes.made if isinstance(item, CreateVeth)]
    assert {end.node for link in remade for end in (link.a, link.b)} == {"p1-s1-h4", "p1-s1-rail1-red"}
    assert not [item for item in changes.removed if isinstance(item, CreateVxlan)]


def test_a_cap_is_a_number_of_ports_that_stay() -> None:
    changes = between(of_tenants(), of_tenants(red="cap: 100G, "))
    assert not changes.first and not changes.removed and not changes.remade
    installs = [new for _, new in changes.changed if isinstance(new, InstallPort)]
    assert {(item.node, item.name, item.vrf) for item in installs if item.cap_bps} == {
        ("p1-s1-rail1", "down1", "p1-s1-rail1-red"),
        ("p1-s1-rail2", "down2", "p1-s1-rail2-red"),
    }


def test_the_class_of_a_tenant_is_another_dscp_of_vxlan_devices_that_stay() -> None:
    changes = between(of_tenants(), of_tenants(red="traffic_class: gold, "))
    devices = [(was, item) for was, item in changes.changed if isinstance(item, CreateVxlan)]
    assert len(devices) == 4 and {item.node for _, item in devices} == {"p1-s1-rail1-red", "p1-s1-rail2-red"}
    assert all(was.dscp is None and item.dscp is not None for was, item in devices if isinstance(was, CreateVxlan))
    assert not changes.first and not changes.made and not changes.removed


def test_a_vrf_that_goes_leaves_no_wire_and_no_device_to_its_namespace() -> None:
    """A namespace that somebody still has open would keep them, and the VNI with them."""
    changes = between(of_tenants(nics=TWO), of_tenants(nics='"p1-s1-h1:rail1"'))
    assert changes.gone == ("p1-s1-rail2-red",)
    assert {item.name for item in changes.removed if isinstance(item, CreateVxlan)} == {"vx7", "vx70"}
