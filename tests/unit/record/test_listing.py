"""What lies in a results directory, and what the verbs about records do with it."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from recorded import RECORDS

from testbed.base.errors import RecordError, TestbedError
from testbed.cli.app import app
from testbed.record.listing import BROKEN, list_results


@pytest.fixture
def results(tmp_path: Path) -> Path:
    root = tmp_path / "results"
    for name in ("permutation", "permutation-lb", "silent-failure"):
        (root / name).mkdir(parents=True)
        (root / name / "record.json").write_bytes((RECORDS / f"{name}.json").read_bytes())
    (root / "cut-short").mkdir()
    (root / "cut-short" / "record.json").write_text('{"schema": 2, "sc')
    (root / "newer").mkdir()
    (root / "newer" / "record.json").write_text('{"schema": 99}')
    (root / "notes").mkdir()
    (root / "file").touch()
    return root


def run(*arguments: str | Path) -> tuple[int, str]:
    """A verb's exit code and what it printed; errors as `main` turns them into codes."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, TestbedError):
        return result.exception.exit_code, str(result.exception)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_listed_newest_first_with_the_broken_ones_marked(results: Path) -> None:
    found = list_results(results)
    assert [item.directory.name for item in found] == [
        "permutation-lb", "silent-failure", "permutation", "cut-short", "newer",
    ]  # fmt: skip
    assert [item.verdict for item in found] == ["pass", "invalid", "invalid", BROKEN, BROKEN]
    assert found[1].incomplete == "interrupted in run 2 of 3"
    assert (found[0].points, found[0].runs) == (3, 18)
    assert "is not JSON" in found[3].problem and "newer" in found[4].problem


def test_nothing_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words in ((), (tmp_path,)):
        code, text = run("results", "list", *words)
        assert code == 0 and "no results in" in text


def test_a_directory_that_is_named_and_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="No such file") as refused:
        list_results(tmp_path / "none")
    assert "results/" in (refused.value.hint or "")


def test_a_file_is_no_directory_of_results(results: Path) -> None:
    with pytest.raises(RecordError, match="Not a directory"):
        list_results(results / "file")


def test_links_are_not_followed(results: Path, tmp_path: Path) -> None:
    (results / "away").symlink_to(results / "permutation")
    (results / "linked").mkdir()
    (results / "linked" / "record.json").symlink_to(RECORDS / "permutation.json")
    found = {item.directory.name: item for item in list_results(results)}
    assert "away" not in found
    assert "is a link" in found["linked"].problem


def test_list_as_json(results: Path) -> None:
    code, text = run("results", "list", results, "-f", "json")
    assert code == 0
    rows = json.loads(text)
    assert rows[1]["remark"] == "partial: interrupted in run 2 of 3"
    assert rows[3]["verdict"] == "broken"


def test_show(results: Path) -> None:
    code, text = run("results", "show", results / "permutation-lb")
    assert code == 0 and "PASS" in text and "mode=spray" in text
    code, text = run("results", "show", results / "permutation-lb", "-f", "json")
    assert json.loads(text)["verdict"] == "pass"
    code, text = run("results", "show", results / "permutation-lb", "-f", "csv")
    assert text.startswith("point,qos.load_balancing.mode,run,seed,complete,metric,unit,value")


def test_report_of_a_directory_of_a_file_and_elsewhere(results: Path, tmp_path: Path) -> None:
    assert run("report", results / "permutation") == (0, f"{results / 'permutation' / 'report.html'}\n")
    assert run("report", results / "permutation" / "record.json")[0] == 0
    code, _ = run("report", results / "permutation", "-o", tmp_path / "new" / "place")
    assert code == 0
    assert {path.name for path in (tmp_path / "new" / "place").iterdir()} == {
        "report.html", "summary.json", "metrics.csv", "transfers.csv", "channels.csv", "junit.xml",
    }  # fmt: skip


def test_report_into_what_is_no_directory(results: Path) -> None:
    code, text = run("report", results / "permutation", "-o", results / "file")
    assert code == 3 and "cannot create" in text


def test_report_into_a_read_only_directory(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr("testbed.base.files.os.open", refuse)
    code, text = run("report", results / "permutation")
    assert code == 3 and "Permission denied" in text


def test_compare(results: Path, tmp_path: Path) -> None:
    code, text = run("compare", results / "permutation-lb", results / "permutation-lb", "--html", tmp_path / "c.html")
    assert code == 0 and "SAME" in text
    assert "against" in (tmp_path / "c.html").read_text()
    code, text = run("compare", results / "permutation-lb", results / "silent-failure", "--force")
    assert code == 3 and "no point in common" in text and "--point" in text
    code, text = run("compare", results / "permutation-lb")
    assert code == 3 and "two records, or two points of one" in text


def test_compare_exits_with_1_for_worse(results: Path) -> None:
    slower = results / "slower"
    slower.mkdir()
    document = json.loads((results / "permutation-lb" / "record.json").read_text())
    for point in document["points"]:
        for one in point["runs"]:
            one["metrics"]["tail_fct_ratio"] *= 4
    (slower / "record.json").write_text(json.dumps(document))
    code, text = run("compare", results / "permutation-lb", slower, "-f", "json")
    assert code == 1
    assert json.loads(text)[0]["verdict"] == "worse"
    code, text = run("compare", results / "permutation-lb", slower, "-f", "csv")
    assert text.count("\n") == 1 + 3 * 14
