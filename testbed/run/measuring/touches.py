"""Changes that others made to a lab while a run measured on it, by a command or in the console: the run was touched.

Whoever changes a link, takes a node's power or kills a daemon has it kept as an event, with the command that did it
(`lab.core.deploy.records.kept_events`). What this process did itself are the scenario's faults.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

from testbed.base.names import first_few
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.kept_events import told_by
from testbed.lab.core.deploy.watch.event_history import commanded_changes
from testbed.lab.core.deploy.watch.events import LabEvent
from testbed.record.record import Check
from testbed.record.samples import RunEvent

TOUCHED = "touched"
"""The kind of these events in records."""
_TOLD_TWICE = "console-action"
"""The kind of the events that a console keeps of what it was asked for; what that changed tells by itself."""
MOST_NAMED = 3
"""So many are named in a message."""


def read_touches(lab: RunningLab, begin_ns: int, elapsed_s: float) -> list[RunEvent]:
    """Return what others did to the lab in the `elapsed_s` seconds from `begin_ns` (CLOCK_MONOTONIC) on."""
    ago_s = (time.monotonic_ns() - begin_ns) / 1e9
    return touches_since(lab, datetime.now(UTC) - timedelta(seconds=ago_s), elapsed_s)


def touches_since(lab: RunningLab, begin: datetime, elapsed_s: float) -> list[RunEvent]:
    """Return what others did to the lab from `begin` on, for `elapsed_s` seconds."""
    own, found = told_by(), []
    for event in commanded_changes(lab, begin):
        at_s = (datetime.fromisoformat(event.time) - begin).total_seconds()
        if event.by != own and event.kind != _TOLD_TWICE and at_s <= elapsed_s:
            found.append(_touch(event, at_s))
    return found


def _touch(event: LabEvent, at_s: float) -> RunEvent:
    place = f"{event.node}:{event.subject}" if event.kind.startswith("link-") else event.node or event.subject
    what = " ".join(filter(None, (event.kind, "" if event.subject in place else event.subject, event.detail)))
    return RunEvent(at_s=round(at_s, 3), kind=TOUCHED, target=place, detail=f"{what} by {event.by}")


def check_touches(touches: Sequence[RunEvent]) -> Iterator[Check]:
    """Judge whether the lab was the scenario's alone: what others change of it, no expectation knows."""
    named = first_few([f"{one.target} at {one.at_s:.1f} s: {one.detail}" for one in touches], MOST_NAMED, "; ")
    yield Check.at_most(
        name="untouched",
        title="Nobody else changed the lab meanwhile",
        value=len(touches),
        limit=0,
        message=f"the run was touched: {named}" if touches else "nobody else changed the lab meanwhile",
    )
