"""Records of runs that go on: a long sweep is not written anew for each of its points, and a killed one loses none."""

from dataclasses import replace
from pathlib import Path

import pytest

from testbed.record.journal import JOURNAL_FILE, RecordJournal
from testbed.record.record import Record
from testbed.record.store import RECORD_FILE, keep_record, load_record, write_record


def so_far(record: Record, count: int) -> Record:
    [point, *_] = record.points
    points = [replace(point, name=f"n={number}", values={"n": number}) for number in range(count)]
    return replace(record, points=points, incomplete="it is still running")


def names(record: Record) -> list[str]:
    return [point.name for point in record.points]


def test_two_thousand_points_are_written_whole_eleven_times(record: Record, tmp_path: Path) -> None:
    grown = so_far(record, 2000)
    wholes: list[int] = []

    def write(whole: Record) -> bytes:
        wholes.append(len(whole.points))
        return b""

    journal = RecordJournal(tmp_path / RECORD_FILE, write)
    for count, point in enumerate(grown.points, start=1):
        journal.add(point, lambda count=count: replace(grown, points=grown.points[:count]))  # type: ignore[misc]
    assert wholes == [2**number - 1 for number in range(1, 11)], "whenever they have doubled"
    journal.write(grown)
    assert wholes[-1] == 2000 and not (tmp_path / JOURNAL_FILE).exists()


@pytest.mark.parametrize("count", range(1, 9))
def test_whoever_reads_a_run_that_was_killed_gets_all_its_points(count: int, record: Record, tmp_path: Path) -> None:
    grown = so_far(record, count)
    journal = keep_record(tmp_path / RECORD_FILE)
    for done, point in enumerate(grown.points, start=1):
        journal.add(point, lambda done=done: replace(grown, points=grown.points[:done]))  # type: ignore[misc]
    assert load_record(tmp_path).points == grown.points
    journal.write(replace(grown, incomplete=""))
    assert load_record(tmp_path).points == grown.points and not (tmp_path / JOURNAL_FILE).exists()


def test_a_point_that_was_run_again_is_there_once(record: Record, tmp_path: Path) -> None:
    grown = so_far(record, 3)
    journal = keep_record(tmp_path / RECORD_FILE)
    journal.write(grown)
    again = replace(grown.points[1], notes=["the second try"])
    journal.add(again, lambda: grown)
    assert load_record(tmp_path).points == [grown.points[0], again, grown.points[2]]


def test_what_was_cut_short_or_belongs_to_another_record_does_not_count(record: Record, tmp_path: Path) -> None:
    grown = so_far(record, 4)
    journal = keep_record(tmp_path / RECORD_FILE)
    journal.write(replace(grown, points=grown.points[:2]))
    for point in grown.points[2:]:
        journal.add(point, lambda: grown)
    path = tmp_path / JOURNAL_FILE
    content = path.read_bytes()
    assert names(load_record(tmp_path)) == ["n=0", "n=1", "n=2", "n=3"]
    path.write_bytes(content[:-100])
    assert names(load_record(tmp_path)) == ["n=0", "n=1", "n=2"]
    path.write_bytes(content.replace(b'"name":"n=2"', b'"name":7'))
    assert names(load_record(tmp_path)) == ["n=0", "n=1"]
    path.write_bytes(b"{}\n" + content.split(b"\n", 1)[1])
    assert names(load_record(tmp_path)) == ["n=0", "n=1"]
    path.write_bytes(content)
    write_record(replace(grown, points=grown.points[:1]), tmp_path / RECORD_FILE)
    assert names(load_record(tmp_path)) == ["n=0"], "the journal follows another grown"
    path.unlink()
    path.symlink_to("/etc/passwd")
    assert names(load_record(tmp_path)) == ["n=0"]
