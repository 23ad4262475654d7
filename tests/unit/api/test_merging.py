"""Records of single points, put together: of a simulation the same bytes as one run of all points."""

from dataclasses import replace
from pathlib import Path

import pytest

from testbed.api.merging import merge_records
from testbed.base.errors import RecordError, ScenarioError
from testbed.record.record import Backend, Outcome, Record
from testbed.record.store import encode_record, load_record, without_session
from testbed.run.simulated.sweep import run_simulated
from testbed.run.sweep.runner import RecordOptions
from testbed.run.sweeps import read_sweep

pytestmark = pytest.mark.process

TEXT = """name: merged
topology:
  inline: {name: merged, fabric: {design: rail-optimized, hosts: 2, gpus: 1, segments: 2, spines: 2}}
transport: {kind: uet}
workload: {kind: permutation, bytes: 100kB}
repeat: {runs: 1, seed: 3}
matrix: {transport.paths: [oblivious, reps], fabric.hosts: [2, 4]}
expect:
  - {metric: jct, min: 0, source: a guess}
  - {metric: jct, where: {paths: reps}, over: {paths: oblivious}, max: 9, source: a guess}
"""
COMMAND = ("testbed", "run", "merged.yml", "--backend", "simulation")


@pytest.fixture(scope="module")
def whole() -> Record:
    return run_simulated(read_sweep(TEXT), RecordOptions(command=(*COMMAND, "-o", "all")), processes=1).record


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Record]:
    """The records of all points, each run alone, as they are read from their files."""
    found = {}
    for number in (3, 1, 4, 2):
        directory = tmp_path_factory.mktemp(f"point-{number}")
        command = (*COMMAND, "--point", str(number), "-o", "parts")
        options = RecordOptions(directory=directory, command=command)
        run_simulated(read_sweep(TEXT).only(number), options, processes=1)
        found[f"point-{number}"] = load_record(directory)
    return found


def content(record: Record) -> bytes:
    return encode_record(without_session(record))


def test_the_record_of_all_points_is_the_same_to_the_byte(whole: Record, parts: dict[str, Record]) -> None:
    assert [len(record.points) for record in parts.values()] == [1, 1, 1, 1]
    assert content(merge_records(parts)) == content(whole)


def test_what_compares_two_points_is_judged_where_both_are(whole: Record, parts: dict[str, Record]) -> None:
    assert all(len(record.expectations) == 1 for record in parts.values()), "one point says nothing of a ratio"
    assert all(record.verdict.outcome is Outcome.PASS for record in parts.values())
    assert len(merge_records(parts).expectations) == len(whole.expectations) == 6


def test_a_point_that_is_missing_makes_it_incomplete(parts: dict[str, Record]) -> None:
    merged = merge_records({name: record for name, record in parts.items() if name != "point-2"})
    assert merged.incomplete == "1 of 4 points are missing" and merged.verdict.outcome is Outcome.INVALID


def test_what_was_incomplete_and_is_there_whole_does_not_count(whole: Record, parts: dict[str, Record]) -> None:
    """A record that was merged too early, or an interrupted one whose points others have to their end."""
    early = merge_records({name: record for name, record in parts.items() if name != "point-2"})
    assert content(merge_records({"early": early, **parts})) == content(whole)
    cut = replace(parts["point-1"], incomplete="interrupted", points=[])
    assert merge_records({"cut": cut, **parts}).incomplete == ""
    alone = {name: record for name, record in parts.items() if name != "point-1"}
    [point] = parts["point-1"].points
    lost = replace(parts["point-1"], incomplete="interrupted", points=[replace(point, runs=[])])
    assert merge_records({"lost": lost, **alone}).incomplete == "lost: interrupted"


def test_a_point_that_was_run_twice_counts_once(whole: Record, parts: dict[str, Record]) -> None:
    assert content(merge_records({**parts, "again": parts["point-1"]})) == content(whole)
    [point] = parts["point-1"].points
    other = replace(parts["point-1"], points=[replace(point, notes=["another"])])
    with pytest.raises(RecordError, match="simulated the point"):
        merge_records({**parts, "again": other})


def test_what_does_not_belong_together_is_refused(parts: dict[str, Record]) -> None:
    first = parts["point-1"]
    named = replace(first, scenario=replace(first.scenario, workload={"kind": "incast"}))
    with pytest.raises(RecordError, match="other is of another scenario"):
        merge_records({**parts, "other": named})
    emulated = replace(first, environment=replace(first.environment, backend=Backend.EMULATION))
    with pytest.raises(RecordError, match="other is of another backend"):
        merge_records({**parts, "other": emulated})


def test_machines_that_differ_are_named(parts: dict[str, Record]) -> None:
    second = parts["point-2"]
    moved = replace(second, environment=replace(second.environment, cores=99))
    merged = merge_records({**parts, "point-2": moved})
    assert [(part.name, len(part.points)) for part in merged.machines] == [("point-3", 3), ("point-2", 1)]


def test_an_expectation_that_is_none_is_refused(parts: dict[str, Record]) -> None:
    broken = {
        name: replace(record, scenario=replace(record.scenario, expect=[{"metric": 7}]))
        for name, record in parts.items()
    }
    with pytest.raises(RecordError, match="an expectation of the record is none"):
        merge_records(broken)


def test_a_point_that_there_is_not_is_told() -> None:
    with pytest.raises(ScenarioError, match="has no point 5") as caught:
        read_sweep(TEXT).only(5)
    assert caught.value.hint == "its points are 1 to 4"


def test_points_of_one_topology_stay_together(tmp_path: Path, whole: Record) -> None:
    assert [point.name for point in whole.points] == [
        "paths=oblivious hosts=2",
        "paths=reps hosts=2",
        "paths=oblivious hosts=4",
        "paths=reps hosts=4",
    ]
