"""The events of a change: when it begins, what it did, and that it was undone."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from testbed.lab.core.deploy.changing.telling.events import tell_begin, tell_changes, tell_undone
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.kept_events import CHANGES_FILE
from testbed.lab.core.plan.changes import ChangeRow, Effect

ROWS = (
    ChangeRow(effect=Effect.MADE, node="h3", kind="host", what="host h3"),
    ChangeRow(effect=Effect.MADE, node="h3", kind="address", what="address 10.0.0.3 at h3:eth1", part_of="host h3"),
    ChangeRow(effect=Effect.CHANGED, node="s1", kind="port", what="port s1:eth1", detail="lab rate 1 -> 2"),
)


def told(directory: Path) -> list[tuple[str, str, str, str]]:
    events = [json.loads(line) for line in (directory / CHANGES_FILE).read_text().splitlines()]
    assert {event["lab"] for event in events} == {"one"} and len({event["time"] for event in events}) <= 3
    return [(event["kind"], event["node"], event["subject"], event["detail"]) for event in events]


def lab_in(directory: Path) -> RunningLab:
    found: Any = SimpleNamespace(name="one", state_directory=directory)
    return cast(RunningLab, found)


def test_each_thing_is_told_with_what_comes_with_it(tmp_path: Path) -> None:
    lab = lab_in(tmp_path)
    tell_begin(lab, ROWS)
    tell_changes(lab, ROWS)
    assert told(tmp_path) == [
        ("lab-changing", "", "one", "1 made, 1 changed"),
        ("thing-made", "h3", "host h3", ""),
        ("thing-changed", "s1", "port s1:eth1", "lab rate 1 -> 2"),
        ("lab-changed", "", "one", "1 made, 1 changed"),
    ]


def test_what_was_undone_has_no_things(tmp_path: Path) -> None:
    lab = lab_in(tmp_path)
    tell_begin(lab, ROWS)
    tell_undone(lab)
    assert [event[0] for event in told(tmp_path)] == ["lab-changing", "lab-changed"]
    assert told(tmp_path)[-1][3] == "undone: it is as it was"


def test_a_disk_that_is_full_loses_events_and_nothing_else(tmp_path: Path) -> None:
    tell_changes(lab_in(tmp_path / "nowhere"), ROWS)
