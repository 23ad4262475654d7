"""Planes on the real kernel: each carries its own packets, none reaches another, and one that fails takes half."""

from contextlib import closing
from typing import Any

import pytest
from sandbox import Sandbox

from testbed.base.names import plane_of_switch
from testbed.lab.core.deploy.links.changes import LinkChange, LinkControl
from testbed.lab.core.deploy.steps import ignore_steps
from testbed.lab.core.deploy.watch.check import CheckStatus, check_lab
from testbed.lab.core.deploy.watch.converge import ConvergenceWatch
from testbed.lab.core.deploy.watch.probe import Probe, Prober
from testbed.lab.core.schema.load import load_topology_text
from testbed.run.faults.planes import links_of_plane

pytestmark = [pytest.mark.netns, pytest.mark.frr]

CONVERGES_S = 60.0

TEXT = """name: {name}
scale: {{time: 1000}}
fabric: {{design: dual-plane, segments: 2, hosts: 1, gpus: 2, spines: 1}}
"""
MISWIRED = """topology:
  links:
    - {endpoints: ["p1-s1-rail1a:wrong1", "p1-spine1b:wrong2"]}
"""


def outcomes(lab: Any) -> dict[str, CheckStatus]:
    return {result.name: result.status for result in check_lab(lab).results}


def test_the_check_passes_and_no_path_crosses_planes(lab: Any) -> None:
    report = check_lab(lab)
    assert report.exit_code == 0, str(report)
    (apart,) = (result for result in report.results if result.name == "planes apart")
    assert apart.count == 8, "from each of the eight subnets to the other plane"


def test_traffic_stays_in_its_plane(lab: Any) -> None:
    """What a port of plane a sends is counted by switches of plane a, and by none of plane b."""
    near = next(nic for nic in lab.plan.hosts[0].nics if nic.name == "rail1a")
    far = next(nic for nic in lab.plan.hosts[1].nics if nic.name == "rail2a")
    with closing(Prober(lab.name, [near, far])) as prober:
        assert prober.lost([Probe(source=near, target=far)]) == []
        before = lab.counters()
        assert prober.lost([Probe(source=near, target=far, size_bytes=4000)] * 50) == []
        after = lab.counters()
    grown = {"a": 0, "b": 0}
    for (node, interface), counted in after.items():
        if plane := plane_of_switch(node):
            grown[plane] += counted.tx_bytes - before[node, interface].tx_bytes
    assert grown["a"] > 3 * 50 * 4000, "a rail switch, a spine and a rail switch"
    assert grown["b"] < 20_000, "BGP and IPv6 alone"


def test_a_plane_that_fails_takes_nothing_of_the_other_one(lab: Any) -> None:
    first, second = lab.plan.hosts
    ports = {nic.name: nic for nic in first.nics}, {nic.name: nic for nic in second.nics}
    probes = {plane: Probe(source=ports[0][f"rail1{plane}"], target=ports[1][f"rail1{plane}"]) for plane in "ab"}
    with LinkControl(lab) as control:
        for port in links_of_plane(lab.model, "b"):
            control.set(port, LinkChange(up=False))
        with closing(Prober(lab.name, [nic for host in ports for nic in host.values()])) as prober:
            assert prober.lost(list(probes.values())) == [probes["b"]]
        for port in links_of_plane(lab.model, "b"):
            control.set(port, LinkChange(up=True))
    with closing(ConvergenceWatch(lab.plan, lab.run_directory("p1-spine1a").parent)) as watch:
        watch.wait(CONVERGES_S, ignore_steps)
    assert set(outcomes(lab).values()) == {CheckStatus.PASS}


def test_a_link_between_planes_is_found(sandbox: Sandbox) -> None:
    """A rail switch that somebody has joined with a spine of another plane learns its routes, and packets cross."""
    text = TEXT.format(name=sandbox.name()) + MISWIRED
    lab = sandbox.deploy(load_topology_text(text, file="miswired.yml")).lab
    (apart,) = (result for result in check_lab(lab).results if result.name == "planes apart")
    assert apart.status is CheckStatus.FAIL
    assert "p1-s1-rail1a:wrong1 to p1-spine1b:wrong2 joins plane a with plane b" in apart.failures
    assert any(line.endswith("arrived") for line in apart.failures)
