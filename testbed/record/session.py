"""What belongs beside a record and not in it: how long it took here, where it went, and when.

A record says what was measured. In virtual time, and on the simulator, the same scenario and seed give the same bytes;
what differs from one time to the next is kept in a file of its own in the same directory.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from testbed.record.record import SIMULATED_CLOCK, Record

SESSION_FILE = "session.json"
MAX_SESSION_BYTES = 1 << 20
EPOCH = "1970-01-01T00:00:00.000Z"
"""When a simulation begins, by its own clock."""
_RESULTS_OPTIONS = ("-o", "--results")


def session_path(record_path: Path) -> Path:
    """Return where the session of a record lies."""
    return record_path.with_name(SESSION_FILE)


def without_session(record: Record) -> Record:
    """Return the record as its file has it."""
    plain = replace(record, wall_s=None, command=without_results(record.command))
    if record.environment.clock != SIMULATED_CLOCK:
        return plain
    return replace(plain, started=EPOCH, finished=EPOCH)


def session_of(record: Record) -> dict[str, Any]:
    """Return what `without_session` leaves out, as JSON has it."""
    return {
        "wall_s": record.wall_s,
        "command": list(record.command),
        "started": record.started,
        "finished": record.finished,
    }


def encode_session(record: Record) -> bytes:
    return json.dumps(session_of(record), indent=1).encode() + b"\n"


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
    """Return a command line without the option that says where results go."""
    words: list[str] = []
    skip = False
    for word in command:
        if skip:
            skip = False
        elif word in _RESULTS_OPTIONS:
            skip = True
        elif not word.startswith("--results=") and not (word.startswith("-o") and len(word) > len("-o")):
            words.append(word)
    return words


def _command(found: dict[str, Any]) -> list[str]:
    command = found.get("command")
    return [str(word) for word in command] if isinstance(command, list) else []
