"""The mechanism of the golden tests itself: it compares, it rewrites when asked, and never in CI."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from golden_files import OPTION, Golden, GoldenMismatchError, golden_file

ROOT = Path(__file__).parents[2]


def test_the_same_text_passes_and_another_is_shown_as_a_difference(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    golden_file(tmp_path / "a.txt").check("one\ntwo\nthree\n")
    golden_file(tmp_path / "a.txt").check(b"one\ntwo\nthree\n")
    with pytest.raises(GoldenMismatchError, match=f"(?s)a.txt .*{OPTION}.*\n-two\n\\+2\n"):
        golden_file(tmp_path / "a.txt").check("one\n2\nthree\n")
    assert (tmp_path / "a.txt").read_text() == "one\ntwo\nthree\n"


def test_a_file_that_is_not_there_fails(tmp_path: Path) -> None:
    with pytest.raises(GoldenMismatchError, match="does not exist"):
        golden_file(tmp_path / "new" / "a.txt").check("")


def test_files_are_rewritten_when_asked(tmp_path: Path) -> None:
    golden_file(tmp_path / "new" / "a.txt", regenerate=True).check("one\n")
    golden_file(tmp_path / "new" / "a.txt", regenerate=True).check("two\n")
    assert (tmp_path / "new" / "a.txt").read_text() == "two\n"


def test_the_fixture_gives_files_of_this_folder(golden: Golden) -> None:
    assert golden("plan/ibgp.txt").path == Path(__file__).parent / "plan" / "ibgp.txt"


@pytest.mark.process
def test_ci_refuses_to_rewrite() -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-q", OPTION, __file__]
    ran = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "CI": "true"}, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == pytest.ExitCode.USAGE_ERROR
    assert "not for CI" in ran.stderr
