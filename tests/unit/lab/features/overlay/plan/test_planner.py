"""The overlay's part of a plan: VRFs, devices, addresses, and what EVPN must bring."""

from __future__ import annotations

import pytest

from testbed.base.errors import PlanError
from testbed.daemons.keeper.entries import EntryKind
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.lab_plan import LabPlan
from testbed.lab.core.plan.overlay_plan import VrfPlan
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.overlay.plan.planner import vrf_nodes

TOPOLOGY = """
name: pod
fabric:
  design: rail-optimized
  segments: 1
  hosts: 4
  gpus: 2
  spines: 2
  nic: {rate: 100G}
  overlay: evpn
tenants:
  red:
    subnets:
      web: {prefix: 10.1.0.0/24, nics: ["p1-s1-h1:rail1", "p1-s1-h2:rail2"]}
      db: {prefix: 10.1.1.0/24, nics: ["p1-s1-h2:rail1"]}
  blue:
    subnets:
      web: {prefix: 10.1.0.0/24, nics: ["p1-s1-h3:rail1", "p1-s1-h4:rail2"]}
"""
LEAF, FAR = "p1-s1-rail1", "p1-s1-rail2"


def plan(text: str = TOPOLOGY) -> LabPlan:
    return plan_lab(load_topology_text(text, file="pod.yml"), k=100)


def vrf(plan: LabPlan, node: str) -> VrfPlan:
    assert plan.overlay is not None
    return next(entry for entry in plan.overlay.vrfs if entry.node == node)


def test_the_namespaces_are_known_before_the_plan() -> None:
    lab = load_topology_text(TOPOLOGY, file="pod.yml")
    assert set(vrf_nodes(lab)) == {entry.node for entry in plan().overlay.vrfs}  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("rds", "code"),
    [
        ({LEAF: "172.18.0.1:50002"}, "duplicate-rd"),
        ({LEAF: "172.18.0.1:10101"}, "duplicate-rd"),
        ({LEAF: "65010:7", FAR: "65010:7"}, "duplicate-rd"),
        ({"p1-spine1": "65010:7"}, "rd-without-vrf"),
    ],
)
def test_a_route_distinguisher_is_of_one_vrf(rds: dict[str, str], code: str) -> None:
    written = ", ".join(f'{switch}: "{rd}"' for switch, rd in rds.items())
    with pytest.raises(PlanError) as caught:
        plan(TOPOLOGY.replace("  red:\n", f"  red:\n    rd: {{{written}}}\n"))
    assert caught.value.code == code
    assert caught.value.field.startswith("tenants.red.rd.p1-s")


def test_a_subnet_on_switches_without_a_path_is_refused() -> None:
    """Rails of rail-only have nothing above them."""
    text = TOPOLOGY.replace("design: rail-optimized", "design: rail-only").replace("  spines: 2\n", "")
    with pytest.raises(PlanError, match="have no path to each other") as caught:
        plan(text)
    assert caught.value.code == "subnet-without-path"


def test_a_tenant_on_switches_without_a_path_is_two_islands() -> None:
    text = TOPOLOGY.replace("design: rail-optimized", "design: rail-only").replace("  spines: 2\n", "")
    text = text.replace(', "p1-s1-h2:rail2"', "").replace('"p1-s1-h2:rail1"', '"p1-s1-h2:rail2"')
    text = text.replace(', "p1-s1-h4:rail2"', "")
    planned = plan(text)
    assert planned.overlay is not None
    kinds = {entry.kind for entries in planned.overlay.expected.values() for entry in entries}
    assert kinds == {EntryKind.HEARD}


def test_a_tenants_prefix_that_a_host_has_on_a_rail_is_refused() -> None:
    with pytest.raises(PlanError, match=r"p1-s1-h1:rail1 would be in 10\.0\.0\.0/16") as caught:
        plan(TOPOLOGY.replace('10.1.0.0/24, nics: ["p1-s1-h1', '10.0.0.0/16, nics: ["p1-s1-h1'))
    assert caught.value.code == "overlap"
