"""A scenario is told from a topology by its keys, also where one of them is misspelt."""

from pathlib import Path

import pytest

from testbed.base.errors import SpecError
from testbed.base.yaml.reader import load_document
from testbed.cli.app import exit_code
from testbed.lab.assembly.spec import LabSpec
from testbed.lab.core.schema.file_kind import SCENARIO_KEYS, TOPOLOGY_KEYS, is_scenario
from testbed.lab.core.schema.load import find_topology
from testbed.run.schema.spec import ScenarioSpec

ROOT = Path(__file__).parents[5]


def test_the_keys_are_those_of_the_schemas() -> None:
    shared = ScenarioSpec.model_fields.keys() & LabSpec.model_fields.keys()
    assert shared == {"name", "topology"}
    assert ScenarioSpec.model_fields.keys() - shared - {"description"} == SCENARIO_KEYS
    assert LabSpec.model_fields.keys() - shared == TOPOLOGY_KEYS


@pytest.mark.parametrize(
    ("text", "scenario"),
    [
        ("name: a\ntopology: {file: x.yml}\nworkload: {kind: incast}", True),
        ("name: a\ntopology: {file: x.yml}\nworklaod: {kind: incast}", True),
        ("name: a\ntopology: {inline: {fabric: {design: clos}}}", True),
        ("name: a\ntopolgy: {file: x.yml}\nworkloads: {kind: incast}", True),
        ("name: a\ntransport: {kind: tcp}", True),
        ("name: a\nexpects: []\nfaults: []", True),
        ("name: a\nfabric: {design: clos}", False),
        ("name: a\nfabrik: {design: clos}", False),
        ("name: a\ntopology: {nodes: {h1: {kind: host}}, links: []}", False),
        ("name: a\nqos: {preset: uec}\nscal: {time: 100}", False),
        ("name: a", False),
        ("name: a\nmgmt: {}\ntopology: {nodes: {}}", False),
    ],
)
def test_it_is_what_its_keys_say(text: str, scenario: bool) -> None:
    assert is_scenario(load_document(text, "x.yml").data) is scenario


@pytest.mark.parametrize("path", sorted((ROOT / "scenarios").glob("*.yml")), ids=lambda path: path.stem)
@pytest.mark.parametrize("key", ["workload", "transport", "topology"])
def test_a_shipped_scenario_with_a_misspelt_key_is_one(path: Path, key: str) -> None:
    data = load_document(path.read_text(), str(path)).data
    if key in data:
        data = {(key[:-2] + key[:-3:-1] if name == key else name): value for name, value in data.items()}
    assert is_scenario(data)


@pytest.mark.parametrize("path", sorted((ROOT / "topologies").glob("*.yml")), ids=lambda path: path.stem)
def test_a_shipped_topology_is_none(path: Path) -> None:
    assert not is_scenario(load_document(path.read_text(), str(path)).data)


def test_a_misspelt_workload_is_told_and_not_that_the_file_is_no_topology(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "typo.yml"
    text = (ROOT / "scenarios" / "incast-trimming.yml").read_text()
    file.write_text(text.replace("\nworkload:", "\nworklaod:").replace("../", f"{ROOT}/"))
    assert exit_code(["validate", str(file)]) == 3
    said = capsys.readouterr().err
    assert "unknown-key: worklaod" in said and "did you mean 'workload'?" in said
    assert "fabric" not in said


@pytest.mark.parametrize(
    ("words", "text", "said"),
    [
        (
            ["deploy", "-t"],
            "name: a\ntopology: {file: lab.yml}\nworkload: {kind: incast}\n",
            "a scenario, not a topology",
        ),
        (["graph", "-t"], "name: a\ntopology: {file: lab.yml}\nexpect: []\n", "a scenario, not a topology"),
        (["run", "--dry-run"], "name: a\nfabric: {design: clos}\n", "a topology, not a scenario"),
        (["run", "--dry-run"], "name: a\ntopology: {nodes: {h1: {kind: host}}}\n", "a topology, not a scenario"),
    ],
)
def test_the_one_in_the_place_of_the_other_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], text: str, said: str
) -> None:
    (tmp_path / "one.yml").write_text(text)
    assert exit_code([*words, str(tmp_path / "one.yml")]) == 3
    told = capsys.readouterr().err
    assert f"one.yml:1:1: other-kind: this is {said}" in told
    assert told.count("error: ") == 1 and told.count("hint: ") == 1


@pytest.mark.parametrize(
    "text",
    [
        "name: a\nfabric: {design: clos}\nworkload: {kind: incast}\n",
        "name: a\nfabric: {design: clos}\nworklaod: {kind: incast}\ntransport: {kind: tcp}\n",
        "name: a\ntopology: lab.yml\n",
        "name: a\n",
    ],
)
def test_a_scenario_that_is_being_written_hears_of_its_mistakes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    (tmp_path / "one.yml").write_text(text)
    assert exit_code(["run", "--dry-run", str(tmp_path / "one.yml")]) == 3
    told = capsys.readouterr().err
    assert "other-kind" not in told and "-key: " in told


def test_it_is_no_topology_of_its_directory(tmp_path: Path) -> None:
    (tmp_path / "lab.yml").write_text("name: a\nfabric: {design: clos}\n")
    (tmp_path / "run.yml").write_text("name: a\ntopology: {file: lab.yml}\nworklaod: {kind: incast}\n")
    assert find_topology(tmp_path) == tmp_path / "lab.yml"
    (tmp_path / "lab.yml").unlink()
    (tmp_path / "other.yml").write_text("name: b\ntopology: {file: lab.yml}\nworkload: {kind: incast}\n")
    with pytest.raises(SpecError, match="there is no topology file here"):
        find_topology(tmp_path)
