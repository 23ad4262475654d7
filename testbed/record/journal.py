"""The record of a run that goes on: written whole now and then, with the points since then appended to a journal.

A sweep of thousands of points would otherwise write all of them again after each. The record is written whole whenever
its points have doubled, and once at the end; what came since lies in a file beside it, a point a line. Whoever reads
the record of a run that was killed gets the points of both.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Protocol

from pydantic import TypeAdapter, ValidationError

from testbed.base.errors import disk_error
from testbed.record.record import SCHEMA, PointResult, Record

JOURNAL_FILE = "points.jsonl"


@cache
def _adapter() -> TypeAdapter[PointResult]:
    return TypeAdapter(PointResult)


def journal_path(record_path: Path) -> Path:
    """Return where the journal of a record lies."""
    return record_path.with_name(JOURNAL_FILE)


class KeptRecord(Protocol):
    """A record on disk, as far as the run that goes on sees it."""

    @property
    def directory(self) -> Path:
        """Return the directory of the record."""

    def add(self, point: PointResult, record: Callable[[], Record]) -> None:
        """Keep a point that has been run; `record` makes the whole, where that is to be written."""

    def write(self, record: Record) -> None:
        """Keep all that there is."""


class RecordJournal:
    """Keeps the record of a run up to date on disk. `write` writes it whole, and returns the bytes of the file.

    Raises `RecordError` where the disk takes nothing more.
    """

    def __init__(self, record_path: Path, write: Callable[[Record], bytes]) -> None:
        self._path = journal_path(record_path)
        self._write = write
        self._whole = 0
        """The number of points that the file of the record has."""
        self._since = 0
        self._follows = ""

    @property
    def directory(self) -> Path:
        return self._path.parent

    def add(self, point: PointResult, record: Callable[[], Record]) -> None:
        if self._since >= self._whole:
            self.write(record())
            return
        lines = [] if self._since else [_heading(self._follows)]
        lines.append(_adapter().dump_json(point))
        with disk_error(f"write {self._path}"), self._path.open("ab") as file:
            file.write(b"".join(line + b"\n" for line in lines))
            file.flush()
            os.fsync(file.fileno())
        self._since += 1

    def write(self, record: Record) -> None:
        """Write the record whole; what was appended is in it."""
        self._follows = digest(self._write(record))
        with disk_error(f"remove {self._path}"):
            self._path.unlink(missing_ok=True)
        self._whole, self._since = len(record.points), 0


def digest(content: bytes) -> str:
    """Return what a journal knows the record by that it follows."""
    return hashlib.sha256(content).hexdigest()


def with_journal(record: Record, content: bytes, path: Path, *, most_bytes: int) -> Record:
    """Return a record that was read from `content`, with the points that were appended since it was written.

    A journal of another record, of another version or of more than `most_bytes` is left alone; of one whose end is
    missing, as after a power cut, the whole lines count.
    """
    points = {point.name: point for point in record.points}
    points |= {point.name: point for point in _appended(content, path, most_bytes)}
    return replace(record, points=list(points.values()))


def _appended(content: bytes, path: Path, most_bytes: int) -> Iterator[PointResult]:
    try:
        if path.is_symlink() or path.stat().st_size > most_bytes:
            return
        lines = path.read_bytes().split(b"\n")[:-1]  # what follows the last end of a line was cut short
    except OSError:
        return
    if not lines or lines[0] != _heading(digest(content)):
        return
    for line in lines[1:]:
        try:
            yield _adapter().validate_json(line)
        except ValidationError:
            return


def _heading(follows: str) -> bytes:
    """Return the first line of the journal that follows a record."""
    return json.dumps({"schema": SCHEMA, "follows": follows}).encode()
