"""Verbs that take files: which file a row is of, and what a file alone is enough for."""

import csv
import io
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from testbed.base.errors import CapabilityError, LabNotFound, TestbedError
from testbed.base.units import Rate
from testbed.cli.app import app
from testbed.cli.labs.inspect_views import chosen_nodes, show_view
from testbed.cli.options import Format
from testbed.cli.scenarios.run import RunCommand, run_all
from testbed.lab.core.deploy.records.state import StateDirectory

ROOT = Path(__file__).parents[3]
DEMO, SPRAY, TENANTS = (str(ROOT / "topologies" / f"{name}.yml") for name in ("demo", "uec-spray", "two-tenants"))
SCENARIO = str(ROOT / "scenarios" / "incast-trimming.yml")


@pytest.fixture(autouse=True)
def nothing_is_deployed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTBED_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("TESTBED_RUN_DIR", str(tmp_path / "run"))


def output(*argv: str) -> str:
    done = CliRunner().invoke(app, list(argv))
    assert done.exception is None, (argv, done.exception)
    return done.stdout


def test_several_topologies_have_a_column_or_a_document_each() -> None:
    rows = list(csv.DictReader(io.StringIO(output("validate", "-f", "csv", DEMO, SPRAY))))
    assert list(rows[0]) == ["network", "what", DEMO, SPRAY]
    assert {row["what"] for row in rows} >= {"GPUs", "links", "rail switches"}
    documents = json.loads(output("validate", "-f", "json", DEMO, SPRAY))
    assert [(one["file"], one["lab"]) for one in documents] == [(DEMO, "demo"), (SPRAY, "uec-spray")]
    one = json.loads(output("validate", "-f", "json", DEMO))
    assert (one["file"], one["lab"]) == (DEMO, "demo")
    assert output("validate", "-t", DEMO, "-f", "csv").splitlines()[0] == "file,network,what,value,note"


def test_rows_of_scenarios_have_their_file() -> None:
    for argv in (["validate", "-f", "csv", SCENARIO], ["run", "--dry-run", "-f", "csv", SCENARIO]):
        (row,) = csv.DictReader(io.StringIO(output(*argv)))
        assert (row["file"], row["scenario"]) == (SCENARIO, "incast-trimming")


def test_topologies_beside_scenarios_are_one_document_and_no_table_of_rows() -> None:
    documents = json.loads(output("validate", "-f", "json", SCENARIO, DEMO))
    assert [one["file"] for one in documents] == [DEMO, SCENARIO]
    refused = CliRunner().invoke(app, ["validate", "-f", "csv", SCENARIO, DEMO])
    assert isinstance(refused.exception, TestbedError) and "rows of different kinds" in str(refused.exception)
    text = output("validate", SCENARIO, DEMO)
    assert f"{DEMO}: valid" in text and f"{SCENARIO}: valid" in text


@pytest.mark.process
@pytest.mark.parametrize("what", ["sizing", "scale", "tenants", "qos", "scale-up"])
def test_views_that_need_nothing_that_runs_are_those_of_a_file(what: str) -> None:
    file = TENANTS if what == "tenants" else str(ROOT / "topologies" / "uec-spray.yml")
    assert json.loads(output("inspect", what, "-t", file, "-f", "json"))


def test_the_sizing_of_a_file_is_that_of_validate() -> None:
    sized = json.loads(output("inspect", "sizing", "-t", DEMO, "-f", "json"))
    validated = json.loads(output("validate", "-t", DEMO, "-f", "json"))
    assert sized == {key: value for key, value in validated.items() if key != "file"}
    with pytest.raises(TestbedError, match="has no network 'frontend'"):
        show_view("sizing", None, DEMO, "frontend", chosen_nodes(None), Format.JSON)


@pytest.mark.parametrize(("weighted", "said"), [("true", "by weighted ECMP"), ("false", "by plain ECMP")])
def test_the_bisection_says_by_which_ecmp_it_is(weighted: str, said: str) -> None:
    file = str(ROOT / "topologies" / "uneven-bundle.yml")
    chosen = ("-t", file, "--set", f"fabric.routing.weighted={weighted}")
    rows = list(csv.DictReader(io.StringIO(output("validate", *chosen, "-f", "csv"))))
    (row,) = [row for row in rows if row["what"].startswith("bisection")]
    assert said in row["note"]
    found = json.loads(output("validate", *chosen, "-f", "json"))["sizing"]["bisection"]
    assert found["weighted"] is (weighted == "true") and found["ecmp_bps"] < found["bandwidth_bps"]
    assert str(Rate(found["ecmp_bps"])) == row["value"]


RUNNING_VIEWS = ("nodes", "links", "routes", "bgp", "guards", "link-groups", "services", "vteps")


@pytest.mark.parametrize("what", RUNNING_VIEWS)
def test_views_of_what_runs_say_that_it_does_not(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(LabNotFound, match="no lab named demo is deployed"):
        show_view(what, None, DEMO, None, chosen_nodes(None), Format.JSON)


@pytest.mark.process
@pytest.mark.parametrize("form", [Format.JSON, Format.CSV])
def test_what_became_of_several_scenarios_is_one_document(
    form: Format, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from testbed.cli.scenarios.named_files import read_sweeps

    small = ["workload.bytes=20kB", "repeat.runs=1", "fabric.hosts=2", "workload.senders=1"]
    sweeps = read_sweeps([Path(SCENARIO), Path(SCENARIO)], small)
    run_all(sweeps, RunCommand(form=form, results=tmp_path / "results", report=False, quiet=True, simulated=True))
    said = capsys.readouterr().out
    rows = json.loads(said) if form is Format.JSON else list(csv.DictReader(io.StringIO(said)))
    assert [row["file"] for row in rows] == [SCENARIO, SCENARIO]
    assert all(Path(row["directory"]).is_dir() and row["verdict"] in ("pass", "fail", "invalid") for row in rows)
    assert len({row["directory"] for row in rows}) == 2


class TestWithoutRoot:
    """Who sees no namespace and no process of a lab is told that, and not that there is no lab, or a broken one."""

    @pytest.fixture(autouse=True)
    def nobody(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: 65534)

    @pytest.mark.parametrize(
        "argv",
        [["list"], ["list", "-f", "json"], ["inspect"], ["inspect", "-n", "demo"], ["inspect", "--all-networks"]]
        + [["inspect", what, "-t", DEMO] for what in RUNNING_VIEWS],
        ids=" ".join,
    )
    def test_what_runs_needs_root(self, argv: list[str]) -> None:
        done = CliRunner().invoke(app, argv)
        assert isinstance(done.exception, CapabilityError), done.output
        assert done.exception.missing == "root"
        assert "sudo" in str(done.exception)
        assert done.stdout == ""

    def test_what_a_file_says_does_not(self) -> None:
        assert json.loads(output("inspect", "sizing", "-t", DEMO, "-f", "json"))

    def test_a_state_directory_that_is_closed_is_not_an_empty_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def closed(path: Path) -> None:
            raise PermissionError(13, "Permission denied", str(path))

        state = StateDirectory(tmp_path)
        assert state.names() == []
        monkeypatch.setattr(os, "scandir", closed)
        with pytest.raises(CapabilityError, match=rf"reading {tmp_path}/labs needs root"):
            state.not_found("demo")
