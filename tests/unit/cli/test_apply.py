"""The verbs `apply` and `diff` as far as they touch nothing: what is printed, for whom, and how they end."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recorded_lab import record_lab

from testbed.base.errors import ExitCode
from testbed.cli.app import exit_code
from testbed.lab.core.deploy.records.state import StateDirectory

TEXT = """\
name: one
scale: {time: 5000}
fabric: {design: rail-optimized, segments: 2, hosts: 8, gpus: 8, spines: 2, routing: {bfd: false}}
qos: {preset: uec}
"""
Said = Callable[..., tuple[int, str]]


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a lab that is recorded as it says."""
    for name in ("STATE", "RUN", "CACHE"):
        monkeypatch.setenv(f"TESTBED_{name}_DIR", str(tmp_path / name.lower()))
    monkeypatch.chdir(tmp_path)
    path = Path("one.yml")
    path.write_text(TEXT)
    record_lab(StateDirectory(), path)
    return path


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Returns how a command ends, and what it prints; nothing may be told beside it."""

    def said(*words: str) -> tuple[int, str]:
        code = exit_code(list(words))
        printed = capsys.readouterr()
        assert not printed.err or code >= ExitCode.INVALID, printed.err
        return code, printed.out or printed.err

    return said


def test_a_lab_that_is_what_its_file_says(said: Said) -> None:
    for words in (("diff",), ("apply", "--dry-run"), ("diff", "-n", "one"), ("diff", "-t", "one.yml")):
        assert said(*words) == (0, "one: nothing to change; it is what one.yml says\n")


@pytest.mark.parametrize("verb", [("diff",), ("apply", "--dry-run")])
def test_a_change_of_all_ports_is_a_few_lines(verb: tuple[str, ...], said: Said) -> None:
    code, text = said(*verb, "-t", "one.yml", "--set", "qos.classes.bulk.limit=1bdp")
    assert code == ExitCode.FAIL, text
    *_, outlook = text.splitlines()
    assert outlook.startswith("one: ") and "1 key of the file" in outlook
    assert len(text.splitlines()) < 12, text


def test_people_are_told_why_and_where(said: Said, file: Path) -> None:
    file.write_text(TEXT.replace("hosts: 8", "hosts: 9"))
    code, text = said("diff", "-t", "one.yml")
    assert code == ExitCode.FAIL
    assert "fabric.hosts: 8 -> 9 (one.yml:3)" in text
    assert "2 hosts" in text and "16 links" in text
    assert "no packet and no session is at stake" in text
    assert len(text.splitlines()) < 20, text


def test_programs_are_told_each_thing(said: Said, file: Path) -> None:
    file.write_text(TEXT.replace("hosts: 8", "hosts: 9"))
    code, text = said("diff", "-f", "json")
    document: dict[str, Any] = json.loads(text)
    assert (code, document["lab"], document["keys"][0]["line"]) == (1, "one", 3)
    made = [row for row in document["changes"] if row["effect"] == "made"]
    assert len(made) > 200 and {row["part_of"] for row in made} > {"", "host p1-s1-h9"}
    code, text = said("diff", "-f", "csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert code == 1 and len(rows) == len(document["changes"])
    assert rows[0]["reason"] == document["changes"][0]["reason"]


def test_what_needs_to_be_allowed_stands_in_a_column(said: Said, file: Path) -> None:
    file.write_text(f"{TEXT}topology: {{nodes: {{p1-s1-h1: {{runtime: docker}}}}}}\n")
    code, text = said("diff")
    assert code == 1 and "--allow recreate" in text and "needs" in text.splitlines()[0]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("diff", "-n", "onw"), "did you mean one?"),
        (("apply", "--dry-run", "-n", "onw"), "did you mean one?"),
        (("apply", "--allow", "rescreate"), "did you mean recreate?"),
        (("diff", "-t", "no.yml"), "no.yml"),
        (("diff", "--set", "fabric.hots=3"), "hosts"),
        (("apply", "--dry-run", "--set", "fabric.hosts"), "KEY=VALUE"),
        (("diff", "-t", "other.yml", "-n", "one"), "describes the lab other"),
        (("diff", "-t", "other.yml"), "no lab named other is deployed here"),
        (("apply", "-t", "renamed.yml", "--dry-run"), "a lab that is up keeps its name"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_begin(words: tuple[str, ...], told: str, said: Said) -> None:
    Path("other.yml").write_text(TEXT.replace("one", "other"))
    Path("renamed.yml").symlink_to("one.yml")
    if "renamed.yml" in words:
        Path("one.yml").write_text(TEXT.replace("name: one", "name: renamed"))
    code, text = said(*words)
    assert code == ExitCode.NOT_STARTED and told in text and "Traceback" not in text


def test_a_lab_that_is_not_up_is_all_new(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("other.yml").write_text(TEXT.replace("name: one", "name: other"))
    code, text = said("apply", "--dry-run", "-t", "other.yml")
    assert code == ExitCode.FAIL
    assert "16 hosts" in text and "16 rail switches" in text and "other is not deployed: " in text
    assert len(text.splitlines()) < 20, text
