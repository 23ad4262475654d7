"""The verbs `import` and `export`, as they are typed."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from testbed.base.errors import TestbedError
from testbed.cli.app import app

ROOT = Path(__file__).parents[3]
CORPUS = ROOT / "tests" / "golden" / "imports"
DEMO = str(ROOT / "topologies" / "demo.yml")


def run(*argv: str, input: str | None = None) -> tuple[str, str]:
    done = CliRunner().invoke(app, list(argv), input=input)
    assert done.exception is None, (argv, done.exception)
    return done.stdout, done.stderr


def refused(*argv: str) -> str:
    done = CliRunner().invoke(app, list(argv))
    assert isinstance(done.exception, TestbedError), (argv, done.exception)
    return str(done.exception)


def test_import_writes_a_file_and_a_table_of_what_is_not_as_it_was(tmp_path: Path) -> None:
    output = tmp_path / "ring.yml"
    stdout, _ = run("import", str(CORPUS / "all-links.clab.yml"), "-o", str(output))
    assert "what to do" in stdout and "link of type vxlan" in stdout
    assert f"testbed validate -t {output}" in stdout
    assert "valid: hand-written" in run("validate", "-t", str(output))[0]


def test_import_prints_the_topology_alone_on_standard_output() -> None:
    stdout, stderr = run("import", str(CORPUS / "ring.clab.yml"))
    assert stdout.startswith("# Imported from ") and "topology:" in stdout
    text = (CORPUS / "ring.clab.yml").read_text()
    assert run("import", "-", input=text)[0].splitlines()[1:] == stdout.splitlines()[1:]
    assert "not as it was" not in stdout
    assert "not as it was" in run("import", str(CORPUS / "all-links.clab.yml"))[1] + stderr


def test_remarks_are_rows_for_programs(tmp_path: Path) -> None:
    output = str(tmp_path / "x.yml")
    rows = json.loads(run("import", str(CORPUS / "campus.netlab.yml"), "-o", output, "-f", "json")[0])
    assert {row["became"] for row in rows} == {"left out", "changed"}
    assert all({"line", "what", "where", "what to do"} <= row.keys() for row in rows)
    assert "add -o" in refused("import", str(CORPUS / "campus.netlab.yml"), "-f", "csv")


def test_import_writes_over_nothing_and_names_the_runtimes(tmp_path: Path) -> None:
    output = tmp_path / "x.yml"
    output.write_text("mine\n")
    done = CliRunner().invoke(app, ["import", str(CORPUS / "ring.clab.yml"), "-o", str(output)])
    assert isinstance(done.exception, FileExistsError | TestbedError)
    assert output.read_text() == "mine\n"
    assert "docker or netns" in refused("import", str(CORPUS / "ring.clab.yml"), "--runtime", "podman")
    assert "scenario" in refused("import", str(ROOT / "scenarios" / "dcqcn-fairness.yml"))
    assert "of testbed" in refused("import", DEMO)


def test_a_name_can_be_chosen() -> None:
    assert "\nname: other\n" in run("import", str(CORPUS / "ring.clab.yml"), "-n", "other")[0]


@pytest.mark.parametrize(
    ("to", "begins"),
    [
        ("containerlab", "# demo, exported from testbed."),
        ("netlab", "# demo, exported from testbed."),
        ("drawio", "<mxfile"),
        ("mermaid", "flowchart TB"),
        ("dot", 'graph "demo" {'),
    ],
)
def test_export_prints_each_format(to: str, begins: str) -> None:
    assert run("export", "-t", DEMO, "--to", to)[0].startswith(begins)


def test_export_writes_the_files_that_nodes_need_beside(tmp_path: Path) -> None:
    output = tmp_path / "demo.clab.yml"
    stdout, _ = run("export", "-t", DEMO, "--to", "containerlab", "-o", str(output))
    written = sorted(path.relative_to(tmp_path).as_posix() for path in (tmp_path / "demo-files").rglob("*.conf"))
    assert any(path.endswith("/frr.conf") for path in written)
    assert str(tmp_path / "demo-files") in stdout
    done = CliRunner().invoke(app, ["export", "-t", DEMO, "--to", "containerlab", "-o", str(output)])
    assert isinstance(done.exception, FileExistsError | TestbedError)


def test_export_names_its_formats() -> None:
    assert "--to containerlab, netlab, drawio, mermaid, dot" in refused("export", "-t", DEMO)
    assert "cannot export to 'visio'" in refused("export", "-t", DEMO, "--to", "visio")


@pytest.mark.parametrize(
    "argv",
    [
        ["import", str(CORPUS / "ring.clab.yml")],
        ["generate", "rail-only"],
        ["export", "-t", DEMO, "--to", "netlab"],
        ["graph", "-t", DEMO, "-k", "dot"],
    ],
    ids=lambda argv: argv[0],
)
def test_a_dash_is_standard_output(argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*argv, "-o", "-")[0] == run(*argv)[0] != ""
    assert not list(tmp_path.iterdir()), "no file is called -"
