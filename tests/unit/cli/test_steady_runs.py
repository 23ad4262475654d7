"""`run --steady N` on the simulator: what it prints and keeps, which seeds it takes, and what an interrupt leaves."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from testbed.base.errors import TestbedError
from testbed.cli.app import app
from testbed.cli.scenarios import measuring
from testbed.cli.scenarios.measuring import RunCommand, measure
from testbed.record.steady import find_steadiness, load_steadiness
from testbed.record.store import load_record

pytestmark = pytest.mark.process

SCENARIO = """name: small
topology:
  inline:
    name: small
    scale: {time: auto}
    fabric: {design: rail-optimized, segments: 2, hosts: 2, gpus: 1, spines: 2, nic: {per: gpu, rate: 400G}}
    qos: {preset: uec, base_rtt: 12us}
transport: {kind: uet, cc: nscc}
workload: {kind: permutation, scope: inter-leaf, bytes: 1bdp}
repeat: {runs: 2, seed: 3}
expect:
  - {metric: tail_fct_ratio, min: 1, max: 1.2, source: "ideal serialisation + base RTT"}
  - {metric: drops, max: 0, source: "an idle fabric"}
"""


@pytest.fixture
def scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "small.yml"
    path.write_text(SCENARIO)
    return path


def invoke(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def steady(scenario: Path, *more: str) -> Result:
    return invoke("run", scenario, "--backend", "simulation", "-q", "--no-report", *more)


def test_each_run_is_an_ordinary_one_and_the_table_tells_how_figures_lie(scenario: Path) -> None:
    shown = steady(scenario, "--steady", "3", "-f", "csv")
    assert shown.exit_code in (0, 1), shown.output
    [ratio, drops] = csv.DictReader(io.StringIO(shown.stdout))
    [directory] = Path("results").iterdir()
    found = load_steadiness(directory)
    assert [run.seed for run in found.runs] == [3, 5, 7], "two runs of each point, and the next seeds"
    assert not found.same_seed and found.planned == 3
    records = [load_record(directory / run.directory) for run in found.runs]
    measured = [record.expectations[0].measured for record in records]
    assert float(ratio["mean"]) == pytest.approx(sum(one or 0.0 for one in measured) / 3, rel=1e-3)
    assert float(ratio["least"]) == pytest.approx(min(one or 0.0 for one in measured), rel=1e-3)
    assert (ratio["n"], ratio["invalid"], drops["mean"], drops["chance"]) == ("3", "0 of 3", "0.0", "0.0")
    assert [record.scenario.repeat["seed"] for record in records] == [3, 5, 7]
    again = invoke("results", "steady", "-f", "json")
    assert [row["mean"] for row in json.loads(again.stdout)] == [float(ratio["mean"]), 0.0]


def test_tables_are_made_of_several_and_put_into_a_page(scenario: Path) -> None:
    for _ in range(2):
        steady(scenario, "--steady", "2", "-f", "json")
    seeds = [run.seed for one in find_steadiness([Path("results")]) for run in one.runs]
    assert seeds == [3, 5, 7, 9], "the second goes on with the seeds"
    page = Path("page.md")
    page.write_text("# How steady\n\n<!-- steady: begin -->\n<!-- steady: end -->\n")
    assert invoke("results", "steady", "results", "--page", page, "-f", "json").exit_code == 0
    assert "| `small` | `drops` | at most 0 | 4 | 0 | 0 |" in page.read_text()
    failed = invoke("results", "steady", "results", "--page", "nowhere.md")
    assert failed.exit_code and "cannot read nowhere.md" in str(failed.exception)


def test_several_take_turns_and_one_that_cannot_begin_stops_no_other(
    scenario: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("other", "stopped"):
        scenario.with_name(f"{name}.yml").write_text(
            SCENARIO.replace("name: small\ntopology", f"name: {name}\ntopology")
        )
    ran: list[str] = []

    def measured(sweep: Any, command: RunCommand) -> Any:
        outcome, directory = measure(sweep, command)
        ran.append(sweep.scenario.name)
        if sweep.scenario.name == "stopped":
            outcome = replace(outcome, failure=TestbedError("no room for a lab"))
        return outcome, directory

    monkeypatch.setattr(measuring, "measure", measured)
    words = [str(scenario.with_name(f"{name}.yml")) for name in ("stopped", "other")]
    shown = steady(scenario, *words, "--steady", "2", "-f", "csv")
    assert ran == ["small", "stopped", "other", "small", "other"]
    assert shown.exit_code and "no room for a lab" in str(shown.exception)
    assert [row["n"] for row in csv.DictReader(io.StringIO(shown.stdout))] == ["2", "2"] * 2


def test_an_interrupt_keeps_what_was_measured(scenario: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []

    def interrupted(sweep: Any, command: RunCommand) -> Any:
        outcome, directory = measure(sweep, command)
        ran.append(1)
        if len(ran) == 3:
            outcome = replace(outcome, record=replace(outcome.record, incomplete="interrupted after 1 of 2 runs"))
        return outcome, directory

    monkeypatch.setattr(measuring, "measure", interrupted)
    shown = steady(scenario, "--steady", "5", "-f", "csv")
    assert shown.exit_code == 130
    assert [row["n"] for row in csv.DictReader(io.StringIO(shown.stdout))] == ["2", "2"]
    [directory] = Path("results").iterdir()
    assert len(load_steadiness(directory).runs) == 2 and load_steadiness(directory).planned == 5


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--steady", "1"), "a spread needs at least 2 runs"),
        (("--steady", "3", "--resume", "x"), "--resume: --steady runs each scenario anew"),
    ],
)
def test_what_does_not_go_together_is_refused(scenario: Path, words: tuple[str, ...], message: str) -> None:
    shown = steady(scenario, *words)
    assert shown.exit_code and message in str(shown.exception)
    assert not Path("results").exists()


@pytest.mark.parametrize(("fixed", "written"), [(True, "repeat: {runs: 2, seed: 3}"), (False, "repeat: {runs: 2}")])
def test_a_seed_that_was_written_is_known(scenario: Path, written: str, *, fixed: bool) -> None:
    from testbed.run.sweeps import read_sweep

    text = SCENARIO.replace("repeat: {runs: 2, seed: 3}", written)
    assert read_sweep(text, {}).scenario.repeat.fixes_seed is fixed
    assert read_sweep(text, {"repeat.seed": 9}).scenario.repeat.fixes_seed
