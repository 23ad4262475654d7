"""`run --backend flows` as it is typed: what it prints, writes and refuses."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from testbed.api.scenarios import RunOptions, run_scenario
from testbed.base.errors import ScenarioError
from testbed.cli.app import app
from testbed.record.record import Backend
from testbed.record.steady import load_steadiness
from testbed.record.store import load_record

pytestmark = pytest.mark.process

SCENARIO = """name: small
topology:
  inline:
    name: small
    scale: {time: auto}
    fabric: {design: rail-optimized, segments: 2, hosts: 2, gpus: 1, spines: 2, nic: {per: gpu, rate: 400G}}
    qos: {preset: uec, base_rtt: 12us, load_balancing: {mode: spray}}
transport: {kind: uet}
workload: {kind: all-reduce, algorithm: ring, bytes: 1MB}
repeat: {runs: 1, seed: 3}
expect:
  - {metric: busbw_share, min: 0.2, source: line rate}
"""


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.yml"
    path.write_text(SCENARIO)
    return path


def invoke(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_a_scenario_as_flows_has_a_table_a_record_and_a_report(scenario: Path) -> None:
    shown = invoke("run", scenario, "--backend", "flows", "-q", "-o", "results")
    assert shown.exit_code == 0, shown.output
    assert "so is the whole band that packets would measure" in " ".join(shown.output.split())
    [directory] = Path("results").iterdir()
    record = load_record(directory)
    assert record.environment.backend is Backend.FLOWS
    [twin] = [point.twin for point in record.points]
    assert twin is not None and twin.bands and not twin.failure
    page = (directory / "report.html").read_text()
    assert "4 NICs by packets, 3 seeds" in page
    assert "Computed as flows" in page
    sheet = invoke("run", scenario, "--backend", "flows", "-q", "--no-report", "-f", "calabria", "-o", "sheets")
    assert "model of flows that share links, no routing daemon" in sheet.output


def test_runs_of_flows_have_other_seeds_each_time(scenario: Path) -> None:
    invoke("run", scenario, "--backend", "flows", "-q", "--no-report", "--steady", "2", "-f", "json")
    [directory] = Path("results").iterdir()
    found = load_steadiness(directory)
    assert found.backend is Backend.FLOWS
    assert [run.seed for run in found.runs] == [3, 4]


@pytest.mark.parametrize("option", ["--keep", "--prove-scale", "--dry-run"])
def test_what_needs_a_lab_is_refused(scenario: Path, option: str) -> None:
    refused = invoke("run", scenario, "--backend", "flows", option)
    assert refused.exit_code
    assert "flows have no lab" in str(refused.exception)


def test_no_pool_runs_flows(scenario: Path) -> None:
    class NoPool:
        def run(self, *_: object, **__: object) -> None:
            raise AssertionError("it is not asked")

    options = RunOptions(backend=Backend.FLOWS, pool=NoPool())  # type: ignore[arg-type]
    with pytest.raises(ScenarioError, match="not on a pool"):
        run_scenario(scenario, options=options)
