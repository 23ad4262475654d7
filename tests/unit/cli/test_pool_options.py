"""What `run --pool` and `--point` refuse before anything is reached or read."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from testbed.base.errors import ExitCode, TestbedError
from testbed.cli.app import app

pytestmark = pytest.mark.process

TEXT = """name: options
topology:
  inline: {name: options, fabric: {design: rail-optimized, hosts: 2, gpus: 1, segments: 2, spines: 2}}
transport: {kind: uet}
workload: {kind: permutation, bytes: 100kB}
matrix: {transport.paths: [oblivious, reps]}
"""
SIMULATE = ("run", "options.yml", "--backend", "simulation", "--no-report")


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "options.yml").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(*arguments: str) -> str:
    found = CliRunner().invoke(app, arguments)
    assert isinstance(found.exception, TestbedError), found.output
    assert found.exception.exit_code == ExitCode.NOT_STARTED
    return found.exception.message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--pool", "here", "--point", "1"), "--point: not with --pool"),
        (("--force",), "--force: it is about the machines of --pool"),
        (("--point", "3"), "has no point 3"),
        (("--point", "1", "--steady", "2"), "--steady: --point runs one point"),
        (("--point", "1", "--resume", "there"), "--resume: --point runs one point"),
        (("--pool", "nowhere"), "unreadable"),
        (("--pool", "ssh://a,b"), "--pool: b is no machine"),
    ],
)
def test_what_does_not_go_together_is_refused(arguments: tuple[str, ...], message: str, directory: Path) -> None:
    assert message in refused(*SIMULATE, *arguments)
    assert not (directory / "results").exists()


def test_points_that_were_run_apart_are_merged(directory: Path) -> None:
    for number in ("1", "2", "2"):
        assert CliRunner().invoke(app, [*SIMULATE, "--point", number, "-o", "points"]).exit_code == 0
    assert sorted(path.name for path in (directory / "points").iterdir()) == ["point-0001", "point-0002"]
    merged = CliRunner().invoke(app, ["results", "merge", "points", "-o", "whole", "--no-report", "-f", "json"])
    assert merged.exit_code == 0, merged.output
    assert '"points": 2' in merged.output
    assert "has a record already" in refused("results", "merge", "points", "-o", "whole")
    assert "has what is to be merged" in refused("results", "merge", "points", "-o", "points")
    assert "is a number among all points" in refused(*SIMULATE, "--point", "1", "--only", "paths=reps", "-o", "points")
    assert "there is no record in whole/labs" in refused("results", "merge", "whole/labs", "-o", "other")
