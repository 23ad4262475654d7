"""Events of a lab that verbs keep, for those who ask later: changes of links, of power and of the lab itself."""

from __future__ import annotations

import os
from pathlib import Path

from testbed.daemons.kit.events import EventLog
from testbed.lab.core.deploy.records.usage import command_text

FILE_NAME = "link-events.jsonl"
"""In a lab's state directory, an event in a line, as `testbed events` prints it."""
CHANGES_FILE = "change-events.jsonl"
"""Beside it, the changes that `testbed apply` has made."""
ACTIONS_FILE = "console-events.jsonl"
"""Beside it, what was done to the lab from a page of `testbed console`."""
LAB_CHANGED = "lab-changed"
"""The kind of the event that ends such a change, once the lab's record is that of the changed lab."""


def keep_event(directory: Path, lab: str, node: str, kind: str, subject: str = "", detail: str = "") -> None:
    """Keep an event of a lab whose state directory this is. A disk that is full loses it."""
    EventLog(directory / FILE_NAME, lab, told_by()).write(kind, node, subject, detail)


def keep_action(directory: Path, lab: str, node: str, subject: str, command: str) -> None:
    """Keep an event `console-action`: a person has asked for something in a page. `command` does the same."""
    EventLog(directory / ACTIONS_FILE, lab, told_by()).write("console-action", node, subject, command)


def told_by() -> str:
    """Return this process as events name who did a thing: "testbed link down p1-s1-h1:rail1 (process 71)"."""
    return process_text(os.getpid())


def process_text(pid: int) -> str:
    """Return a process as events and messages name it: its command line, and its number."""
    return f"{command_text(pid)} (process {pid})"
