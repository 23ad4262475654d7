"""What VXLAN costs: packets per second from NIC to NIC over the same leaves, the same spine and the same ports."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest
from figures import FIGURES, Figure, judge
from two_sides import PATIENCE_S, finished, in_turns, median_ratio

from testbed.api import Lab
from testbed.deploy.live import RunningLab
from testbed.deploy.records.state import StateDirectory

pytestmark = [pytest.mark.bench, pytest.mark.netns, pytest.mark.frr, pytest.mark.timeout(300)]

TOPOLOGY = """
name: benchvxlan
scale: {time: 1}
fabric: {design: rail-optimized, segments: 1, hosts: 2, gpus: 2, spines: 1, nic: {rate: 400G}, overlay: evpn}
tenants:
  red: {subnets: {web: {prefix: 10.1.0.0/24, nics: ["p1-s1-h1:rail1", "p1-s1-h2:rail2"]}}}
"""
PAYLOAD = "64"
ROUNDS = 5
PIPES = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    with Lab.deploy(TOPOLOGY, directory=tmp_path_factory.mktemp("overlay")) as deployed:
        yield RunningLab.open(deployed.name, StateDirectory())


def packets_per_s(lab: RunningLab, source: str, target: str) -> float:
    """What arrives of small datagrams that the first host sends by one of its NICs, as fast as it can."""
    near, far = (lab.port(*end.split(":")).address for end in (source, target))
    assert near is not None and far is not None
    server = lab.spawn(target.partition(":")[0], ["iperf3", "-s", "-1", "--forceflush"], **PIPES)
    try:
        assert server.stdout is not None
        assert any("Server listening" in line for line in server.stdout)
        words = ("-c", str(far.ip), "-B", str(near.ip), "-u", "-b", "0", "-l", PAYLOAD, "-t", "2", "-J")
        report = json.loads(finished(lab.spawn(source.partition(":")[0], ["iperf3", *words], **PIPES)))
        server.communicate(timeout=PATIENCE_S)
    finally:
        server.kill()
        server.communicate()
    total = report["end"]["sum"]
    return float(total["packets"] - total["lost_packets"]) / float(total["seconds"])


def test_packets_per_second_in_those_of_plain_routing(lab: RunningLab) -> None:
    """The tenant's NICs are on rail 1 and rail 2; those of rail 2 and rail 1, which nobody has, are plainly routed."""
    vxlan, plain = in_turns(
        ROUNDS,
        lambda: packets_per_s(lab, "p1-s1-h1:rail1", "p1-s1-h2:rail2"),
        lambda: packets_per_s(lab, "p1-s1-h1:rail2", "p1-s1-h2:rail1"),
    )
    FIGURES.append(Figure(what="VXLAN: packets/s", measured=max(vxlan), limit=0, unit="/s", at_least=True))
    judge(
        Figure(
            what=f"VXLAN: packets/s, in those of plain routing ({max(plain):.0f}/s)",
            measured=median_ratio(vxlan, plain),
            limit=0.7,
            unit="",
            at_least=True,
            ratio=True,
        )
    )
