"""The changes of a lab as events, for those who watch it (`testbed events`) and those who ask later."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.daemons.kit.events import EventLog
from testbed.lab.core.deploy.changing.telling.grouping import summary
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.kept_events import CHANGES_FILE, LAB_CHANGED, told_by
from testbed.lab.core.plan.changes import ChangeRow


def tell_begin(lab: RunningLab, rows: Sequence[ChangeRow]) -> None:
    """Tell that a change of a lab begins, and how much of it there is."""
    _log(lab).write("lab-changing", subject=lab.name, detail=summary(rows))


def tell_changes(lab: RunningLab, rows: Sequence[ChangeRow]) -> None:
    """Tell each thing that a change has made, changed or removed, once all of it is done.

    What comes with another thing, such as the addresses of a new host, is told with that.
    """
    things = [(f"thing-{row.effect}", row.node, row.what, row.detail) for row in rows if not row.part_of]
    _log(lab).write_all([*things, (LAB_CHANGED, "", lab.name, summary(rows))])


def tell_undone(lab: RunningLab) -> None:
    """Tell that a change that began was undone."""
    _log(lab).write(LAB_CHANGED, subject=lab.name, detail="undone: it is as it was")


def _log(lab: RunningLab) -> EventLog:
    return EventLog(lab.state_directory / CHANGES_FILE, lab.name, told_by())
