"""The command line of scenarios, as far as nothing is run: --dry-run, --only, validate, workloads."""

import csv
import io
import json
from pathlib import Path

import pytest

from testbed.base.errors import SpecError, TestbedError, WorkloadError
from testbed.cli.labs.validate import validate
from testbed.cli.options import Format
from testbed.cli.output import duration
from testbed.cli.scenarios.dry_run import foresee, print_dry_run
from testbed.cli.scenarios.named_files import read_sweeps
from testbed.cli.scenarios.results import results
from testbed.cli.scenarios.run import RunCommand, run, run_all
from testbed.cli.scenarios.run_progress import SweepSteps
from testbed.cli.scenarios.workloads import workloads
from testbed.lab.core.deploy.steps import StepEvent
from testbed.lab.core.plan.scale import MachineLoad
from testbed.run.sweep.progress import Phase, Progress
from testbed.workload.registry import KINDS

ROOT = Path(__file__).parents[3]
SHIPPED = sorted((ROOT / "scenarios").glob("*.yml"))
SWEEP = f"""name: sweep
topology: {{file: {ROOT}/topologies/rail-qos.yml, set: {{scale.time: 4000}}}}
transport: {{kind: uet}}
workload: {{kind: all-reduce, bytes: 1MB, ranks: {{rails: [1], count: 4}}}}
matrix: {{workload.algorithm: [ring, tree], qos.load_balancing.mode: [flow, spray]}}
repeat: {{runs: 2}}
expect:
  - {{metric: jct, where: {{mode: flow}}, over: {{mode: spray}}, min: 1, source: a figure}}
"""


@pytest.fixture(autouse=True)
def nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state directory that must not come into being, and a machine that is not watched for a moment each time."""
    monkeypatch.setattr("testbed.run.sweep.scales.watch_machine", lambda state, keep: MachineLoad())
    monkeypatch.setenv("TESTBED_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TESTBED_RUN_DIR", str(tmp_path / "run"))


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    path = tmp_path / "sweep.yml"
    path.write_text(SWEEP)
    return path


def test_a_dry_run_foresees_every_point_and_touches_nothing(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_dry_run(read_sweeps([sweep]), Format.JSON)
    [document] = json.loads(capsys.readouterr().out)
    assert document["scenario"] == "sweep"
    assert [lab["name"] for lab in document["labs"]] == ["rail-qos", "rail-qos"]
    assert [point["name"] for point in document["points"]] == [
        "algorithm=ring mode=flow",
        "algorithm=tree mode=flow",
        "algorithm=ring mode=spray",
        "algorithm=tree mode=spray",
    ]
    for point in document["points"]:
        assert (point["ranks"], point["runs"], point["k"]) == (4, 2, 4000)
        # an AllReduce moves 2 (n - 1) S in all
        assert point["bytes"] == point["fabric_bytes"] == 6_000_000
        # 2 (n - 1) / n S at 100 Mbit/s, headers and round trips beside it
        assert 0.12 < point["traffic_s"] < 0.4
    assert {point["transfers"] for point in document["points"][::2]} == {24}
    assert document["estimated_s"] > sum(point["estimated_s"] for point in document["points"])
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.yml"]


def test_a_dry_run_as_a_table_and_as_csv(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweeps = read_sweeps([sweep], only=["mode=spray"])
    print_dry_run(sweeps, Format.CSV)
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["point"] for row in rows] == ["algorithm=ring mode=spray", "algorithm=tree mode=spray"]
    print_dry_run(sweeps, Format.TABLE)
    assert "2 points on 1 lab, 4 runs, about " in capsys.readouterr().out


def test_a_warning_of_a_topology_is_told_where_its_scenario_is_read(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read_sweeps([sweep], ["fabric.routing.ecmp=1"], warn=True)
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert len(told) == 1 and "ecmp" in told[0], "once for all points"
    read_sweeps([sweep], ["fabric.routing.ecmp=1"])
    assert not capsys.readouterr().err


def test_what_is_allowed_and_hardly_meant_is_warned_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lossy.yml"
    path.write_text(
        SWEEP.replace("{kind: uet}", "{kind: roce, traffic_class: bulk, parameters: nvidia}").replace("sweep", "lossy")
    )
    print_dry_run(read_sweeps([path]), Format.TABLE)
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("lossy: warning: ")]
    assert sum("of the class bulk, which is lossy" in line for line in told) == 1, "for four points once"
    assert sum("those of NICs beside PFC" in line for line in told) == 1
    validate.main([str(path)], standalone_mode=False)
    assert "warning: RoCE's packets are of the class bulk" in capsys.readouterr().err
    print_dry_run(read_sweeps([path]), Format.JSON)
    [document] = json.loads(capsys.readouterr().out)
    assert [len(point["warnings"]) for point in document["points"]] == [2, 2, 2, 2]


def test_only_some_points_and_other_repeats(sweep: Path) -> None:
    [cut] = read_sweeps([sweep], ["workload.bytes=2MB", "fabric.hosts=4"], seed=5, repeat=7, only=["mode=flow"])
    assert [point.index for point in cut.points] == [1, 2]
    assert {(one.scenario.repeat.runs, one.scenario.repeat.seed) for one in cut.points} == {(7, 5)}
    assert {one.bytes for one in foresee(cut)} == {12_000_000}
    assert cut.scenario.expect == (), "there is nothing to compare with"


def test_problems_of_all_files_come_together(sweep: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yml"
    other.write_text(SWEEP.replace("rails: [1]", "rails: [7]"))
    sweep.write_text(SWEEP.replace("[flow, spray]", "[flow, sprayed]").replace(", over: {mode: spray}", ""))
    with pytest.raises(SpecError) as caught:
        read_sweeps([sweep, other])
    assert f"{sweep}:5:76: unknown-mode: qos.load_balancing.mode" in str(caught.value)
    assert f"{other}:4:58: unknown-rail: workload.ranks.rails[0]: rail-qos has no rail 7" in str(caught.value)


def test_a_workload_that_the_lab_cannot_carry_is_found_at_its_parameter(sweep: Path) -> None:
    text = SWEEP.replace("kind: all-reduce, bytes: 1MB", "kind: moe, experts: 6").partition("matrix:")[0]
    sweep.write_text(text)
    with pytest.raises(SpecError, match=r"4:23: workload: workload\.experts: 6 experts cannot be spread evenly"):
        foresee(read_sweeps([sweep])[0])


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_scenario_fits_its_labs(path: Path) -> None:
    [shipped] = read_sweeps([path])
    for point in foresee(shipped):
        if point.workload != "program":  # nobody knows what a program will send
            assert point.transfers + point.requests > 0
            assert point.traffic_s is not None
        assert point.estimated_s < 120


def test_a_scenario_of_a_fabric_too_large_for_a_lab_is_valid(
    sweep: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Flows run on it: `scenarios/large` are such."""
    monkeypatch.setattr("testbed.lab.core.plan.qos.planner.MAX_PORTS", 4)
    validate.main([str(sweep)], standalone_mode=False)
    said = capsys.readouterr()
    assert "valid: all-reduce over uet" in said.out
    assert "ports; with qos a lab has 4 at most; scenarios run on it with --backend flows" in said.err
    validate.main([str(sweep), "-f", "json"], standalone_mode=False)
    said = capsys.readouterr()
    (document,) = json.loads(said.out)
    assert (document["points"], document["runs"], document["estimated_s"]) == ([], 8, None)
    assert [lab["hosts"] for lab in document["labs"]] == [8, 8]
    assert "scenarios run on it with --backend flows" in said.err
    with pytest.raises(SpecError, match="too-many-ports"):
        print_dry_run(read_sweeps([sweep]), Format.TABLE)  # nothing could be deployed


def test_validate_tells_topologies_from_scenarios(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    validate.main([str(sweep), str(ROOT / "topologies" / "rail-qos.yml")], standalone_mode=False)
    said = capsys.readouterr().out
    assert "rail-qos.yml: valid: rail-optimized, 8 hosts, 6 switches" in said
    assert f"{sweep}: valid: all-reduce over uet, 4 points on 2 labs, 8 runs, 1 expectation" in said


def test_workloads_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    workloads.main(["-f", "json"], standalone_mode=False)
    assert [kind["kind"] for kind in json.loads(capsys.readouterr().out)] == list(KINDS)
    workloads.main(["-f", "table"], standalone_mode=False)
    assert "Every rank sends to one other" in capsys.readouterr().out


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_of_a_workload_is_printed(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    workloads.main([kind, "-f", "csv"], standalone_mode=False)
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {one.name for one in KINDS[kind].parameters} <= {row["parameter"] for row in rows}
    assert all(row["description"] for row in rows)
    workloads.main([kind, "-f", "table"], standalone_mode=False)
    assert capsys.readouterr().out.startswith(f"{kind}: ")
    workloads.main([kind, "-f", "json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["kind"] == kind


def test_a_workload_that_there_is_not() -> None:
    with pytest.raises(WorkloadError, match="did you mean all-reduce"):
        workloads.main(["allreduce", "-f", "table"], standalone_mode=False)


def test_results_to_go_on_with_are_those_of_one_scenario(sweep: Path) -> None:
    sweeps = read_sweeps([sweep, sweep])
    with pytest.raises(TestbedError, match="--resume goes on with the results of one scenario"):
        run_all(sweeps, RunCommand(form=Format.TABLE, resume=sweep.parent))


def test_progress_tells_how_long_the_rest_takes() -> None:
    now = [100.0]
    shown: list[StepEvent] = []
    steps = SweepSteps(runs=4, show=shown.append, clock=lambda: now[0])

    def tell(phase: Phase, run_: int, done: float, total: float) -> None:
        steps(Progress(phase=phase, run=run_, runs=2, done=done, total=total, point=1, points=2))

    tell(Phase.TRAFFIC, 1, 0.5, 1.0)
    now[0] = 110.0
    tell(Phase.RUN, 1, 1, 2)
    tell(Phase.TRAFFIC, 2, 3.0, 5.0)
    assert [event.detail for event in shown] == ["traffic", "run, about 30 s left", "traffic, about 30 s left"]
    assert [(event.step, event.done, event.total) for event in shown] == [
        ("point 1/2 run 1/2", 50, 100),
        ("point 1/2 run 1/2", 1, 2),
        ("point 1/2 run 2/2", 3, 5),
    ]


def test_durations_for_people() -> None:
    assert [duration(seconds) for seconds in (0.4, 59.6, 119, 180)] == ["0 s", "60 s", "119 s", "3 min"]


@pytest.mark.process
def test_a_simulation_leaves_a_record_and_a_report_without_any_lab(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweeps = read_sweeps([sweep], repeat=1, only=["algorithm=ring"])
    command = RunCommand(form=Format.JSON, results=tmp_path / "results", quiet=True, simulated=True)
    assert run_all(sweeps, command) in (0, 1), "some expectation may be missed; the record is to be trusted"
    said = json.loads(capsys.readouterr().out)
    directory = Path(said["directory"])
    assert {path.name for path in directory.iterdir()} >= {"record.json", "session.json", "report.html"}
    assert "simulation" in (directory / "report.html").read_text()
    assert not (tmp_path / "state").exists() and not (tmp_path / "run").exists()


@pytest.mark.process
def test_the_results_sheet_is_printed_alone_and_can_be_made_of_the_record(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(sweep), "--only", "algorithm=ring", "--results", str(tmp_path / "results"), "-q", "-f", "calabria"]
    with pytest.raises(SystemExit) as caught:
        run.main([*words, "--backend", "simulation"])
    assert caught.value.code in (0, 1)
    sheet = capsys.readouterr().out
    (directory,) = (tmp_path / "results").iterdir()
    assert sheet.startswith("# ") and "draft-calabria-bmwg-ai-fabric-training-bench" in sheet
    assert "not measured" in sheet
    assert (directory / "calabria.md").read_text() == sheet
    results.main(["show", str(directory), "-f", "calabria"], standalone_mode=False)
    assert capsys.readouterr().out == sheet


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--dry-run -f calabria", "nothing is measured that a sheet could have"),
        ("--steady 2 -f calabria", "--format calabria: --steady runs each scenario anew"),
        ("-f calabira", "expected table, json, csv or calabria"),
    ],
)
def test_there_is_no_sheet_of_what_is_not_measured(sweep: Path, options: str, message: str) -> None:
    with pytest.raises(TestbedError) as caught:
        run.main([str(sweep), *options.split()], standalone_mode=False)
    assert message in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--backend simulatoin", "did you mean simulation"),
        ("--backend simulation --keep", "--keep: a simulation has no lab"),
        ("--backend simulation --prove-scale", "--prove-scale: a simulation has no time scale"),
    ],
)
def test_what_a_simulation_has_no_use_for_is_refused(sweep: Path, options: str, message: str) -> None:
    with pytest.raises(TestbedError) as caught:
        run.main([str(sweep), *options.split()], standalone_mode=False)
    assert message in f"{caught.value.message} {caught.value.hint}"


def test_all_scenarios_are_looked_at_before_the_first_is_simulated(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.yml"
    other.write_text(SWEEP.replace("kind: uet", "kind: rdma"))
    with pytest.raises(TestbedError, match=r"other\.yml: --backend simulation runs no real programs, and rdma is"):
        words = [str(sweep), str(other), "--backend", "simulation", "--results", str(tmp_path / "results")]
        run.main(words, standalone_mode=False)
    assert not (tmp_path / "results").exists() and not capsys.readouterr().out


def test_a_point_is_chosen_by_the_name_that_is_printed(sweep: Path) -> None:
    """It was refused, and the hint was the same name."""
    names = [point.name for point in read_sweeps([sweep])[0].points]
    for name in names:
        (chosen,) = read_sweeps([sweep], only=[name])
        assert [point.name for point in chosen.points] == [name]
    (chosen,) = read_sweeps([sweep], only=["algorithm=tree"])
    assert [point.name for point in chosen.points] == names[1::2]
