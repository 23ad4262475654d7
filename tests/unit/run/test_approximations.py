"""A record tells what a run does not reproduce, and where the lab is not as it is written."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.run.schema.model import Ranks, Scenario, TopologyRef, Transport, TransportKind, Workload
from testbed.run.sweep.approximations import approximations

TOPOLOGY = Path(__file__).parents[3] / "topologies/rail-qos.yml"


def told_of(text: str, k: float, workload: Workload) -> list[str]:
    model = load_topology_text(text, file="lab.yml")
    lab: Any = SimpleNamespace(name="lab", model=model, plan=plan_lab(model, k=k))
    scenario = Scenario(
        name="a", topology=TopologyRef(), transport=Transport(kind=TransportKind.ROCE), workload=workload
    )
    return approximations(lab, scenario)


def said(detect: str, k: float) -> list[str]:
    text = TOPOLOGY.read_text().replace("detect: 200ms", f"detect: {detect}")
    return [one for one in told_of(text, k, Workload(kind="incast")) if "watchdog" in one]


@pytest.mark.parametrize(("detect", "told"), [("1ms", True), ("60s", False)])
def test_a_watchdog_that_waits_longer_than_is_written_is_told(detect: str, told: bool) -> None:
    found = said(detect, k=20_000)
    assert bool(found) is told
    assert all("and not for the 1 ms that are written" in one for one in found)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("", True),
        ("qos: {preset: sonic}", False),
        ("qos: {preset: sonic, load_balancing: {hash: kernel}}", True),
    ],
)
def test_source_ports_of_vxlan_that_no_seed_decides_are_told(more: str, told: bool) -> None:
    text = TOPOLOGY.with_name("two-tenants.yml").read_text()
    found = told_of(f"{text}{more}\n", 1000, Workload(kind="incast", ranks=Ranks(tenants=("red",))))
    assert any("source port of VXLAN" in one for one in found) is told
