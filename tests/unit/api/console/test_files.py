"""No file outside of the start directories is read or written, whatever a page asks for."""

import os
from pathlib import Path

import pytest

from testbed.api.console.answers import RefusedRequest
from testbed.api.console.files import MOST_BYTES, ChangedMeanwhile, StartDirectories

SECRET = "root's own"


@pytest.fixture
def start(tmp_path: Path) -> Path:
    """A start directory with a topology, beside a secret that links lead to."""
    (tmp_path / "secret.yml").write_text(SECRET)
    root = tmp_path / "labs"
    (root / "deep").mkdir(parents=True)
    (root / "a.yml").write_text("name: a\n")
    (root / "deep" / "b.yml").write_text("name: b\n")
    (root / "link.yml").symlink_to(tmp_path / "secret.yml")
    (root / "up").symlink_to(tmp_path)
    (root / "inner.yml").symlink_to(root / "a.yml")
    os.mkfifo(root / "pipe.yml")
    return root


ESCAPES = (
    "labs/../secret.yml",
    "labs/deep/../../secret.yml",
    "labs/link.yml",
    "labs/up/secret.yml",
    "../secret.yml",
    "labs/up/labs/a.yml",
    "link.yml",
    "up/secret.yml",
    "deep/../../secret.yml",
)


@pytest.mark.parametrize("path", ESCAPES)
def test_a_way_out_works_where_paths_are_joined_and_not_here(start: Path, path: str) -> None:
    naive = start.parent / path if path.startswith("labs/") else start / path
    assert naive.read_text() in (SECRET, "name: a\n")
    files = StartDirectories([start])
    for attack in (files.read, files.path):
        with pytest.raises(RefusedRequest):
            attack(path)
    with pytest.raises(RefusedRequest):
        files.write(path, "mine now", "")
    assert (start.parent / "secret.yml").read_text() == SECRET


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "", ".", "labs//etc/passwd/..", "other/a.yml", "labs/\0", "labs/none.yml"]
)
def test_what_is_no_path_of_ours_is_not_there(start: Path, path: str) -> None:
    with pytest.raises(RefusedRequest) as refused:
        StartDirectories([start]).read(path)
    assert refused.value.status == 404


def test_a_path_may_be_typed_as_in_the_first_directory(start: Path, tmp_path: Path) -> None:
    (other := tmp_path / "other").mkdir()
    (other / "c.yml").write_text("name: c\n")
    files = StartDirectories([start, other])
    assert files.read("deep/b.yml").text == files.read("labs/deep/b.yml").text == "name: b\n"
    assert files.path("a.yml") == start / "a.yml"
    assert files.read("other/c.yml").text == "name: c\n"
    with pytest.raises(RefusedRequest):
        files.read("c.yml")
    with pytest.raises(RefusedRequest):
        StartDirectories([]).read("a.yml")


def test_links_are_not_followed_inside_either_and_pipes_block_nobody(start: Path) -> None:
    files = StartDirectories([start])
    for path in ("labs/inner.yml", "labs/pipe.yml", "labs/deep"):
        with pytest.raises(RefusedRequest):
            files.read(path)


def test_a_process_own_files_are_no_way_out(start: Path) -> None:
    (start / "proc").symlink_to("/proc/self")
    with pytest.raises(RefusedRequest):
        StartDirectories([start]).read("labs/proc/cmdline")


def test_a_file_is_read_and_replaced_where_nobody_changed_it(start: Path) -> None:
    files = StartDirectories([start])
    (start / "deep" / "b.yml").chmod(0o664)
    found = files.read("labs/deep/b.yml")
    assert found.text == "name: b\n"
    etag = files.write("labs/deep/b.yml", "name: c\n", found.etag)
    assert files.read("labs/deep/b.yml").etag == etag
    with pytest.raises(ChangedMeanwhile):
        files.write("labs/deep/b.yml", "name: d\n", found.etag)
    assert (start / "deep" / "b.yml").stat().st_mode & 0o777 == 0o664
    assert (start / "deep" / "b.yml").read_text() == "name: c\n"
    assert sorted(path.name for path in (start / "deep").iterdir()) == ["b.yml"]


def test_a_new_file_is_made_where_there_is_none_and_nowhere_else(start: Path) -> None:
    files = StartDirectories([start])
    files.write("labs/new.yml", "name: n\n", "")
    assert (start / "new.yml").read_text() == "name: n\n"
    with pytest.raises(ChangedMeanwhile):
        files.write("labs/a.yml", "name: x\n", "")
    with pytest.raises(ChangedMeanwhile):
        files.write("labs/gone.yml", "name: x\n", "0" * 32)


def test_only_topologies_and_scenarios_are_read(start: Path) -> None:
    (start / "id_ed25519").write_text("a key")
    (start / ".env.yml.txt").write_text("a secret")
    files = StartDirectories([start])
    for path in ("labs/id_ed25519", "labs/.env.yml.txt"):
        with pytest.raises(RefusedRequest):
            files.read(path)


def test_a_console_without_directories_has_no_files() -> None:
    files = StartDirectories([])
    assert files.listed() == []
    for path in ("etc/passwd.yml", "/etc/passwd", "root/etc/hostname.yml"):
        with pytest.raises(RefusedRequest):
            files.read(path)


@pytest.mark.parametrize("path", ["labs/run.sh", "labs/a.yml.bak", "labs/.bashrc", "labs"])
def test_only_topologies_and_scenarios_are_written(start: Path, path: str) -> None:
    with pytest.raises(RefusedRequest):
        StartDirectories([start]).write(path, "x", "")


def test_large_files_are_neither_read_nor_written(start: Path) -> None:
    (start / "large.yml").write_text("x" * (MOST_BYTES + 1))
    files = StartDirectories([start])
    with pytest.raises(RefusedRequest) as refused:
        files.read("labs/large.yml")
    assert refused.value.status == 413
    with pytest.raises(RefusedRequest) as refused:
        files.write("labs/new.yml", "x" * (MOST_BYTES + 1), "")
    assert refused.value.status == 413


def test_the_list_has_no_links_and_nothing_hidden(start: Path) -> None:
    (start / ".git").mkdir()
    (start / ".git" / "c.yml").write_text("x")
    assert [item.path for item in StartDirectories([start]).listed()] == ["labs/a.yml", "labs/deep/b.yml"]


def test_what_lies_deep_below_comes_last(start: Path) -> None:
    """A checkout has hundreds of broken topologies among its tests, and `tests` before `topologies`."""
    (start / "a" / "golden").mkdir(parents=True)
    (start / "a" / "golden" / "c.yml").write_text("name: c\n")
    paths = [item.path for item in StartDirectories([start]).listed()]
    assert paths == ["labs/a.yml", "labs/deep/b.yml", "labs/a/golden/c.yml"]


def test_two_directories_of_one_name_have_two(tmp_path: Path) -> None:
    for place in ("x", "y"):
        (tmp_path / place / "labs").mkdir(parents=True)
        (tmp_path / place / "labs" / "a.yml").write_text(place)
    files = StartDirectories([tmp_path / "x" / "labs", tmp_path / "y" / "labs"])
    assert files.names == ("labs", "labs_")
    assert files.read("labs_/a.yml").text == "y"


def test_a_file_is_shown_by_the_name_that_reads_it(start: Path) -> None:
    files = StartDirectories([start])
    assert files.shown(start / "deep" / "b.yml") == "labs/deep/b.yml"
    assert files.shown(start.parent / "secret.yml") is None
