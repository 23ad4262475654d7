"""Loading: from files, from text, with overrides; finding the topology of a directory; writing a new one."""

from dataclasses import replace
from pathlib import Path

import pytest

from testbed.base.errors import SpecError
from testbed.base.yaml.document import OVERRIDE_FILE
from testbed.base.yaml.reader import load_document
from testbed.lab.assembly.write import render_topology
from testbed.lab.core.fabric import DESIGNS
from testbed.lab.core.schema.load import find_topology, load_topology, load_topology_text, parse_assignment

TEXT = "name: pod\nfabric: {design: rail-optimized, hosts: 2, gpus: 2, spines: 2}\n"


def only_problem(error: SpecError) -> tuple[str, str, str]:
    (problem,) = error.problems
    return problem.code, problem.file, problem.path


def test_a_file_and_its_text_are_the_same_lab(tmp_path: Path) -> None:
    path = tmp_path / "pod.yml"
    path.write_text(TEXT)
    assert load_topology(path) == load_topology_text(TEXT, file=str(path))


def test_overrides_win_over_the_file() -> None:
    lab = load_topology_text(
        TEXT, file="f.yml", overrides={"fabric.hosts": 3, "name": "other", "fabric.nic.rate": "100G", "scale.time": 7}
    )
    assert (lab.name, len(lab.hosts), lab.scale.time) == ("other", 3, 7.0)
    assert str(lab.links[0].rate) == "100 Gbit/s"


def test_the_caller_may_give_the_name() -> None:
    nameless = TEXT.split("\n", 1)[1]
    assert load_topology_text(nameless, file="f.yml", overrides={"name": "given"}).name == "given"
    with pytest.raises(SpecError) as caught:
        load_topology_text(nameless, file="f.yml")
    assert only_problem(caught.value) == ("missing-key", "f.yml", "name")


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("fabric.hosts", "many", "wrong-type"),
        ("fabric.host", 4, "unknown-key"),
        ("fabric.nic", 400, "wrong-type"),
        ("fabric.hosts", 100_000, "range"),
        ("fabric", None, "missing-key"),
        ("name", "../x", "bad-name"),
        ("fabric.design", ["pod"], "unknown-value"),
    ],
)
def test_a_bad_override_is_the_overrides_fault(key: str, value: object, code: str) -> None:
    with pytest.raises(SpecError) as caught:
        load_topology_text(TEXT, file="f.yml", overrides={key: value})
    assert only_problem(caught.value)[:2] == (code, OVERRIDE_FILE)


def test_values_from_the_command_line_are_yaml() -> None:
    assert parse_assignment("fabric.hosts=4") == ("fabric.hosts", 4)
    assert parse_assignment("fabric.routing.bfd=off") == ("fabric.routing.bfd", "off")
    assert parse_assignment("a={b: [1, 2]}") == ("a", {"b": [1, 2]})
    assert parse_assignment("a=b=c") == ("a", "b=c")
    for bad in ("fabric.hosts", "=4", "a=[1", "a=010"):
        with pytest.raises(SpecError) as caught:
            parse_assignment(bad)
        assert caught.value.problems[0].file == OVERRIDE_FILE


def test_find_the_only_file(tmp_path: Path) -> None:
    (tmp_path / "pod.yml").write_text("not yet: written\n")
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / ".hidden.yml").write_text(TEXT)
    assert find_topology(tmp_path) == tmp_path / "pod.yml"


def test_find_the_only_topology_among_others(tmp_path: Path) -> None:
    (tmp_path / "ci.yaml").write_text("jobs: []\n")
    (tmp_path / "scenario.yml").write_text("name: s\ntopology: {file: pod.yaml}\nworkload: {kind: permutation}\n")
    (tmp_path / "pod.yaml").write_text(TEXT)
    (tmp_path / "sub.yml").mkdir()
    assert find_topology(tmp_path) == tmp_path / "pod.yaml"


def test_a_topology_that_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(TEXT)
    (tmp_path / "b.yml").write_text("name: [\n")
    with pytest.raises(SpecError) as caught:
        find_topology(tmp_path)
    assert only_problem(caught.value)[0] == "many-topologies"
    assert "a.yml, b.yml" in str(caught.value)


def test_find_none(tmp_path: Path) -> None:
    for directory, code in ((tmp_path, "no-topology"), (tmp_path / "missing", "unreadable")):
        with pytest.raises(SpecError) as caught:
            find_topology(directory)
        assert only_problem(caught.value) == (code, str(directory), "")


@pytest.mark.parametrize("design", DESIGNS)
def test_a_written_topology_means_what_the_design_means(design: str) -> None:
    text = render_topology("lab", design, schema="../topology.schema.json")
    assert text.startswith("# yaml-language-server: $schema=../topology.schema.json\n")
    minimal = load_topology_text(f"name: lab\nfabric: {{design: {design}}}\n", file="x.yml")
    assert load_topology_text(text, file="x.yml") == minimal
    assert "hosts" in load_document(text, "x.yml").data["fabric"]


def test_a_written_topology_takes_settings_over() -> None:
    settings = ["fabric.hosts=2", "fabric.routing={bfd: off, ecmp: 8}", "scale.time=100", "fabric.mtu=1500"]
    text = render_topology("lab", "rail-optimized", settings)
    lab = load_topology_text(text, file="x.yml")
    expected = load_topology_text(
        "name: lab\nscale: {time: 100}\n"
        "fabric: {design: rail-optimized, hosts: 2, routing: {bfd: off, ecmp: 8}, mtu: 1500}\n",
        file="x.yml",
    )
    assert lab == expected
    assert replace(lab, source="") == replace(expected, source="")


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(SpecError) as caught:
        render_topology("lab", "rail-only", ["fabric.spines=4"])
    assert only_problem(caught.value) == ("design-fixes", OVERRIDE_FILE, "fabric.spines")
