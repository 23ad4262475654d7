"""Files of other tools that are given where ours are read: told so, with the command that imports them."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from testbed.base.errors import SpecError
from testbed.cli.app import app
from testbed.lab.core.schema.load import load_topology, load_topology_text
from testbed.lab.core.schema.other_tools import OtherTool, find_other_tool

CORPUS = Path(__file__).parents[3] / "golden" / "imports"
ROOT = Path(__file__).parents[4]
FILES = sorted(CORPUS.glob("*.yml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_of_theirs_has_one_problem(path: Path) -> None:
    with pytest.raises(SpecError) as refused:
        load_topology(path)
    (problem,) = refused.value.problems
    tool = "containerlab" if ".clab." in path.name else "netlab"
    assert problem.code == "other-tool"
    assert f"a topology of {tool}" in problem.message
    assert problem.hint is not None and f"testbed import {path} " in problem.hint


@pytest.mark.parametrize(
    "argv",
    [
        ["validate", "FILE"],
        ["validate", "-t", "FILE"],
        ["deploy", "--dry-run", "-t", "FILE"],
        ["run", "--dry-run", "FILE"],
        ["graph", "-t", "FILE", "-o", "-"],
        ["inspect", "sizing", "-t", "FILE"],
        ["export", "-t", "FILE", "--to", "dot"],
        ["destroy", "-t", "FILE"],
    ],
    ids=lambda argv: argv[0],
)
@pytest.mark.parametrize("name", ["settings.clab.yml", "campus.netlab.yml"])
def test_every_verb_says_so(argv: list[str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTBED_STATE_DIR", str(tmp_path / "state"))
    file = str(CORPUS / name)
    done = CliRunner().invoke(app, [file if word == "FILE" else word for word in argv])
    assert isinstance(done.exception, SpecError), done.exception
    assert [problem.code for problem in done.exception.problems] == ["other-tool"]


def test_a_scenario_on_a_file_of_theirs_says_so(tmp_path: Path) -> None:
    (tmp_path / "theirs.clab.yml").write_text((CORPUS / "ring.clab.yml").read_text())
    scenario = (ROOT / "scenarios" / "dcqcn-fairness.yml").read_text()
    lines = [
        "topology: {file: theirs.clab.yml}" if line.startswith("topology:") else line for line in scenario.splitlines()
    ]
    (tmp_path / "scenario.yml").write_text("\n".join(lines) + "\n")
    done = CliRunner().invoke(app, ["run", "--dry-run", str(tmp_path / "scenario.yml")])
    assert isinstance(done.exception, SpecError)
    assert "other-tool" in {problem.code for problem in done.exception.problems}


def test_standard_input_is_named_as_import_takes_it() -> None:
    with pytest.raises(SpecError, match="testbed import - -o"):
        load_topology_text((CORPUS / "ring.clab.yml").read_text(), file="<stdin>")


@pytest.mark.parametrize(
    "path",
    [
        *sorted((ROOT / "topologies").glob("*.yml")),
        *sorted((ROOT / "scenarios").glob("*.yml")),
        *(path for path in sorted((ROOT / "tests" / "golden" / "bad").glob("*.yml")) if "other-tool" not in path.name),
    ],
    ids=lambda path: path.stem,
)
def test_no_file_of_ours_is_taken_for_one_of_theirs(path: Path) -> None:
    from testbed.base.yaml.reader import read_document

    try:
        data = read_document(path).data
    except SpecError:
        return
    assert find_other_tool(data) is None


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        ("topology: {nodes: {a: {kind: linux}}}", OtherTool.CONTAINERLAB),
        ("topology: {nodes: {a: {kind: brand_new}}}", OtherTool.CONTAINERLAB),
        ("topology: {kinds: {ceos: {image: x}}, nodes: {a: }}", OtherTool.CONTAINERLAB),
        ("topology: {nodes: {a: {kind: server}}}", None),
        ("topology: {nodes: {a: {kind: linux}, b: {kind: switch, role: leaf}}}", None),
        ("fabric: {design: x}\ntopology: {nodes: {a: {kind: linux}}}", None),
        ("nodes: [a]", OtherTool.NETLAB),
        ("plugin: [fabric]\nfabric.spines: 2", OtherTool.NETLAB),
        ("nodes: [a]\nworkload: x", None),
        ("services: {web: {image: nginx}}", None),
    ],
)
def test_a_file_is_told_by_its_words(text: str, tool: OtherTool | None) -> None:
    from testbed.base.yaml.reader import load_document

    assert find_other_tool(load_document(text, "x.yml").data) is tool
