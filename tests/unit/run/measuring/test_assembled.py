"""What a record says of the labs of its points."""

import pytest

from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.run.measuring.assembled import lab_summary
from testbed.run.placed.lab import PlannedLab

ETHERNET = "name: t\nfabric: {design: rail-optimized, segments: 1, hosts: 2, gpus: 1, routing: {bfd: off}}"
SUBNET = """name: t
fabric:
  {design: rail-optimized, segments: 1, hosts: 2, gpus: 1, link_layer: infiniband, infiniband: {routing: [ftree, updn]}}
"""
BESIDE = SUBNET + "\nnetworks:\n  frontend: {leaves: 1, nic: {rate: 100G}}"
OF_SWITCHES = "ebgp unnumbered, ECMP up to 64, "


@pytest.mark.parametrize(
    ("text", "routing"),
    [
        (ETHERNET, f"{OF_SWITCHES}no BFD"),
        (SUBNET, "OpenSM, ftree or else updn"),
        (BESIDE, f"OpenSM, ftree or else updn; beside it {OF_SWITCHES}BFD 300 ms x 3"),
    ],
)
def test_who_routes_is_said_of_each_kind_of_fabric(text: str, routing: str) -> None:
    model = load_topology_text(text, file="t.yml")
    assert lab_summary(PlannedLab(model=model, plan=plan_lab(model, k=10_000))).routing == routing
