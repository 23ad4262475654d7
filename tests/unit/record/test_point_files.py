"""Records of many points: each point is written once and the whole once, and a killed run loses no point."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.base.files import write_atomically
from testbed.record import store
from testbed.record.point_files import DIRECTORY, INDEX_FILE, MANY_POINTS, PointFiles
from testbed.record.record import Outcome, Record
from testbed.record.store import RECORD_FILE, encode_record, keep_record, load_record

MANY = MANY_POINTS + 1


def grown(record: Record, count: int) -> Record:
    [point, *_] = record.points
    points = [replace(point, name=f"n={number}", values={"n": number}) for number in range(count)]
    return replace(record, points=points, incomplete="it is still running")


def begun(whole: Record, directory: Path, done: int) -> PointFiles:
    """The files of a run of which so many points are done."""
    kept = keep_record(directory / RECORD_FILE, [point.name for point in whole.points])
    assert isinstance(kept, PointFiles)
    for number, point in enumerate(whole.points[:done], start=1):
        kept.add(point, lambda number=number: replace(whole, points=whole.points[:number]))  # type: ignore[misc]
    return kept


def names(record: Record) -> list[str]:
    return [point.name for point in record.points]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all files that are written whole."""
    sizes: list[int] = []

    def counting(path: Path, content: bytes | str, **options: object) -> None:
        sizes.append(len(content))
        write_atomically(path, content, **options)  # type: ignore[arg-type]

    for module in ("store", "point_files"):
        monkeypatch.setattr(f"testbed.record.{module}.write_atomically", counting)
    return sizes


def test_a_thousand_points_are_written_twice(record: Record, tmp_path: Path, written: list[int]) -> None:
    whole = grown(record, 1000)
    kept = begun(whole, tmp_path, 1000)
    index = (tmp_path / DIRECTORY / INDEX_FILE).stat().st_size
    kept.write(replace(whole, incomplete=""))
    size = (tmp_path / RECORD_FILE).stat().st_size
    assert sum(written) + index <= 3 * size
    assert not (tmp_path / DIRECTORY).exists(), "the whole is in one file"
    assert (tmp_path / RECORD_FILE).read_bytes() == encode_record(store.without_session(replace(whole, incomplete="")))


@pytest.mark.parametrize("done", [1, 2, 7])
def test_whoever_reads_a_run_that_was_killed_gets_all_its_points(done: int, record: Record, tmp_path: Path) -> None:
    whole = grown(record, MANY)
    begun(whole, tmp_path, done)
    assert load_record(tmp_path).points == whole.points[:done]
    assert sorted(path.name for path in (tmp_path / DIRECTORY).glob("*.json")) == [
        f"{number:04}.json" for number in range(1, done + 1)
    ]


def test_an_interrupted_run_keeps_its_points_in_files_and_goes_on_there(
    record: Record, tmp_path: Path, written: list[int]
) -> None:
    whole = grown(record, MANY)
    kept = begun(whole, tmp_path, 5)
    kept.write(replace(whole, points=whole.points[:5], incomplete="interrupted"))
    half = load_record(tmp_path)
    assert half.incomplete == "interrupted" and half.points == whole.points[:5]
    written.clear()
    again = keep_record(tmp_path / RECORD_FILE, names(whole))
    again.add(whole.points[5], lambda: replace(whole, points=whole.points[:6]))
    assert len(written) == 3, "the head, its session and one point: not the others once more"
    assert load_record(tmp_path).points == whole.points[:6]


def test_a_point_that_was_run_again_is_there_once(record: Record, tmp_path: Path) -> None:
    whole = grown(record, MANY)
    kept = begun(whole, tmp_path, 3)
    again = replace(whole.points[1], notes=["the second try"])
    kept.add(again, lambda: whole)
    assert load_record(tmp_path).points == [whole.points[0], again, whole.points[2]]


def test_points_come_in_their_order_whichever_was_done_first(record: Record, tmp_path: Path) -> None:
    whole = grown(record, MANY)
    kept = keep_record(tmp_path / RECORD_FILE, names(whole))
    for number in (4, 0, 2):
        kept.add(whole.points[number], lambda: replace(whole, points=[]))
    assert names(load_record(tmp_path)) == ["n=0", "n=2", "n=4"]


def test_a_record_too_large_for_one_file_stays_in_files(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = replace(grown(record, MANY), incomplete="")
    monkeypatch.setattr(store, "MAX_RECORD_BYTES", len(encode_record(whole)) - 1)
    kept = begun(whole, tmp_path, MANY)
    kept.write(whole)
    assert len(list((tmp_path / DIRECTORY).glob("*.json"))) == MANY
    found = load_record(tmp_path)
    assert found.points == whole.points and found.incomplete == ""
    (tmp_path / DIRECTORY / "0007.json").unlink()
    damaged = load_record(tmp_path)
    assert damaged.incomplete == f"1 of its {MANY} points cannot be read"
    assert damaged.verdict.outcome is Outcome.INVALID and len(damaged.points) == MANY - 1


def test_what_else_lies_in_a_directory_of_this_name_stays(record: Record, tmp_path: Path) -> None:
    """`run --point -o points` has made one, and what is merged goes beside it."""
    of_a_point = tmp_path / DIRECTORY / "point-0001" / RECORD_FILE
    of_a_point.parent.mkdir(parents=True)
    of_a_point.write_text("{}")
    whole = replace(grown(record, MANY), incomplete="")
    kept = begun(whole, tmp_path, 2)
    kept.write(whole)
    assert [path for path in (tmp_path / DIRECTORY).rglob("*") if path.is_file()] == [of_a_point]
    assert load_record(tmp_path).points == whole.points


def test_a_file_that_was_lost_is_written_by_the_next_session(record: Record, tmp_path: Path) -> None:
    whole = grown(record, MANY)
    begun(whole, tmp_path, 3)
    (tmp_path / DIRECTORY / "0002.json").unlink()
    begun(whole, tmp_path, 3)
    assert load_record(tmp_path).points == whole.points[:3]


def test_a_line_that_was_cut_short_spoils_no_other(record: Record, tmp_path: Path) -> None:
    whole = grown(record, MANY)
    begun(whole, tmp_path, 3)
    index = tmp_path / DIRECTORY / INDEX_FILE
    index.write_bytes(index.read_bytes()[:-10])
    begun(whole, tmp_path, 4)
    assert load_record(tmp_path).points == whole.points[:4]


def test_a_pipe_is_not_waited_for(record: Record, tmp_path: Path) -> None:
    begun(grown(record, MANY), tmp_path, 2)
    index = tmp_path / DIRECTORY / INDEX_FILE
    index.unlink()
    os.mkfifo(index)
    assert load_record(tmp_path).incomplete == "it is still running"


def test_few_points_have_no_files(record: Record, tmp_path: Path) -> None:
    assert not isinstance(keep_record(tmp_path / RECORD_FILE, ["n=0"] * MANY_POINTS), PointFiles)


def test_what_was_cut_short_or_came_from_elsewhere_does_not_count(record: Record, tmp_path: Path) -> None:
    whole = grown(record, MANY)
    begun(whole, tmp_path, 4)
    directory = tmp_path / DIRECTORY
    index = directory / INDEX_FILE
    content = index.read_bytes()
    second = directory / "0002.json"
    point = second.read_bytes()

    second.write_bytes(point[:-20])
    assert names(load_record(tmp_path)) == ["n=0", "n=2", "n=3"], "it is not the one that the index speaks of"
    second.unlink()
    second.symlink_to(directory / "0001.json")
    assert names(load_record(tmp_path)) == ["n=0", "n=2", "n=3"], "a link is not followed"
    second.unlink()
    second.write_bytes(point)
    index.write_bytes(content[:-10])
    assert names(load_record(tmp_path)) == ["n=0", "n=1", "n=2"], "its end was cut off"
    lines = content.splitlines(keepends=True)
    index.write_bytes(content.replace(b'"file": "0003.json"', b'"file": "../3.json"'))
    assert names(load_record(tmp_path)) == ["n=0", "n=1", "n=3"]
    index.write_bytes(b"{}\n" + b"".join(lines[1:]))
    assert names(load_record(tmp_path)) == [], "of another scenario"
    index.write_bytes(lines[0] + b"[]\n{\n" + b"".join(lines[1:]))
    assert names(load_record(tmp_path)) == ["n=0", "n=1", "n=2", "n=3"]
    directory.rename(tmp_path / "elsewhere")
    directory.symlink_to(tmp_path / "elsewhere")
    assert names(load_record(tmp_path)) == []
