"""The topologies and scenarios that come with testbed: they are listed, and copied without overwriting anything."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from testbed.api import shipped_files
from testbed.api.shipped_files import copy_shipped, shipped_directory
from testbed.base.errors import TestbedError
from testbed.base.files import SHIPPED_FOLDERS
from testbed.cli.app import app
from testbed.cli.scenarios.demo import SCENARIO

ROOT = Path(__file__).parents[3]
FILES = {
    str(path.relative_to(ROOT))
    for folder in SHIPPED_FOLDERS
    for path in (ROOT / folder).rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
}


def test_every_file_is_listed_with_what_it_is_about() -> None:
    done = CliRunner().invoke(app, ["examples", "-f", "json"])
    rows = json.loads(done.stdout)
    assert {row["file"] for row in rows} == FILES
    assert [row["file"] for row in rows if not row["about"].endswith((".", ":"))] == []


def test_files_are_copied_side_by_side_and_once(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["examples", str(tmp_path / "new")])
    assert done.stdout == f"{tmp_path / 'new'}: {len(FILES)} files written\n"
    assert (tmp_path / "new" / SCENARIO).read_bytes() == (ROOT / SCENARIO).read_bytes()
    checked = CliRunner().invoke(app, ["validate", str(tmp_path / "new" / SCENARIO)])
    assert checked.exit_code == 0, checked.output
    again = CliRunner().invoke(app, ["examples", str(tmp_path / "new")])
    assert again.stdout == f"{tmp_path / 'new'}: has all of them already\n"
    (tmp_path / "new" / SCENARIO).unlink()
    assert copy_shipped(tmp_path / "new") == [tmp_path / "new" / SCENARIO]


def test_a_file_is_no_directory_for_them(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["examples", str(tmp_path / "topologies" / "demo.yml")])
    assert isinstance(done.exception, TestbedError) and "no name for a directory" in str(done.exception)
    assert list(tmp_path.iterdir()) == []


def test_what_somebody_has_changed_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "topologies").mkdir()
    mine = tmp_path / "topologies" / "demo.yml"
    mine.write_text("name: mine\n")
    with pytest.raises(TestbedError, match=r"topologies/demo\.yml would be overwritten"):
        copy_shipped(tmp_path)
    assert mine.read_text() == "name: mine\n"
    assert [path for path in tmp_path.rglob("*.yml") if path != mine] == []


def test_a_wheel_has_them_beside_the_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert shipped_directory() == ROOT
    for folder in SHIPPED_FOLDERS:
        (tmp_path / folder).mkdir()
    monkeypatch.setattr(shipped_files, "PACKAGED", tmp_path)
    assert shipped_directory() == tmp_path
    (tmp_path / "scenarios").rmdir()
    with pytest.raises(TestbedError, match="no scenarios"):
        shipped_directory()
