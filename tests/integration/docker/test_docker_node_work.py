"""Nodes that are containers, restarted and made anew: their links are there, and their neighbours' ends never went."""

import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from observed import observe

from testbed.lab.core.deploy.changing.drift.lab_drift import find_drift, repair_lab
from testbed.lab.core.deploy.changing.node import recreate_node, restart_node
from testbed.lab.core.deploy.lifecycle import await_convergence
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.steps import ignore_steps
from testbed.lab.core.deploy.watch.check import check_lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.containers.runtimes.docker import LiveContainers

pytestmark = [pytest.mark.docker, pytest.mark.frr, pytest.mark.timeout(600)]

TOPOLOGY = """
name: {name}
fabric: {{design: rail-optimized, hosts: 2, gpus: 1, segments: 2, spines: 1}}
topology:
  nodes:
    p1-s1-h1: {{runtime: docker}}
    p1-s1-rail1: {{runtime: docker}}
"""


@pytest.fixture(scope="module")
def name(engine: Any, shared_sandbox: Any) -> str:
    """The name of a lab whose host and rail switch are containers."""
    text = TOPOLOGY.format(name=shared_sandbox.name())
    found: str = shared_sandbox.deploy(load_topology_text(text, file="work.yml")).lab.name
    return found


@pytest.fixture
def opened(name: str, shared_sandbox: Any) -> Callable[[], RunningLab]:
    """Opens the lab anew."""
    return lambda: RunningLab.open(name, shared_sandbox.state)


def container_id(lab: RunningLab, node: str) -> str:
    nodes = lab.runtime(node)
    assert isinstance(nodes, LiveContainers)
    return nodes.container_id(node)


def require_whole(lab: RunningLab) -> None:
    assert find_drift(lab).rows == ()
    report = check_lab(lab)
    assert report.exit_code == 0, report


@pytest.mark.parametrize("node", ["p1-s1-rail1", "p1-s1-h1"])
@pytest.mark.parametrize("work", [restart_node, recreate_node])
def test_a_container_begins_anew_with_its_links(opened: Callable[[], RunningLab], work: Any, node: str) -> None:
    """Its files stay with a restart, and go where it is made anew."""
    lab = opened()
    others = [item.name for item in lab.model.nodes if item.name != node]
    ports, before = observe(lab.name, others), container_id(lab, node)
    assert lab.run(node, ["sh", "-c", "echo mine > /root/note"]).returncode == 0
    work(opened(), node, timeout_s=60)
    lab = opened()
    kept = lab.run(node, ["cat", "/root/note"]).stdout
    assert (container_id(lab, node) == before, kept) == ((True, "mine\n") if work is restart_node else (False, ""))
    assert observe(lab.name, others) == ports
    require_whole(lab)


def test_a_container_that_somebody_stopped_is_mended(opened: Callable[[], RunningLab], engine: Any) -> None:
    lab = opened()
    subprocess.run(
        ["docker", "--host", engine.url, "stop", "-t", "1", container_id(lab, "p1-s1-h1")],
        check=True,
        capture_output=True,
    )
    assert [row.node for row in find_drift(opened()).rows] == ["p1-s1-h1"]
    with lab.state.lock_lab(lab.name):
        repair_lab(opened(), find_drift(opened()))
    await_convergence(opened().plan, lab.state, 60.0, ignore_steps)  # as `apply --repair` does
    require_whole(opened())


def test_a_dead_daemon_in_a_container_is_mended(opened: Callable[[], RunningLab]) -> None:
    lab = opened()
    assert lab.run("p1-s1-rail1", ["pkill", "-KILL", "bgpd"]).returncode == 0
    assert [row.node for row in find_drift(opened()).rows] == ["p1-s1-rail1"]
    with lab.state.lock_lab(lab.name):
        repair_lab(opened(), find_drift(opened()))
    await_convergence(opened().plan, lab.state, 60.0, ignore_steps)  # as `apply --repair` does
    require_whole(opened())
