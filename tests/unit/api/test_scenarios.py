"""Running scenarios from Python, on labs that are not there: children are canned, the rest is real."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fake_lab import FakeLab

import testbed
from testbed.api import Lab, RunOptions, ScenarioResult
from testbed.base.errors import ScenarioError, SpecError
from testbed.lab.core.deploy.lifecycle import DeployOptions
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.deploy.scale import REFERENCE
from testbed.lab.core.model import Lab as LabModel
from testbed.lab.core.plan.lab import plan_lab
from testbed.lab.core.plan.scale import MachineLoad
from testbed.lab.core.schema.load import load_topology_text
from testbed.record.record import Backend, Outcome
from testbed.record.store import RECORD_FILE, REPORT_FILE, load_record
from testbed.run.sweep.labs import LabOptions
from testbed.run.sweep.progress import Phase, Progress
from testbed.run.sweep.runner import ScenarioStopped

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[3]

DATA = Path(__file__).parents[2] / "data" / "iperf3"
LISTENING = ("printf", "Server listening on 5201 (test #1)\\n")
FABRIC = "fabric: {design: rail-optimized, segments: 2, hosts: 2, gpus: 1, spines: 2}"
SCENARIO = f"""name: timed
topology:
  inline:
    name: pod
    scale: {{time: 4000}}
    {FABRIC}
transport: {{cc: cubic}}
workload: {{kind: permutation, scope: inter-leaf, duration: 1s}}
repeat: {{runs: 1}}
"""
TWO_FABRICS = SCENARIO + "matrix: {fabric.spines: [2, 3]}\n"
TWO_FLOWS = SCENARIO + "matrix: {workload.scope: [inter-leaf, any]}\n"
Client = Callable[[str, Sequence[str]], Sequence[str]]


def measured(node: str, argv: Sequence[str]) -> Sequence[str]:
    return ("cat", str(DATA / "timed.json"))


def failing(node: str, argv: Sequence[str]) -> Sequence[str]:
    return ("false",)


def fake(model: LabModel, client: Client = measured) -> FakeLab:
    plan = plan_lab(model, k=model.scale.time or 4000.0)
    return FakeLab(model, plan, lambda node, argv: LISTENING if "-s" in argv else client(node, argv))


@dataclass
class Deploys:
    """Stands where labs are deployed, and notes which came and went."""

    client: Client = measured
    came: list[str] = field(default_factory=list)
    went: list[str] = field(default_factory=list)

    @dataclass
    class Outcome:
        lab: FakeLab
        changed: bool = True

    def deploy(self, model: LabModel, state: StateDirectory, options: DeployOptions, notify: Any) -> Outcome:
        self.came.append(f"{model.name} with {len(model.switches)} switches at k = {options.k:g}")
        return self.Outcome(fake(model, self.client))

    def destroy(self, name: str, state: StateDirectory) -> None:
        self.went.append(name)


@pytest.fixture
def deploys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deploys:
    monkeypatch.setenv("TESTBED_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TESTBED_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setattr("testbed.lab.core.deploy.scale.machine_profile", lambda state, measure: REFERENCE)
    monkeypatch.setattr("testbed.run.sweep.packet_cost.packet_cost", lambda transport, state, measure: None)
    monkeypatch.setattr("testbed.run.sweep.scales.watch_machine", lambda state, keep: MachineLoad())
    monkeypatch.setattr("testbed.run.sweep.labs.keep_reading", lambda state: None)
    found = Deploys()
    monkeypatch.setattr("testbed.run.sweep.labs.deploy_lab", found.deploy)
    monkeypatch.setattr("testbed.run.sweep.labs.destroy_lab", found.destroy)
    return found


@pytest.fixture
def lab(deploys: Deploys, tmp_path: Path) -> Lab:
    """A lab that is up, of a file called pod.yml."""
    model = load_topology_text(f"name: up\nscale: {{time: 4000}}\n{FABRIC}\n", file="labs/pod.yml")
    return Lab(fake(model), StateDirectory())  # type: ignore[arg-type]


def test_text_runs_on_a_lab_of_its_own(deploys: Deploys, tmp_path: Path) -> None:
    seen: list[Progress] = []
    result = testbed.run_scenario(SCENARIO, results=tmp_path / "out", on_progress=seen.append)
    assert deploys.came == ["pod with 4 switches at k = 4000"]
    assert deploys.went == ["pod"]
    (point,) = result.record.points
    assert [len(run.channels) for run in point.runs] == [4]
    assert result.directory is not None and result.directory.parent == tmp_path / "out"
    assert load_record(result.directory).points == result.record.points
    assert result.report is None and result.kept == ""
    assert [event.phase for event in seen][:: len(seen) - 1] == [Phase.LAB, Phase.RUN]
    assert result.metric("aggregate_goodput").median == pytest.approx(4 * 11996256 * 8 / 1.028741)


def test_without_a_place_for_results_nothing_is_written(
    deploys: Deploys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert testbed.run_scenario(SCENARIO).directory is None
    assert list(tmp_path.iterdir()) == []


def test_a_file_with_overrides_some_points_and_a_report(deploys: Deploys, tmp_path: Path) -> None:
    path = tmp_path / "x.yml"
    path.write_text(TWO_FABRICS)
    options = RunOptions(report=True, labs=LabOptions(keep=True))
    result = testbed.run_scenario(
        path, overrides={"repeat.runs": 2}, only={"spines": 3}, results=tmp_path / "out", options=options
    )
    assert deploys.came == ["pod with 5 switches at k = 4000"]
    assert deploys.went == [] and result.kept == "pod"
    assert [(point.name, len(point.runs)) for point in result.record.points] == [("spines=3", 2)]
    assert result.directory is not None and result.report == result.directory / REPORT_FILE
    assert result.report.is_file()
    assert result.metric("jain_flows", "spines=3").median == pytest.approx(1.0)


def test_a_run_goes_on_with_what_was_measured(deploys: Deploys, tmp_path: Path) -> None:
    whole = testbed.run_scenario(TWO_FLOWS, results=tmp_path)
    assert whole.directory is not None and deploys.came == ["pod with 4 switches at k = 4000"]
    again = testbed.run_scenario(TWO_FLOWS, options=RunOptions(resume=whole.directory))
    assert len(deploys.came) == 1, "every point was there"
    assert again.directory == whole.directory and again.record.points == whole.record.points


def test_what_stops_a_scenario_leaves_a_record_and_no_lab(deploys: Deploys, tmp_path: Path) -> None:
    deploys.client = failing
    with pytest.raises(ScenarioStopped, match="iperf3") as stopped:
        testbed.run_scenario(SCENARIO, results=tmp_path / "out", options=RunOptions(report=True))
    [directory] = (tmp_path / "out").iterdir()
    assert {RECORD_FILE, REPORT_FILE} <= {path.name for path in directory.iterdir()}
    assert load_record(directory).incomplete == stopped.value.record.incomplete != ""
    assert deploys.went == ["pod"]


def test_figures_that_were_not_measured(deploys: Deploys) -> None:
    result = testbed.run_scenario(SCENARIO)
    with pytest.raises(ScenarioError, match=r"'jain_flow' was not measured\n  hint: did you mean jain_flows"):
        result.metric("jain_flow")
    with pytest.raises(ScenarioError, match="no point is called 'mode=x'"):
        result.metric("jain_flows", "mode=x")


def test_a_scenario_on_a_lab_that_is_up(lab: Lab, deploys: Deploys, tmp_path: Path) -> None:
    result = lab.run(TWO_FLOWS.replace("name: pod", "name: other"), results=tmp_path / "out", report=True)
    assert isinstance(result, ScenarioResult)
    assert deploys.came == deploys.went == [], "it was there before, and stays"
    assert [point.name for point in result.record.points] == ["scope=inter-leaf", "scope=any"]
    assert {point.lab.name for point in result.record.points} == {"up"}
    assert result.record.scenario.topology == {"file": "pod.yml", "set": {}}
    assert result.report is not None and result.report.is_file()


def test_a_lab_that_is_up_keeps_its_topology(lab: Lab) -> None:
    with pytest.raises(ScenarioError, match=r"fabric\.spines: the topology of up cannot change"):
        lab.run(TWO_FABRICS)
    with pytest.raises(ScenarioError, match=r"scale\.time: the topology of up cannot change"):
        lab.run(SCENARIO, overrides={"scale.time": 8000})
    assert lab.run(SCENARIO, overrides={"repeat.runs": 2}).record.scenario.overrides == ["repeat.runs=2"]


def test_a_lab_without_what_the_scenario_names(lab: Lab, tmp_path: Path) -> None:
    path = tmp_path / "x.yml"
    path.write_text(SCENARIO.replace("duration: 1s", "duration: 1s, ranks: {hosts: [p9-s1-h1]}"))
    with pytest.raises(SpecError, match=r"x\.yml:8:\d+: unknown-host: .* up has no host 'p9-s1-h1'"):
        lab.run(path)


def test_a_run_that_fails_on_a_lab_that_is_up(deploys: Deploys, tmp_path: Path) -> None:
    model = load_topology_text(f"name: up\nscale: {{time: 4000}}\n{FABRIC}\n", file="pod.yml")
    lab = Lab(fake(model, failing), StateDirectory())  # type: ignore[arg-type]
    with pytest.raises(ScenarioStopped):
        lab.run(SCENARIO, results=tmp_path / "out", report=True)
    [directory] = (tmp_path / "out").iterdir()
    assert (directory / REPORT_FILE).is_file() and load_record(directory).incomplete


def test_the_simulator_needs_no_lab_and_gives_the_same_kind_of_result(tmp_path: Path) -> None:
    text = f"""
name: simulated
topology: {{file: {ROOT}/topologies/rail-qos.yml}}
transport: {{kind: uet}}
workload: {{kind: permutation, bytes: 100kB, ranks: {{rails: [1], count: 4}}}}
"""
    result = testbed.run_scenario(text, results=tmp_path, options=RunOptions(backend=Backend.SIMULATION, report=True))
    assert result.outcome is Outcome.PASS and result.kept == ""
    assert result.record.environment.backend is Backend.SIMULATION
    assert result.metric("jct").median is not None
    assert result.report is not None and result.report.is_file()
