"""A record tells what a run does not reproduce, and where the lab is not as it is written."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.run.schema.model import Scenario, TopologyRef, Transport, TransportKind, Workload
from testbed.run.sweep.approximations import approximations

TOPOLOGY = Path(__file__).parents[3] / "topologies/rail-qos.yml"


def said(detect: str, k: float) -> list[str]:
    model = load_topology_text(TOPOLOGY.read_text().replace("detect: 200ms", f"detect: {detect}"), file="rail-qos.yml")
    lab: Any = SimpleNamespace(name="lab", model=model, plan=plan_lab(model, k=k))
    scenario = Scenario(
        name="a", topology=TopologyRef(), transport=Transport(kind=TransportKind.ROCE), workload=Workload(kind="incast")
    )
    return [one for one in approximations(lab, scenario) if "watchdog" in one]


@pytest.mark.parametrize(("detect", "told"), [("1ms", True), ("60s", False)])
def test_a_watchdog_that_waits_longer_than_is_written_is_told(detect: str, told: bool) -> None:
    found = said(detect, k=20_000)
    assert bool(found) is told
    assert all("and not for the 1 ms that are written" in one for one in found)
