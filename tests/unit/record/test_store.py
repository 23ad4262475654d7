"""Records on disk: atomic, versioned, suspicious of strangers."""

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from testbed.base.errors import RecordError
from testbed.record.record import Record
from testbed.record.store import decode_record, encode_record, load_record, make_results_directory, write_record


def test_round_trip_through_a_file(record: Record, tmp_path: Path) -> None:
    write_record(record, tmp_path / "record.json")
    assert load_record(tmp_path / "record.json") == record
    assert load_record(tmp_path) == record, "a results directory is as good as the file in it"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["record.json", "session.json"]
    assert (tmp_path / "record.json").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        ("incast", "did you mean results/incast-20260102-000000?"),
        ("incast-20260101-000001", "did you mean results/incast-20260101-000000?"),
        ("results/incast-20260101-000001", "did you mean results/incast-20260101-000000?"),
        ("others", "`testbed results list` lists those of a directory"),
    ],
)
def test_a_record_that_is_not_there_has_a_hint(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: str, hint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("incast-20260101-000000", "incast-20260102-000000"):
        (tmp_path / "results" / name).mkdir(parents=True)
        write_record(record, tmp_path / "results" / name / "record.json")
    (tmp_path / "results" / "others-without-a-record").mkdir()
    with pytest.raises(RecordError) as caught:
        load_record(Path(wanted))
    assert caught.value.hint == hint


def changed(record: Record, **changes: Any) -> bytes:
    return json.dumps(json.loads(encode_record(record)) | changes).encode()


def test_a_newer_schema_is_refused(record: Record) -> None:
    with pytest.raises(RecordError, match="record has schema 4; this version reads up to 3") as caught:
        decode_record(changed(record, schema=4))
    assert caught.value.exit_code == 3
    assert caught.value.hint == "it was written by a newer testbed: use that one"


def test_unknown_fields_of_the_same_schema_are_ignored(record: Record) -> None:
    assert decode_record(changed(record, matrix=[{"mode": "spray"}])) == record


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not JSON"),
        (b"\x80\x04\x95pickle", "is not JSON"),
        (b"[" * 200_000, "is not JSON"),
        (b"[]", "is not a testbed record"),
        (b'{"schema": true}', "no schema number"),
        (b'{"schema": 0}', "no schema number"),
        (b'{"schema": "1"}', "no schema number"),
        (b'{"schema": 1}', "has schema 1 of a testbed before the first release"),
        (b'{"schema": 3}', "not a valid record: scenario"),
        (b'{"schema": 1, "x": NaN}', "is not JSON: NaN"),
    ],
)
def test_what_is_not_a_record(content: bytes, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        decode_record(content)


def test_infinite_numbers_are_refused(record: Record) -> None:
    text = encode_record(record).replace(b"4000.0", b"1e999")
    with pytest.raises(RecordError, match=r"points\.0\.lab\.k: .*finite"):
        decode_record(text)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"cannot read .*No such file"):
        load_record(tmp_path / "none.json")


def test_full_disk_leaves_the_old_record(record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RecordError, match="No space left on device"):
        write_record(record, path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_results_directories_are_never_shared(tmp_path: Path) -> None:
    moment = datetime(2026, 11, 21, 2, 27, 30, tzinfo=UTC)
    first = make_results_directory("rail-permutation", moment, parent=tmp_path)
    second = make_results_directory("rail-permutation", moment, parent=tmp_path)
    assert first == tmp_path / "rail-permutation-20261121T022730Z"
    assert second == tmp_path / "rail-permutation-20261121T022730Z-2"


def test_a_scenario_name_cannot_leave_the_results(tmp_path: Path) -> None:
    directory = make_results_directory("../../etc/x", datetime(2026, 1, 1, tzinfo=UTC), parent=tmp_path / "results")
    assert directory.parent == tmp_path / "results"


def test_results_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match=r"cannot (create|write)"):
        make_results_directory("s", datetime(2026, 1, 1, tzinfo=UTC), parent=tmp_path / "file")
