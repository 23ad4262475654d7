"""The results directories there are, each in a line; what cannot be read is listed too, and says why."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from testbed.base.errors import RecordError
from testbed.base.rows import column
from testbed.record.store import RECORD_FILE, load_record

BROKEN = "broken"
"""The verdict of what cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """`verdict` is that of the record, or `broken`; then `problem` says why and the rest is empty."""

    directory: Path
    scenario: str = ""
    started: str = column("when", value=lambda row: row.started[:19].replace("T", " "), default="")
    """UTC, ISO 8601."""
    verdict: str = BROKEN
    points: int = 0
    runs: int = 0
    wall_s: float | None = column(
        "took_s", value=lambda row: None if row.wall_s is None else round(row.wall_s, 1), default=None
    )
    incomplete: str = column("remark", value=lambda row: row.remark, default="")
    """Why it ended early, "" if it did not."""
    problem: str = column(hidden=True, default="")

    @property
    def remark(self) -> str:
        """The mistake in it, in words."""
        return self.problem or (f"partial: {self.incomplete}" if self.incomplete else "")


def list_results(root: Path) -> list[Listed]:
    """Return what lies in `root` (`results`), newest first; directories without a record are no results.

    Raises `RecordError` where `root` itself cannot be read. Links are not followed out of it.
    """
    try:
        directories = [path for path in root.iterdir() if path.is_dir() and not path.is_symlink()]
    except OSError as error:
        hint = "name the directory in which results lie, as `testbed run -o` was told it; without one it is results/"
        raise RecordError(f"cannot read {root}: {error.strerror}", hint=hint) from error
    found = [_listed(directory) for directory in directories if _has_record(directory)]
    found.sort(key=lambda item: item.directory.name)  # those that cannot be read have no time, and come last
    return sorted(found, key=lambda item: item.started, reverse=True)


def _has_record(directory: Path) -> bool:
    file = directory / RECORD_FILE
    try:
        return file.exists() or file.is_symlink()
    except OSError:
        return True  # it is there, and cannot be read: that is to be told


def _listed(directory: Path) -> Listed:
    file = directory / RECORD_FILE
    try:
        if file.is_symlink():
            raise RecordError(f"{file} is a link: it is not followed")
        record = load_record(file)
    except RecordError as error:
        return Listed(directory=directory, problem=error.message)
    return Listed(
        directory=directory,
        scenario=record.scenario.name,
        started=record.started,
        verdict=record.verdict.outcome.value,
        points=len(record.points),
        runs=sum(len(point.runs) for point in record.points),
        wall_s=record.wall_s,
        incomplete=record.incomplete,
    )
