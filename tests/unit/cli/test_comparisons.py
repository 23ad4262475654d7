"""The verb `compare`: records, points of one, and one point of each, told in what they differ."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from recorded import load

from testbed.base.errors import RecordError
from testbed.cli.scenarios.compare import compare
from testbed.record.record import Outcome, Record, Verdict
from testbed.record.store import write_record


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """The record of three points: `mode=flow`, `mode=flowlet` and `mode=spray`."""
    return written(load("permutation-lb"), tmp_path / "sweep")


def written(record: Record, directory: Path) -> Path:
    directory.mkdir()
    write_record(record, directory / "record.json")
    return directory


def run(*words: object) -> Result:
    done = CliRunner().invoke(compare, list(map(str, words)))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def test_points_of_one_record_are_compared_with_the_first(sweep: Path) -> None:
    done = run(sweep, "--point", "mode=flow", "--point", "mode=spray", "-f", "json")
    [document] = json.loads(done.stdout)
    assert (document["base"], document["other"]) == ("mode=flow", "mode=spray")
    assert document["differing"]["point.mode"] == ["flow", "spray"] and document["incomparable"] == []
    change = {item["metric"]: item for item in document["changes"]}["tail_fct_ratio"]
    assert change["other_median"] < change["base_median"] and change["outcome"] == "better"
    table = run(sweep, "--point", "mode=flow", "--point", "mode=spray").stdout
    assert "compared: point.mode: 'flow' and 'spray'" in table


def test_two_points_that_a_record_has_need_no_word(sweep: Path, tmp_path: Path) -> None:
    record = load("permutation-lb")
    two = written(replace(record, points=record.points[:2]), tmp_path / "two")
    [document] = json.loads(run(two, "-f", "json").stdout)
    assert [document["base"], document["other"]] == [point.name for point in record.points[:2]]
    with pytest.raises(RecordError, match="two records, or two points of one") as caught:
        run(written(replace(record, points=record.points[:1]), tmp_path / "one"))
    assert "--point" in (caught.value.hint or "")


def test_what_else_a_matrix_varies_matches_points(tmp_path: Path) -> None:
    """Points are called as their file writes their values: 0.50 stays 0.50."""
    record = load("permutation-lb")
    flow, _, spray = record.points
    points = [
        replace(point, name=f"{point.name} alpha={written_as}", values={**point.values, "qos.buffer.alpha": alpha})
        for point in (flow, spray)
        for alpha, written_as in ((0.5, "0.50"), (1.0, "1e0"))
    ]
    directory = written(replace(record, points=points), tmp_path / "both")
    [document] = json.loads(run(directory, "--point", "mode=flow", "--point", "mode=spray", "-f", "json").stdout)
    assert {item["point"] for item in document["changes"]} == {"alpha=0.50", "alpha=1e0"}
    [document] = json.loads(run(directory, "--point", "alpha=0.5", "--point", "alpha=1", "-f", "json").stdout)
    assert {item["point"] for item in document["changes"]} == {flow.name, spray.name}
    [document] = json.loads(
        run(directory, "--point", points[0].name, "--point", "mode=spray alpha=1", "-f", "json").stdout
    )
    assert {item["point"] for item in document["changes"]} == {""}


def test_one_point_of_each_record(sweep: Path, tmp_path: Path) -> None:
    record = load("permutation-lb")
    other = written(replace(record, comparability={**record.comparability, "design": "clos"}), tmp_path / "other")
    [document] = json.loads(run(sweep, other, "--point", "mode=spray", "-f", "json").stdout)
    assert document["differing"] == {"design": ["rail-optimized", "clos"]}
    assert {item["outcome"] for item in document["changes"]} == {"same"}
    [document] = json.loads(run(sweep, other, "--point", "mode=flow", "--point", "mode=spray", "-f", "json").stdout)
    assert set(document["differing"]) == {"design", "point.mode"}
    with pytest.raises(RecordError, match="--point is given 3 times for 2 records"):
        run(sweep, other, *["--point", "mode=flow"] * 3)


def test_other_points_may_be_invalid(sweep: Path, tmp_path: Path) -> None:
    record = load("permutation-lb")
    flow, *others = record.points
    broken = replace(flow.runs[0], checks=[replace(flow.runs[0].checks[0], ok=False, message="the machine was busy")])
    points = [replace(flow, runs=[broken, *flow.runs[1:]]), *others]
    invalid = Verdict(outcome=Outcome.INVALID, reasons=["mode=flow, run 1: the machine was busy"])
    directory = written(replace(record, points=points, verdict=invalid), tmp_path / "invalid")
    assert run(directory, "--point", "mode=flowlet", "--point", "mode=spray").exit_code in (0, 1, 2)
    with pytest.raises(RecordError, match="mode=flow is invalid: the machine was busy"):
        run(directory, "--point", "mode=flow", "--point", "mode=spray")
    assert run(directory, "--point", "mode=flow", "--point", "mode=spray", "--force").exit_code in (0, 1, 2)


def test_a_point_that_there_is_not_and_what_is_strict(sweep: Path, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no point has mode=sprayed") as caught:
        run(sweep, "--point", "mode=sprayed", "--point", "mode=spray")
    assert "mode=flow; mode=flowlet; mode=spray" in (caught.value.hint or "")
    record = load("permutation-lb")
    other = written(
        replace(record, comparability={**record.comparability, "workload": {"kind": "incast"}}), tmp_path / "incast"
    )
    assert run(sweep, other).exit_code == 0
    with pytest.raises(RecordError, match="they measured different things"):
        run(sweep, other, "--strict")
