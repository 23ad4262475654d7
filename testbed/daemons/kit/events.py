"""A lab's events as JSON lines, appended to the file that the lab named: what happens at once is one write."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
from collections.abc import Sequence
from pathlib import Path


class EventLog:
    """Never raises for a file that cannot be written: the daemon goes on, `lost` counts.

    `by` is the command that brings these events about, where it is one that somebody gave.
    """

    def __init__(self, path: Path, lab: str, by: str = "") -> None:
        self._path = path
        self._lab = lab
        self._by = {"by": by} if by else {}
        self.lost = 0

    def write(self, kind: str, node: str = "", subject: str = "", detail: str = "") -> None:
        """`time` is UTC; `node` and `subject` say where, as in the events of `testbed events`."""
        self.write_all([(kind, node, subject, detail)])

    def write_all(self, events: Sequence[tuple[str, str, str, str]]) -> None:
        """Write events that happen at once, each as `write` takes it: kind, node, subject, detail."""
        time = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        lines = "".join(
            json.dumps(
                {"time": time, "lab": self._lab, "node": node, "kind": kind, "subject": subject, "detail": detail}
                | self._by
            )
            + "\n"
            for kind, node, subject, detail in events
        )
        try:
            descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            with contextlib.closing(os.fdopen(descriptor, "wb", buffering=0)) as stream:
                stream.write(lines.encode())
        except OSError:
            self.lost += len(events)
