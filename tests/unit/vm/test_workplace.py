"""Which files go to another machine with a verb, under which names, and how they come back."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from testbed.vm import workplace
from testbed.vm.checkout import add


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


def test_a_file_behind_an_equals_sign(project: Path) -> None:
    sent = workplace.files_to_send(["run", "--set", "workload.file=traces/other.csv"], project)
    assert names(sent, project) == ["traces/other.csv"]


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
    sent = workplace.files_to_send(["validate", "-t", "bad.yml"], project)
    assert names(sent, project) == ["bad.yml", "worse.yml"]


@pytest.mark.parametrize(
    ("word", "far"),
    [
        ("small.yml", "small.yml"),
        ("../x.yml", "../x.yml"),
        ("/tmp/out.html", "/far/tmp/out.html"),
        ("--output=/tmp/out.html", "--output=/far/tmp/out.html"),
        ("/no/such/directory/file", "/no/such/directory/file"),
        ("fabric.hosts=4", "fabric.hosts=4"),
        ("", ""),
    ],
)
def test_names_over_there(word: str, far: str) -> None:
    assert workplace.far_arguments(["graph", "-o", word, "--", "/tmp/raw"], "/far") == [
        *("graph", "-o", far, "--", "/tmp/raw")
    ]


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
