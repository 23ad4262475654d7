"""A plane of the fabric that fails: which of its links go and come back, and what a lab without planes says."""

from types import SimpleNamespace
from typing import Any

import pytest

from testbed.base.errors import SpecError
from testbed.lab.core.deploy.links.changes import LinkChange
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.run.faults.lab_fault import FaultSite
from testbed.run.faults.registry import fault_findings, lab_fault
from testbed.run.schema.file import load_scenario_text

TEXT = "name: planes\nscale: {time: 1000}\nfabric: {design: dual-plane, segments: 1, hosts: 1, gpus: 1, spines: 1}\n"
LAB = load_topology_text(TEXT, file="planes.yml")
SCENARIO = """name: plane
topology: {file: planes.yml}
transport: {kind: tcp}
workload: {kind: permutation, duration: 10s}
faults:
  - {at: 4s, until: 8s, fabric_plane: b, down: true}
"""


class Links:
    """Stands for `LinkControl`."""

    def __init__(self, refused: str = "") -> None:
        self.done: list[tuple[str, bool | None]] = []
        self.prepared: list[str] = []
        self._refused = refused

    def prepare(self, port: str) -> None:
        self.prepared.append(port)

    def set(self, port: str, change: LinkChange) -> None:
        self.done.append((port, change.up))
        if port == self._refused:
            raise OSError(f"{port} is gone")


def site(links: Links) -> FaultSite:
    lab: Any = SimpleNamespace(whole=SimpleNamespace(model=LAB))
    return FaultSite(lab=lab, links=links, kill_worker=lambda host: None)  # type: ignore[arg-type]


PORTS = ["p1-s1-rail1b:down1", "p1-spine1b:down1"]


def test_all_links_of_the_plane_go_and_come_back() -> None:
    (fault,) = load_scenario_text(SCENARIO, file="plane.yml").scenario.faults
    assert (fault.kind, fault.target) == ("fabric-plane-down", "b")
    links = Links()
    happening = lab_fault(fault)
    happening.prepare(site(links))
    happening.do(site(links))
    happening.undo(site(links))
    assert links.prepared == PORTS
    assert links.done == [*((port, False) for port in PORTS), *((port, True) for port in PORTS)]
    assert happening.may_lose and not happening.of_scale_up


def test_a_link_that_refuses_leaves_none_down() -> None:
    (fault,) = load_scenario_text(SCENARIO, file="plane.yml").scenario.faults
    links = Links(refused=PORTS[0])
    with pytest.raises(OSError, match="is gone"):
        lab_fault(fault).undo(site(links))
    assert links.done == [(port, True) for port in PORTS]


def test_ports_of_the_other_plane_are_not_disturbed() -> None:
    (fault,) = load_scenario_text(SCENARIO, file="plane.yml").scenario.faults
    plan = plan_lab(LAB, k=1000.0)
    disturbed = {f"{port.node}:{port.name}" for port in plan.ports if lab_fault(fault).disturbs(port)}
    assert disturbed == {"p1-s1-h1:rail1b", *PORTS, "p1-s1-rail1b:uplink1"}


def test_a_plane_that_is_not_there_is_told() -> None:
    text = SCENARIO.replace("fabric_plane: b", "fabric_plane: c")
    (fault,) = load_scenario_text(text, file="plane.yml").scenario.faults
    (finding,) = fault_findings(fault, LAB)
    assert (finding.code, finding.message, finding.hint) == (
        "unknown-plane",
        "planes has no plane c",
        "its planes are a to b",
    )
    shared = load_topology_text(TEXT.replace("dual-plane", "rail-optimized"), file="planes.yml")
    (finding,) = fault_findings(fault, shared)
    assert finding.hint == "fabric: {planes: 2}"
    with pytest.raises(SpecError, match="faults"):
        load_scenario_text(SCENARIO.replace("fabric_plane: b", "fabric_plane: 2"), file="plane.yml")
