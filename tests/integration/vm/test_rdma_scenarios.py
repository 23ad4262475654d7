"""Scenarios over soft RDMA, run in the lab VM as a user would: `testbed --on vm run`.

An emulated machine that others slow down makes a run invalid, which says nothing of the fabric: then what is exact is
looked at (every element of a collective, no message lost), and the verdict is shown.
"""

import shutil
from pathlib import Path

import pytest
from lab_vm import CHECKOUT, LabVm, run_scenario

from testbed.run.schema.file import load_scenario
from testbed.run.schema.model import TransportKind

pytestmark = [pytest.mark.labvm, pytest.mark.netns, pytest.mark.timeout(2700)]

SHIPPED = [
    path
    for path in sorted((CHECKOUT / "scenarios").glob("*.yml"))
    if load_scenario(path).transport.kind is TransportKind.RDMA
]
RUN_TIMEOUT_S = 1500.0
TOPOLOGY = "two-switches-rdma.yml"
ALL_REDUCE = f"""
name: verbs-ring
topology:
  file: {TOPOLOGY}
  set: {{scale.time: 40000}}
transport: {{kind: rdma}}
workload: {{kind: all-reduce, bytes: 1MB, algorithm: ring, time_limit: 300s, ranks: {{hosts: [h1, h2]}}}}
expect:
  - {{metric: wrong, max: 0, source: "every element is checked"}}
"""


VERBS = ("write", "read", "send", "fetch-and-add", "compare-and-swap")
LATENCY = f"""
name: verbs-latency
topology:
  file: {TOPOLOGY}
  set: {{{{scale.time: 40000}}}}
transport: {{{{kind: rdma, test: latency, iterations: 50, qp_timeout: 22, verb: {{verb}}}}}}
workload: {{{{kind: point-to-point, bytes: 8, time_limit: 300s, ranks: {{{{hosts: [h1, h2]}}}}}}}}
probes: off
expect:
  - {{{{metric: rdma_latency_ratio, min: 0.2, source: "nothing is faster than what an idle port lets pass"}}}}
  - {{{{metric: retransmits, max: 0, source: "nothing queues"}}}}
"""
ATOMICS = f"""
name: verbs-atomics
topology:
  file: {TOPOLOGY}
  set: {{scale.time: 40000}}
transport: {{kind: rdma, tx_depth: 16, qp_timeout: 22, verb: fetch-and-add}}
workload: {{kind: point-to-point, duration: 5s, ranks: {{hosts: [h1, h2]}}}}
matrix:
  transport.verb: [fetch-and-add, compare-and-swap]
"""


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_ones_pass(lab_vm: LabVm, path: Path, tmp_path: Path) -> None:
    _, record, _ = run_scenario(lab_vm, path, tmp_path, timeout_s=RUN_TIMEOUT_S)
    for point in record["points"]:
        (measured,) = point["runs"]
        assert all(channel["received_bytes"] and channel["source_port"] for channel in measured["channels"])


def written(text: str, directory: Path) -> Path:
    """A scenario file that has its topology beside it."""
    file = directory / "scenario.yml"
    file.write_text(text)
    shutil.copy(Path(__file__).with_name(TOPOLOGY), directory)
    return file


@pytest.mark.parametrize("verb", VERBS)
def test_latency_of_every_verb(lab_vm: LabVm, verb: str, tmp_path: Path) -> None:
    done, record, _ = run_scenario(lab_vm, written(LATENCY.format(verb=verb), tmp_path), tmp_path / "results")
    (measured,) = record["points"][0]["runs"]
    (channel,) = measured["channels"]
    latency = channel["latency"]
    assert latency["size_bytes"] == 8
    assert len(latency["samples_us"]) == 49, "the times between 50 messages"
    assert latency["round_trip"] is (verb not in ("write", "send"))
    assert 0 < measured["metrics"]["rdma_latency_min"] <= measured["metrics"]["rdma_latency_p50"]
    assert channel["retransmits"] == 0
    assert "P99.9" in done.stdout, "the table of pairs"


def test_atomics_for_a_duration(lab_vm: LabVm, tmp_path: Path) -> None:
    _, record, _ = run_scenario(lab_vm, written(ATOMICS, tmp_path), tmp_path / "results")
    for point in record["points"]:
        (channel,) = point["runs"][0]["channels"]
        assert channel["counters"]["messages"] > 0 and channel["counters"]["message_bytes"] == 8
        assert channel["retransmits"] == 0


def test_collectives_carry_data_over_verbs(lab_vm: LabVm, tmp_path: Path) -> None:
    _, record, _ = run_scenario(lab_vm, written(ALL_REDUCE, tmp_path), tmp_path / "results")
    (measured,) = record["points"][0]["runs"]
    assert measured["metrics"]["wrong"] == 0
    assert len(measured["collectives"]) >= 1
    assert all(channel["sent_bytes"] for channel in measured["channels"])
    assert "rcvd_seq_err" in measured["counters"]
