"""All views and actions, by the names of their modules in `testbed.api.console.views`; and records played back."""

from __future__ import annotations

import threading
from collections import OrderedDict
from importlib import import_module
from pathlib import Path

from testbed.api.console.action import PageAction
from testbed.api.console.files import StartDirectories
from testbed.api.console.sources.recorded import RecordedLab, shown_directory
from testbed.api.console.sources.source import Source
from testbed.api.console.view import View
from testbed.api.console.views import ACTION_MODULES, VIEWS
from testbed.record.store import RECORD_FILE

MOST_PLAYED = 4
"""Runs of records that are kept open: a large one takes a while to read."""


def load_views() -> list[View]:
    """Return all views. Each is `VIEW` of its module."""
    return [import_module(f"testbed.api.console.views.{name}").VIEW for name in VIEWS]


def load_actions() -> list[PageAction]:
    """Return all actions. Several are `ACTIONS` of a module."""
    return [action for name in ACTION_MODULES for action in import_module(f"testbed.api.console.views.{name}").ACTIONS]


class PlayedRecords:
    """The runs of records that pages look at: the latest few stay open, for as long as their files stay as they are."""

    def __init__(self) -> None:
        self._open: OrderedDict[tuple[Path, int, int, int], Source] = OrderedDict()
        self._lock = threading.Lock()

    def play(self, files: StartDirectories, directory: str, point: int, run: int) -> Source:
        """Return a run of the record in a directory below a start directory, by the directory's part of an address.

        Raises `Refused`, `RecordError`.
        """
        path = files.path(shown_directory(directory))
        record = files.path(f"{shown_directory(directory)}/{RECORD_FILE}")
        key = path, point, run, record.stat().st_mtime_ns
        with self._lock:  # a page asks for several things at once, and a large record is read once for them
            if key not in self._open:
                base = f"/api/runs/{directory}/{point}/{run}"
                self._open[key] = RecordedLab.open(path, point, run, base=base, topologies=files.roots)
                while len(self._open) > MOST_PLAYED:
                    self._open.popitem(last=False)
            self._open.move_to_end(key)
            return self._open[key]
