"""The events of a lab that are past, as far as something keeps them: whoever watched a lab has been told of more.

Kept are what the pause agent and the keeper of an overlay wrote down, the sessions in the logs of bgpd since its start,
and the changes of links and of power that testbed has made (`testbed.lab.core.deploy.records.kept_events`). The end of
a process is told to those who watch it, and to nobody else.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator

from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.watch.events import ADJACENCY, LabEvent, session_event

_EVENT_FILES = "*-events.jsonl"
_LOG_TIME = "%Y/%m/%d %H:%M:%S.%f"
"""The time of a line in a log of FRR, of this machine's clock, with `log timestamp precision 3`."""
_LOG_TIME_CHARACTERS = len("2026/11/28 21:40:10.123")


def past_events(lab: RunningLab, since: datetime.datetime) -> list[LabEvent]:
    """The events from `since` on that something keeps, by their time."""
    found = [*_written(lab), *_sessions(lab), _deployed(lab)]
    return sorted((event for event in found if _time(event) >= since), key=_time)


def commanded_changes(lab: RunningLab, since: datetime.datetime) -> list[LabEvent]:
    """The changes from `since` on that commands have made, by their time: those events that say who it was."""
    found = [event for event in _written(lab) if event.by and _time(event) >= since]
    return sorted(found, key=_time)


def _time(event: LabEvent) -> datetime.datetime:
    return datetime.datetime.fromisoformat(event.time)


def _deployed(lab: RunningLab) -> LabEvent:
    return LabEvent(time=lab.record.created, lab=lab.name, node="", kind="lab-deployed", subject=lab.name)


def _written(lab: RunningLab) -> Iterator[LabEvent]:
    """The events that processes and verbs have written to files of the lab's state directory."""
    for path in lab.state_directory.glob(_EVENT_FILES):
        for line in path.read_text(errors="replace").splitlines():
            try:
                event = LabEvent(**json.loads(line))
                _time(event)
            except (ValueError, TypeError):  # the line that is being written
                continue
            yield event


def _sessions(lab: RunningLab) -> Iterator[LabEvent]:
    """The changes of BGP sessions in the logs of bgpd, whose clock is this machine's."""
    for speaker in lab.plan.speakers:
        try:
            lines = (lab.run_directory(speaker.node) / "bgpd.log").read_text(errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            match = ADJACENCY.search(line)
            if match is None:
                continue
            try:
                at = datetime.datetime.strptime(line[:_LOG_TIME_CHARACTERS], _LOG_TIME).astimezone(datetime.UTC)
            except ValueError:
                continue
            yield session_event(lab.name, speaker.node, match, at)
