"""Which files go to another machine with a verb, under which names, and how they come back."""

import io
import tarfile
from pathlib import Path

import pytest

from testbed.lab.core.schema.startup import KEY, StartupSpec
from testbed.vm.image.checkout import add
from testbed.vm.remote import workplace


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A scenario that names a topology beside its own directory, which names a trace."""
    for name, text in {
        "scenarios/first.yml": "topology: {file: ../topologies/small.yml}\n",
        "topologies/small.yml": "name: small\ntrace: ../traces/day.csv\n",
        "traces/day.csv": "1,2\n",
        "traces/other.csv": "3,4\n",
        "results/one/record.json": "{}",
        "results/one/report.html": "<html>",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def names(files: list[Path], root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in files)


def test_what_a_named_file_names_goes_along(project: Path) -> None:
    sent = workplace.files_to_send(["run", "scenarios/first.yml", "--seed", "2"], project)
    assert names(sent, project) == ["scenarios/first.yml", "topologies/small.yml", "traces/day.csv"]


def test_the_configurations_of_nodes_go_along(project: Path) -> None:
    """By their names, or by what the names of many have in common."""
    for name in ("leaf.conf", "configs/p1-s1-rail1.conf", "configs/p1-s1-rail2.conf", "configs/other.txt"):
        path = project / "topologies" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("hostname x\n")
    roles = 'rail: {startup-config: "configs/{{node}}.conf"}, spine: {startup-config: leaf.conf}'
    (project / "topologies/small.yml").write_text(f"name: small\ntopology: {{roles: {{{roles}}}}}\n")
    sent = names(workplace.files_to_send(["deploy", "-t", "topologies/small.yml"], project), project)
    assert [name for name in sent if name.endswith((".conf", ".txt"))] == [
        "topologies/configs/p1-s1-rail1.conf",
        "topologies/configs/p1-s1-rail2.conf",
        "topologies/leaf.conf",
    ]


def test_a_file_behind_an_equals_sign(project: Path) -> None:
    sent = workplace.files_to_send(["run", "--set", "workload.file=traces/other.csv"], project)
    assert names(sent, project) == ["traces/other.csv"]


@pytest.mark.parametrize("word", ["../traces/step", "../traces/step.1.et", "{project}/traces/step"])
@pytest.mark.parametrize("ending", ["et", "et.gz"])
def test_traces_of_all_ranks_go_along(project: Path, word: str, ending: str) -> None:
    """Which a scenario names by what their names have in common or by one of them."""
    for name in ("step.0", "step.1", "step.10", "other.0"):
        (project / f"traces/{name}.{ending}").write_bytes(b"\0")
    named = word.format(project=project).replace(".et", f".{ending}")
    (project / "scenarios/first.yml").write_text(f"workload: {{kind: file, file: {named}}}\n")
    sent = workplace.files_to_send(["run", "scenarios/first.yml"], project)
    traces = [f"traces/step.{rank}.{ending}" for rank in (0, 1, 10)]
    assert names(sent, project) == ["scenarios/first.yml", *traces]
    on_the_line = ["run", "scenarios/none.yml", f"workload.file={project}/traces/step"]
    assert names(workplace.files_to_send(on_the_line, project), project) == traces


@pytest.mark.parametrize(
    "text",
    [
        "topology: {{file: {project}/topologies/small.yml}}\n",
        "topology:\n  file: '{project}/topologies/small.yml'  # of a colleague\n",
        "topology: {{file: ../results/../topologies/small.yml}}\n",
        "matrix:\n  topology.file: [../topologies/small.yml, {project}/topologies/small.yml]\n",
    ],
)
def test_a_scenario_finds_its_topology_over_there(project: Path, tmp_path: Path, text: str) -> None:
    """Wherever it runs, and though directories that nothing was sent of are not there."""
    import yaml

    (project / "scenarios/first.yml").write_text(text.format(project=project))
    sent = workplace.files_to_send(["run", "scenarios/first.yml"], project)
    assert names(sent, project) == ["scenarios/first.yml", "topologies/small.yml", "traces/day.csv"]
    far = tmp_path / "far"
    workplace.unpack(workplace.pack(sent, project, prefix="files/"), far, prefix="files/")
    scenario = far / str(project / "scenarios/first.yml").lstrip("/")
    document = yaml.safe_load(scenario.read_text())
    named = document["matrix"]["topology.file"] if "matrix" in document else [document["topology"]["file"]]
    for name in named:
        assert not Path(name).is_absolute()
        assert (scenario.parent / name).read_text() == "name: small\ntrace: ../traces/day.csv\n"
    assert (project / "scenarios/first.yml").read_text() == text.format(project=project), "ours stays as it is"


def test_what_names_no_file_stays_as_it_was_written(project: Path) -> None:
    """To the letter, so that messages have their line and column; commands and binds are of the far end's own."""
    text = "topology: {file: ../topologies/small.yml}  # a\nexec: [/bin/sh, -c]\nbinds: ['/etc/hosts:/etc/hosts']\n"
    file = project / "scenarios/first.yml"
    file.write_text(text)
    assert workplace.far_content(file) == text.encode()
    for broken in (b"file: [/etc/hosts\n", b"file: \xff\n", b"file: &a [*a]\n"):
        file.write_bytes(broken)
        assert workplace.far_content(file) == broken


def test_all_keys_that_name_files_are_known() -> None:
    from testbed.workload.parameters import ParameterType
    from testbed.workload.registry import KINDS

    declared = {one.name for kind in KINDS.values() for one in kind.parameters if one.type is ParameterType.FILE}
    of_topologies = {KEY, *(name for name in StartupSpec.model_fields if "file" in name)}
    assert declared | {"file"} | of_topologies == workplace.FILE_KEYS


def test_an_override_is_looked_up_beside_the_scenario(project: Path) -> None:
    (project / "topologies/large.yml").write_text("name: large\n")
    arguments = ["run", "scenarios/first.yml", "--set", "topology.file=../topologies/large.yml"]
    assert "topologies/large.yml" in names(workplace.files_to_send(arguments, project), project)


def test_a_directory_of_results_goes_whole(project: Path) -> None:
    sent = workplace.files_to_send(["report", "results/one"], project)
    assert names(sent, project) == ["results/one/record.json", "results/one/report.html"]


def test_without_a_name_the_topologies_here_go(project: Path) -> None:
    assert names(workplace.files_to_send(["deploy"], project / "topologies"), project) == [
        "topologies/small.yml",
        "traces/day.csv",
    ]


def test_what_a_node_interprets_is_not_ours(project: Path) -> None:
    arguments = ["exec", "h1", "--", "cat", str(project / "traces/day.csv")]
    assert workplace.files_to_send(arguments, project) == []
    assert workplace.far_arguments(arguments, "/far") == arguments


def test_a_broken_or_binary_file_is_for_the_verb_to_judge(project: Path) -> None:
    (project / "bad.yml").write_bytes(b"a: [\n")
    (project / "worse.yml").write_bytes(b"\xff\xfe\x00")
    (project / "ring.yml").write_bytes(b"a: &a [*a]\n")
    sent = workplace.files_to_send(["validate", "-t", "bad.yml"], project)
    assert names(sent, project) == ["bad.yml", "ring.yml", "worse.yml"]


@pytest.mark.parametrize(
    ("word", "far"),
    [
        ("small.yml", "small.yml"),
        ("../x.yml", "../x.yml"),
        ("/tmp/out.html", "/far/tmp/out.html"),
        ("--output=/tmp/out.html", "--output=/far/tmp/out.html"),
        ("/no/such/directory/file", "/no/such/directory/file"),
        ("/tmp/none-yet/results", "/far/tmp/none-yet/results"),
        ("/out.html", "/far/out.html"),
        ("/", "/"),
        ("fabric.hosts=4", "fabric.hosts=4"),
        ("", ""),
    ],
)
def test_names_over_there(word: str, far: str) -> None:
    assert workplace.far_arguments(["graph", "-o", word, "--", "/tmp/raw"], "/far") == [
        *("graph", "-o", far, "--", "/tmp/raw")
    ]


def test_directories_in_which_a_verb_may_make_others(tmp_path: Path) -> None:
    arguments = ["run", "x.yml", "--results", str(tmp_path / "new/one"), "-o", "/no/such/file", "--", "/tmp/raw"]
    assert workplace.directories_of(arguments) == [str(tmp_path)]
    assert workplace.far_arguments(arguments, "/far")[3] == f"/far{tmp_path}/new/one"


def test_there_and_back(project: Path, tmp_path: Path) -> None:
    sent = workplace.files_to_send(["run", "scenarios/first.yml"], project)
    archive = workplace.pack(sent, project / "scenarios", prefix="files/")
    back = tmp_path / "back"
    written = workplace.unpack(archive, back, prefix="files/")
    assert names(written, back) == sorted(str(path).lstrip("/") for path in sent)
    copied = back / str(project / "topologies/small.yml").lstrip("/")
    assert copied.read_text() == (project / "topologies/small.yml").read_text()


def test_what_comes_back_stays_below_its_root(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        add(tar, "files/../outside", b"x")
        add(tar, "elsewhere/inside", b"x")
        link = tarfile.TarInfo("files/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
        add(tar, "files/inside", b"y")
    root = tmp_path / "root"
    assert workplace.unpack(buffer.getvalue(), root, prefix="files/") == [root / "inside"]
    assert sorted(tmp_path.rglob("*")) == [root, root / "inside"]


def test_equal_content_is_an_equal_archive(project: Path) -> None:
    """A job in virtual time depends on what its files say alone."""
    files = workplace.files_to_send(["run", "scenarios/first.yml"], project)
    first = workplace.pack(files, project)
    for path in files:
        path.write_bytes(path.read_bytes())
        path.chmod(0o600)
    assert workplace.pack(files, project) == first


def test_a_name_of_theirs_stays() -> None:
    arguments = ["run", "x.yml", "--results", "/run/job/files/.results", "--report=/run/job/files/a.html"]
    assert workplace.far_arguments(arguments, "/run/job/files") == arguments
