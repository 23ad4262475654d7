"""Scenarios on containers: workers and iperf3 run in the images, switch ports with `qos:` are those of any lab."""

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]

pytestmark = [pytest.mark.docker, pytest.mark.frr, pytest.mark.timeout(400)]

RING = """
name: ring
topology:
  file: topology.yml
  set:
    name: {name}
    fabric.segments: 1
    fabric.hosts: 4
    fabric.gpus: 1
    fabric.spines: 1
    topology.kinds.host.runtime: docker
    topology.kinds.switch.runtime: docker
transport: {{kind: uet}}
workload: {{kind: all-reduce, algorithm: ring, bytes: 1MB}}
matrix:
  transport.kind: [tcp, uet, roce]
expect:
  - {{metric: wrong, max: 0, source: every element is checked}}
"""
PERMUTATION = """
name: permutation
topology:
  file: topology.yml
  set: {{name: {name}, fabric.hosts: 1, fabric.gpus: 2, fabric.spines: 1, topology.kinds.host.runtime: docker}}
transport: {{kind: tcp, cc: cubic}}
workload: {{kind: permutation, duration: 1s}}
repeat: {{runs: 1, seed: 1}}
expect:
  - {{metric: aggregate_share, min: 0.01, source: something arrived}}
"""


@pytest.mark.parametrize(("scenario", "metric"), [(RING, "wrong"), (PERMUTATION, "aggregate_share")])
def test_it_runs_in_containers(sandbox: Any, client: Any, scenario: str, metric: str) -> None:
    """Whether this machine kept up, and with it the verdict, is not the subject."""
    (sandbox.work / "topology.yml").write_text((ROOT / "topologies/uec-spray.yml").read_text())
    (sandbox.work / "scenario.yml").write_text(scenario.format(name=sandbox.name()))
    done = sandbox.cli("run", "scenario.yml", "-f", "json", "--quiet", timeout_s=300)
    assert done.returncode in {0, 2}, done.stderr
    record = json.loads(next(Path(sandbox.work, "results").glob("*/record.json")).read_text())
    for point in record["points"]:
        for run in point["runs"]:
            assert all(collective["wrong"] == 0 for collective in run["collectives"]), point["name"]
    if metric == "wrong":
        assert [len(point["runs"][0]["collectives"]) for point in record["points"]] == [1, 1, 1]
    text = json.dumps(record)
    assert f'"{metric}"' in text
    assert "testbed/host" in text or "docker" in text
