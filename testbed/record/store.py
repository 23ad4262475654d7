"""Records on disk: written whole or not at all, read with suspicion.

A record may come from a stranger. It is parsed as JSON into the types of `record.record` and nothing
else: no path in it is followed, nothing in it is run.

A record says what was measured. In virtual time, and on the simulator, the same scenario and seed give the same bytes;
what differs from one time to the next, such as how long it took here, is kept in a file of its own beside it, the
session.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from testbed.base.errors import RecordError, disk_error
from testbed.base.files import write_atomically
from testbed.base.names import nearest
from testbed.record.journal import KeptRecord, RecordJournal, journal_path, with_journal
from testbed.record.point_files import MANY_POINTS, PointFiles, with_point_files
from testbed.record.record import EPOCH, SCHEMA, SIMULATED_CLOCK, Record

Kept = TypeVar("Kept")
RECORD_FILE = "record.json"
REPORT_FILE = "report.html"
MAX_RECORD_BYTES = 256 * 2**20
SESSION_FILE = "session.json"
MAX_SESSION_BYTES = 8 << 20
_WHERE_OPTIONS = ("-o", "--results", "--pool", "--point")
"""Options that say where a run's results go, or which machines do what of it: the figures are the same without them."""
_WHERE_FLAGS = ("--force",)


def _meant_record(path: Path) -> str:
    """The hint for a record that is not there: the newest of one that begins so, or one that is called alike."""
    there: dict[str, Path] = {}
    for directory in (path.parent, RESULTS_DIRECTORY):
        with suppress(OSError):
            for one in sorted(directory.iterdir()):
                if (one / RECORD_FILE).is_file():
                    there.setdefault(one.name, one)
    begin_so = [name for name in there if name.startswith(path.name)]
    meant = begin_so[-1] if begin_so else nearest(path.name, there)
    return f"did you mean {there[meant]}?" if meant else "`testbed results list` lists those of a directory"


@cache
def _adapter() -> TypeAdapter[Record]:
    return TypeAdapter(Record)


def encode_record(record: Record) -> bytes:
    """The record as JSON, UTF-8, one space of indentation, ending in a newline."""
    return _adapter().dump_json(record, indent=1) + b"\n"


def decode_record(content: bytes, *, name: str = "record") -> Record:
    """Read a record. Raises `RecordError` naming what is wrong with it; `name` is for the message."""
    document = _parse(content, name)
    schema = document.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise RecordError(f"{name} is not a testbed record: it has no schema number")
    if schema > SCHEMA:
        raise RecordError(
            f"{name} has schema {schema}; this version reads up to {SCHEMA}",
            hint="it was written by a newer testbed: use that one",
        )
    if schema < SCHEMA:
        raise RecordError(
            f"{name} has schema {schema} of a testbed before the first release; this version reads {SCHEMA}",
            hint="run the scenario again",
        )
    return validated(_adapter(), document, f"{name} is not a valid record")


def validated(adapter: TypeAdapter[Kept], document: object, refusal: str) -> Kept:
    """Read a document by its types. Raises `RecordError`: the refusal, and the first place that is wrong."""
    try:
        return adapter.validate_python(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RecordError(f"{refusal}: {where}: {first['msg']}") from error


def write_record(record: Record, path: Path) -> bytes:
    """Write `path` atomically: a reader sees the old file or the new one, also after a power cut.

    How long it took, and where the command line sent it, is written beside it.

    Returns what was written. Raises `RecordError` when the disk does not take it; then `path` is as it was.
    """
    content = encode_record(without_session(record))
    _write(content, record, path)
    return content


def _write(content: bytes, record: Record, path: Path) -> None:
    write_result(content, path)
    write_result(_encode_session(record), session_path(path))


def keep_record(path: Path, names: Sequence[str] = ()) -> KeptRecord:
    """Return what keeps the record of a run that goes on in `path`, without writing all of it after each point.

    `names` are those of all its points: of many, each has a file of its own until the run is over.
    """
    if len(names) <= MANY_POINTS:
        return RecordJournal(path, lambda record: write_record(record, path))

    def write(record: Record) -> bool:
        content = encode_record(without_session(record))
        if len(content) > MAX_RECORD_BYTES:
            return False
        _write(content, record, path)
        return True

    return PointFiles(path, names, write)


def load_record(path: Path) -> Record:
    """Read a record from a file, or from the results directory that holds it; of a run that goes on, or was killed,
    with the points of its journal or of its files of points."""
    file = path / RECORD_FILE if path.is_dir() else path
    try:
        if file.stat().st_size > MAX_RECORD_BYTES:
            raise RecordError(f"{file} is larger than any record ({MAX_RECORD_BYTES >> 20} MiB)")
        content = file.read_bytes()
    except OSError as error:
        hint = _meant_record(path) if isinstance(error, FileNotFoundError) else None
        raise RecordError(f"cannot read {file}: {error.strerror}", hint=hint) from error
    record = with_session(decode_record(content, name=str(file)), session_path(file))
    if record.incomplete or not record.points:
        record = with_point_files(record, file, most_bytes=MAX_RECORD_BYTES)
    return (
        with_journal(record, content, journal_path(file), most_bytes=MAX_RECORD_BYTES) if record.incomplete else record
    )


def write_result(content: bytes, path: Path) -> None:
    """Replace `path`, a record or what is made of one, as `write_atomically` does. Raises `RecordError`."""
    try:
        write_atomically(path, content)
    except OSError as error:
        raise RecordError(
            f"cannot write {path}: {error.strerror}", hint="results go below the current directory, or where -o says"
        ) from error


RESULTS_DIRECTORY = Path("results")
"""Below the current directory."""


def make_results_directory(scenario: str, started: datetime, *, parent: Path | None = None) -> Path:
    """Create `<parent>/<scenario>-<UTC stamp>` (parent: `results` below the current directory).

    A directory that exists is never reused: a second run in the same second gets `-2`.
    """
    root = RESULTS_DIRECTORY if parent is None else parent
    safe = re.sub(r"[^A-Za-z0-9_-]", "-", scenario) or "scenario"
    stem = f"{safe}-{started.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    number = 1
    while True:
        directory = root / (stem if number == 1 else f"{stem}-{number}")
        try:
            directory.mkdir(parents=True)
        except FileExistsError:
            number += 1
            if not root.is_dir():
                raise RecordError(f"cannot write results: {root} is not a directory") from None
        except OSError as error:
            raise RecordError(f"cannot create {directory}: {error.strerror}") from error
        else:
            return directory


def make_point_directory(scenario: str, point: int, *, parent: Path | None = None) -> Path:
    """Make `<parent>/point-NNNN` (parent: `results/<scenario>-points`), where the record of one point goes.

    It is where a job that is started once more finds it: what is there is replaced. Raises `RecordError`.
    """
    safe = re.sub(r"[^A-Za-z0-9_-]", "-", scenario) or "scenario"
    directory = (parent or RESULTS_DIRECTORY / f"{safe}-points") / f"point-{point:04}"
    with disk_error(f"create {directory}"):
        directory.mkdir(parents=True, exist_ok=True)
    return directory


def _parse(content: bytes, name: str) -> dict[str, Any]:
    try:
        document = json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{name} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise RecordError(f"{name} is not a testbed record")
    return document


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


# --- what is kept beside a record ---------------------------------------------------------------------


def session_path(record_path: Path) -> Path:
    """Return where the session of a record lies."""
    return record_path.with_name(SESSION_FILE)


def without_session(record: Record) -> Record:
    """Return the record as its file has it."""
    plain = replace(record, wall_s=None, command=without_results(record.command))
    if record.environment.clock != SIMULATED_CLOCK:
        return plain
    return replace(plain, started=EPOCH, finished=EPOCH, machines=[])


def _encode_session(record: Record) -> bytes:
    """Return what `without_session` leaves out, as JSON."""
    names = ("wall_s", "command", "started", "finished")
    said = {name: getattr(record, name) for name in names}
    if record.machines:
        said["machines"] = {machine.name: machine.points for machine in record.machines}
    return json.dumps(said, indent=1).encode() + b"\n"


def with_session(record: Record, path: Path) -> Record:
    """Return a record that was read from a file with what lies beside it, as far as there is a session and it fits.

    A session that is missing or damaged takes nothing from the record.
    """
    try:
        if path.is_symlink() or path.stat().st_size > MAX_SESSION_BYTES:
            return record
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return record
    if not isinstance(found, dict) or without_results(_command(found)) != record.command:
        return record
    wall_s = found.get("wall_s")
    known = replace(record, command=_command(found))
    if isinstance(wall_s, int | float) and not isinstance(wall_s, bool) and record.wall_s is None and wall_s >= 0:
        known = replace(known, wall_s=float(wall_s))
    started, finished = found.get("started"), found.get("finished")
    if record.environment.clock == SIMULATED_CLOCK and isinstance(started, str) and isinstance(finished, str):
        known = replace(known, started=started, finished=finished)
    return known


def without_results(command: Sequence[str]) -> list[str]:
    """Return a command line without the options that say where results go, and which machines do what of it."""
    words: list[str] = []
    skip = False
    for word in command:
        if skip:
            skip = False
        elif word in _WHERE_OPTIONS:
            skip = True
        elif word not in _WHERE_FLAGS and not _says_where(word):
            words.append(word)
    return words


def _says_where(word: str) -> bool:
    """Tell whether an option with its value in one word is one of `_WHERE_OPTIONS`."""
    short = word.startswith("-o") and len(word) > len("-o")
    return short or (word.startswith("--") and "=" in word and word.partition("=")[0] in _WHERE_OPTIONS)


def _command(found: dict[str, Any]) -> list[str]:
    command = found.get("command")
    return [str(word) for word in command] if isinstance(command, list) else []
