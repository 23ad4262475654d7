"""The record of a run of many points while it goes on: a file for each point, and an index of them.

A sweep of thousands of points is written twice in all: each point once, into `points/NNNN.json`, when it is done, and
the whole once, into `record.json`, at the end; the files of points go then. Until then, and where a run was interrupted
or the whole would be larger than a record may be, `record.json` has everything but the points. Whoever reads the record
gets both as one.

The index, `points/index.jsonl`, has a line for each file: the name of its point and its digest. It begins with the
scenario that the points are of. Of a point that was run again the last line counts.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from testbed.base.errors import RecordError, disk_error
from testbed.base.files import write_atomically
from testbed.record.record import SCHEMA, Outcome, PointResult, Record, Verdict

MANY_POINTS = 200
"""A sweep of more points has files of them."""
DIRECTORY = "points"
INDEX_FILE = "index.jsonl"
MAX_INDEX_BYTES = 32 * 2**20
MAX_ALL_BYTES = 4 * 2**30
"""The most bytes of all files of points together that are read."""
_NAME = re.compile(r"[0-9]{4,8}\.json")


@cache
def _adapter() -> TypeAdapter[PointResult]:
    return TypeAdapter(PointResult)


class PointFiles:
    """Keeps the record of a run in files of its points. `names` are those of all points, in their order.

    `write` writes a record into one file, as long as it has no more than `most_bytes`, and returns whether it did.
    Raises `RecordError` where the disk takes nothing more.
    """

    def __init__(self, record_path: Path, names: Sequence[str], write: Callable[[Record], bool]) -> None:
        self._record_path = record_path
        self._path = record_path.parent / DIRECTORY
        self._numbers = {name: number for number, name in enumerate(names, start=1)}
        self._write = write
        self._digests: dict[str, str] = {}
        """The digest of each point's file, by its name."""
        self._begun = False

    @property
    def directory(self) -> Path:
        return self._record_path.parent

    def add(self, point: PointResult, record: Callable[[], Record]) -> None:
        """Keep a point that has been run; `record` makes the whole, where nothing of it is there yet."""
        if not self._begun:
            self._begin(record())
        self._put(point)

    def write(self, record: Record) -> None:
        """Keep all that there is: in one file where the run is over, and that is not too large."""
        if not record.incomplete and self._write(record):
            self._remove()
            self._begun, self._digests = False, {}
            return
        self._begin(record)

    def _remove(self) -> None:
        """Remove the files of points and their index. A directory of this name may have other things of the user's."""
        with suppress(OSError):
            for path in list(self._path.iterdir()):
                if path.name == INDEX_FILE or _NAME.fullmatch(path.name):
                    path.unlink()
            self._path.rmdir()

    def _begin(self, record: Record) -> None:
        """Write everything but points, and those points that are not there as they are."""
        if not self._begun:
            self._make_directory(record)
            self._begun = True
        for point in record.points:
            self._put(point)
        self._write(replace(record, points=[]))

    def _make_directory(self, record: Record) -> None:
        """Make the directory with an index that is empty, or go on with that of a session before this one.

        Of that the points count whose files are as it says; a line that was cut short would spoil the next one.
        """
        index = self._path / INDEX_FILE
        sound = [_heading(record)]
        with disk_error(f"write {self._path}"):
            self._path.mkdir(exist_ok=True)
            content = _content(index, MAX_INDEX_BYTES)
            found = content.split(b"\n")[:-1]
            for line in found[1:] if found[:1] == sound else ():
                name, file, sha256 = _entry(line)
                if file and _digest(self._path / file, MAX_ALL_BYTES) == sha256:
                    self._digests[name] = sha256
                    sound.append(line)
            whole = b"".join(line + b"\n" for line in sound)
            if whole != content:
                write_atomically(index, whole)

    def _put(self, point: PointResult) -> None:
        content = _adapter().dump_json(point) + b"\n"
        digest = hashlib.sha256(content).hexdigest()
        if self._digests.get(point.name) == digest:
            return
        number = self._numbers.setdefault(point.name, len(self._numbers) + 1)
        file = f"{number:04}.json"
        line = json.dumps({"point": point.name, "file": file, "sha256": digest}).encode() + b"\n"
        with disk_error(f"write {self._path}"):
            write_atomically(self._path / file, content)
            with (self._path / INDEX_FILE).open("ab") as index:
                index.write(line)
                index.flush()
                os.fsync(index.fileno())
        self._digests[point.name] = digest


def with_point_files(record: Record, record_path: Path, *, most_bytes: int) -> Record:
    """Return a record with the points that lie in files beside it; as it is where they are not of its scenario.

    Links are not followed, and no file of more than `most_bytes` is read. One that is missing, or is not the one that
    the index speaks of, as after a power cut, is left out; a run that is over is no verdict without it. Raises
    `RecordError` for points that are too many to read.
    """
    directory = record_path.parent / DIRECTORY
    if directory.is_symlink() or not directory.is_dir():
        return record
    try:
        lines = list(_lines(directory / INDEX_FILE))
    except OSError:
        return record
    if lines[:1] != [_heading(record)]:
        return record
    entries: dict[str, tuple[str, str]] = {}
    for line in lines[1:]:
        name, file, sha256 = _entry(line)
        if file:
            entries[name] = file, sha256
    points = {point.name: point for point in record.points}
    points |= {point.name: point for point in _read_all(directory, entries, most_bytes)}
    whole = replace(record, points=list(points.values()))
    missing = len(entries.keys() - points.keys())
    if not missing or record.incomplete:
        return whole
    said = f"{missing} of its {len(entries)} points cannot be read"
    verdict = Verdict(outcome=Outcome.INVALID, reasons=[said, *record.verdict.reasons])
    return replace(whole, incomplete=said, verdict=verdict)


def _read_all(directory: Path, entries: dict[str, tuple[str, str]], most_bytes: int) -> Iterator[PointResult]:
    """Yield the points of all files that are as their index says, in the order of their numbers."""
    left = MAX_ALL_BYTES
    for name, (file, sha256) in sorted(entries.items(), key=lambda entry: int(entry[1][0].partition(".")[0])):
        content = _content(directory / file, most_bytes)
        left -= len(content)
        if left < 0:
            raise RecordError(f"the points in {directory} are more than {MAX_ALL_BYTES >> 30} GiB")
        if hashlib.sha256(content).hexdigest() != sha256:
            continue
        try:
            point = _adapter().validate_json(content)
        except ValidationError:
            continue
        if point.name == name:
            yield point


def _content(path: Path, most_bytes: int) -> bytes:
    """Return what is in a file; nothing for a link or a pipe, or for one that cannot be read or is too large."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with os.fdopen(descriptor, "rb") as stream:
        found = os.fstat(descriptor)
        return stream.read(most_bytes) if stat.S_ISREG(found.st_mode) and found.st_size <= most_bytes else b""


def _digest(path: Path, most_bytes: int) -> str:
    return hashlib.sha256(_content(path, most_bytes)).hexdigest()


def _lines(index: Path) -> Iterator[bytes]:
    """Yield the whole lines of an index; what follows the last end of a line was cut short."""
    yield from _content(index, MAX_INDEX_BYTES).split(b"\n")[:-1]


def _entry(line: bytes) -> tuple[str, str, str]:
    """Return the point, the file and the digest of a line; all empty where it is none."""
    try:
        found: Any = json.loads(line)
        name, file, sha256 = found["point"], found["file"], found["sha256"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "", "", ""
    whole = isinstance(name, str) and isinstance(file, str) and isinstance(sha256, str)
    return (name, file, sha256) if whole and _NAME.fullmatch(file) else ("", "", "")


def _heading(record: Record) -> bytes:
    """Return the first line of the index: which scenario its points are of, whatever is expected of them."""
    run = record.scenario
    said: list[Any] = [run.name, run.topology, run.transport, run.workload, run.matrix, run.faults, run.probes]
    said += [run.repeat.get("runs"), run.repeat.get("seed"), record.environment.backend, record.environment.clock]
    text = json.dumps(said, sort_keys=True, default=str)
    return json.dumps({"schema": SCHEMA, "scenario": hashlib.sha256(text.encode()).hexdigest()}).encode()
