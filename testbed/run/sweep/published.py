"""Runs that go on, told to other processes of this machine: a file for each, in memory, that its run writes anew.

A console, or whoever else watches, finds in it which points there are, what is under way, and who is furthest behind.
The file is gone with its run; that of a run that was killed is told apart by its process.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from testbed.base.files import write_atomically
from testbed.base.linux.processes import stat_fields
from testbed.base.units import Duration
from testbed.lab.core.deploy.records.kept_events import process_text
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.record.record import Backend
from testbed.run.schema.model import Fault
from testbed.run.sweep.points import Point, Sweep
from testbed.run.sweep.progress import Phase, Progress, ProgressListener

DIRECTORY = ".running"
"""Below the run directory of all labs: no lab is called so."""
INTERVAL_S = 0.5
"""A file is written as often at most, but for what changes rarely."""
SCHEMA = 1
MOST_BYTES = 4 << 20
"""The largest file that is read."""


class PublishedRun:
    """A listener that tells other processes what it hears, and hands it on to `listener`. A context: it ends the file.

    Where the run directory cannot be written, nobody is told, and the run goes on.
    """

    def __init__(
        self,
        sweep: Sweep,
        directory: Path | None,
        listener: ProgressListener,
        *,
        backend: Backend = Backend.EMULATION,
        run_directory: Path | None = None,
    ) -> None:
        """`directory` is that of the results, None without. `run_directory`: by default that of this machine's labs."""
        self._listener = listener
        self._root = (run_directory or StateDirectory().run) / DIRECTORY
        self._path = self._root / f"{os.getpid()}.json"
        self._points = {point.index: point for point in sweep.points}
        self._due_s = 0.0
        self._document: dict[str, Any] = {
            "schema": SCHEMA,
            "pid": os.getpid(),
            "begun": _begin_of(os.getpid()),
            "command": process_text(os.getpid()),
            "scenario": sweep.scenario.name,
            "file": sweep.scenario.source,
            "directory": None if directory is None else str(directory.absolute()),
            "backend": backend.value,
            "started": time.time(),
            "points": [_point(point) for point in sweep.points],
            "runs": sweep.scenario.repeat.runs,
            "transport": ", ".join(one.kind.value for one in sweep.scenario.transports),
            "workload": sweep.scenario.workload.kind,
            "lab": "",
            "point": 0,
            "run": 0,
            "phase": "",
            "done": 0.0,
            "total": 0.0,
            "traffic_began": None,
            "faults": [],
            "behind": [],
        }

    def __enter__(self) -> Self:
        self._write()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
            self._root.rmdir()
            self._root.parent.rmdir()  # where no lab is left

    def __call__(self, event: Progress) -> None:
        self._take(event)
        rare = event.phase in (Phase.LAB, Phase.RUN)
        if rare or time.monotonic() >= self._due_s:
            self._write()
        self._listener(event)

    def _take(self, event: Progress) -> None:
        now = self._document
        begins = event.phase is Phase.TRAFFIC and (now["phase"], now["run"]) != (Phase.TRAFFIC.value, event.run)
        if (now["point"], now["run"]) != (event.point, event.run):
            now["behind"] = []
        now |= {"phase": event.phase.value, "point": event.point, "run": event.run}
        now |= {"done": event.done, "total": event.total}
        if event.lab:
            now["lab"] = event.lab
        if begins:
            now["traffic_began"] = time.time()
            if (point := self._points.get(event.point)) is not None:
                now["faults"] = [told for fault in point.scenario.faults if (told := _fault(fault)) is not None]
        if event.phase is Phase.LAB:
            now["traffic_began"], now["faults"] = None, []
        if event.behind is not None:
            now["behind"] = [asdict(one) for one in event.behind]
        for point in now["points"]:
            if point["index"] == event.point:
                point["done"] = max(point["done"], event.run if event.phase is Phase.RUN else 0)
                point["state"] = "done" if point["done"] >= now["runs"] else "running"

    def _write(self) -> None:
        self._due_s = time.monotonic() + INTERVAL_S
        with contextlib.suppress(OSError):
            self._root.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path, json.dumps(self._document), durable=False)


def _point(point: Point) -> dict[str, Any]:
    return {"index": point.index, "name": point.name, "done": 0, "state": "waiting"}


def _fault(fault: Fault) -> dict[str, Any] | None:
    """Return when and where a fault will be; None for one that waits for a step, whose time nobody knows yet."""
    if not isinstance(fault.at, Duration):
        return None
    return {
        "at_s": fault.at.seconds,
        "until_s": fault.until.seconds if isinstance(fault.until, Duration) else None,
        "kind": fault.kind,
        "target": fault.target,
        "detail": " ".join(f"{key}={value}" for key, value in fault.settings.items()),
    }


def running(state: StateDirectory) -> Iterator[Mapping[str, Any]]:
    """Yield what the runs of this machine tell, those that go on, by their begin."""
    found = []
    with contextlib.suppress(OSError):
        for path in (state.run / DIRECTORY).glob("*.json"):
            if (document := _read(path)) is not None:
                found.append(document)
    yield from sorted(found, key=lambda one: float(one["started"]))


def _read(path: Path) -> dict[str, Any] | None:
    """Return what a run tells; None where it has ended, was killed, or is of another version."""
    try:
        if path.stat().st_size > MOST_BYTES:
            return None
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        return None
    begun = document.get("begun")
    return document if begun and _begin_of(int(document.get("pid", 0))) == begun else None


def _begin_of(pid: int) -> int:
    """Return when a process began, in ticks since boot (proc_pid_stat(5), field 22); 0 where there is none."""
    try:
        return int(stat_fields(pid)[19])
    except OSError:
        return 0
