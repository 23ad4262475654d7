"""Sweeps from the command line: points on labs, some of them only, on with what was interrupted, and what is left."""

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from testbed.record.json_schema import record_schema

pytestmark = [pytest.mark.netns, pytest.mark.frr]

RUN_S = 150.0
VERDICTS = (0, 2)
"""Nothing is expected of these figures; beside other tests the machine may have been too busy to trust them."""


@pytest.fixture
def sweep(sandbox: Any) -> Path:
    """Two kinds of topology, each with one and two flows for every pair."""
    path: Path = sandbox.work / "sweep.yml"
    path.write_text(
        f"""name: sweep
topology:
  inline:
    name: {sandbox.name()}
    scale: {{time: 4000}}
    fabric: {{design: single-switch, hosts: 2, gpus: 2}}
workload: {{kind: permutation, bytes: 100kB}}
matrix: {{workload.flows: [1, 2], fabric.hosts: [2, 3]}}
repeat: {{runs: 1}}
"""
    )
    return path


def run(sandbox: Any, *arguments: str) -> dict[str, Any]:
    """The record that `run` has written."""
    done = sandbox.cli("run", *arguments, "-f", "json", timeout_s=RUN_S)
    assert done.returncode in VERDICTS, done.stderr
    return record_in(Path(json.loads(done.stdout)["directory"]), sandbox)


def record_in(directory: Path, sandbox: Any) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((sandbox.work / directory / "record.json").read_text())
    Draft202012Validator(record_schema()).validate(data)
    return data


def test_a_sweep_goes_on_with_other_points_and_leaves_nothing(sandbox: Any, sweep: Path) -> None:
    first = run(sandbox, str(sweep), "--only", "hosts=3", "-o", "out", "--no-report")
    assert [point["name"] for point in first["points"]] == ["flows=1 hosts=3", "flows=2 hosts=3"]
    assert [point["lab"]["hosts"] for point in first["points"]] == [3, 3]
    [directory] = (sandbox.work / "out").iterdir()
    assert sorted(path.name for path in directory.iterdir()) == ["labs", "record.json", "session.json"]
    assert sandbox.namespaces() == {}

    whole = run(sandbox, str(sweep), "--resume", str(directory), "--no-report")
    assert [point["name"] for point in whole["points"]] == [
        "flows=1 hosts=2",
        "flows=2 hosts=2",
        "flows=1 hosts=3",
        "flows=2 hosts=3",
    ]
    assert whole["points"][2:] == first["points"], "what was measured is not measured again"
    assert [path.name for path in (sandbox.work / "out").iterdir()] == [directory.name]
    refused = sandbox.cli("run", str(sweep), "--resume", str(directory), "--repeat", "2")
    assert refused.returncode != 0
    assert "those of another scenario or of other parameters" in refused.stderr


def test_an_interrupted_sweep_keeps_its_points_and_goes_on(sandbox: Any, sweep: Path) -> None:
    process = sandbox.start("run", str(sweep), "-o", "out", "--no-report", "--repeat", "2", "-q")
    deadline = time.monotonic() + RUN_S
    records: list[Path] = []
    while not records and time.monotonic() < deadline and process.poll() is None:
        records = list((sandbox.work / "out").glob("*/record.json"))
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.wait(RUN_S) in (130, *VERDICTS)
    [directory] = (sandbox.work / "out").iterdir()
    first = record_in(directory, sandbox)
    done = [point["name"] for point in first["points"] if len(point["runs"]) == 2]
    assert done, "the point that had ended is in the record"
    assert sandbox.namespaces() == {}
    whole = run(sandbox, str(sweep), "--resume", str(directory), "--repeat", "2", "--no-report")
    assert len(whole["points"]) == 4
    assert not whole["incomplete"]
    again = {point["name"]: point for point in whole["points"]}
    assert all(again[point["name"]] == point for point in first["points"] if point["name"] in done)


def test_a_lab_may_be_kept_and_the_scale_is_proved(sandbox: Any, sweep: Path) -> None:
    only = ("--only", "hosts=2", "--only", "flows=1")
    record = run(sandbox, str(sweep), *only, "--prove-scale", "--keep", "--no-report")
    proof = {item["metric"]: item for item in record["scale_proof"]}
    assert {"aggregate_share", "tail_fct_ratio"} <= set(proof)
    assert all(item["k"] == 4000 for item in proof.values())
    assert sandbox.state.names() == [sandbox.name()], "the last lab of the two"
    assert sandbox.state.read(sandbox.name()).k == 8000
    assert sandbox.destroy() > 0


def test_nothing_is_deployed_for_a_scenario_that_does_not_fit(sandbox: Any, sweep: Path) -> None:
    sweep.write_text(
        sweep.read_text().replace("repeat:", 'faults: [{at: 1s, link: "p1-s1-h9:rail1", down: true}]\nrepeat:')
    )
    refused = sandbox.cli("run", str(sweep))
    assert refused.returncode == 3
    assert "unknown-node: faults[0].link" in refused.stderr
    assert not (sandbox.work / "results").exists()
    assert sandbox.state.names() == []
