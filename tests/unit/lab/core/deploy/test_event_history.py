"""The events of a lab that are past: those that files and logs keep, in their order."""

import datetime
import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from testbed.base.errors import TestbedError
from testbed.cli.labs.events import _begin, _writer
from testbed.cli.options import Format
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.kept_events import keep_event
from testbed.lab.core.deploy.watch.event_history import past_events
from testbed.lab.core.deploy.watch.events import LabEvent

NODE = "s1"
LONG_AGO = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
LOG = """2026/11/28 21:40:11.500 BGP: [AAAAA-BBBBB] bgpd 8.4.4 starting
2026/11/28 21:40:12.500 BGP: [N9HHH-F8H1M] %ADJCHANGE: neighbor uplink1(p1-spine1) in vrf default Up
2026/11/28 21:40:14.500 BGP: [N9HHH-F8H1M] %ADJCHANGE: neighbor uplink1(p1-spine1) in vrf default Down Interface down
not a time at all, %ADJCHANGE: neighbor uplink1(p1-spine1) in vrf default Up
"""


def event(second: float, kind: str) -> LabEvent:
    at = datetime.datetime(2026, 11, 28, 21, 40).astimezone(datetime.UTC) + datetime.timedelta(seconds=second)
    return LabEvent(time=at.isoformat(timespec="milliseconds"), lab="lab", node=NODE, kind=kind, subject="uplink1")


@pytest.fixture
def lab(tmp_path: Path) -> RunningLab:
    (tmp_path / "state").mkdir()
    (tmp_path / NODE).mkdir()
    (tmp_path / NODE / "bgpd.log").write_text(LOG)
    lines = [json.dumps(asdict(event(13, "pfc-storm-began"))), json.dumps(asdict(event(9, "link-set")))]
    (tmp_path / "state" / "pause-events.jsonl").write_text(f"{lines[0]}\n")
    (tmp_path / "state" / "link-events.jsonl").write_text(f'{lines[1]}\n{{"time": "20')
    (tmp_path / "state" / "journal.jsonl").write_text('{"node": "no event"}\n')
    found: Any = SimpleNamespace(
        name="lab",
        state_directory=tmp_path / "state",
        record=SimpleNamespace(created=event(1, "").time),
        plan=SimpleNamespace(speakers=[SimpleNamespace(node=NODE), SimpleNamespace(node="silent")]),
        model=SimpleNamespace(nodes=[SimpleNamespace(name=NODE)]),
        run_directory=lambda node: tmp_path / node,
    )
    return cast(RunningLab, found)


def test_all_that_is_kept_is_told_in_its_order(lab: RunningLab) -> None:
    found = past_events(lab, LONG_AGO)
    assert [event.kind for event in found] == ["lab-deployed", "link-set", "bgp-up", "pfc-storm-began", "bgp-down"]
    assert found[-1].detail == "Interface down" and found[-1].subject == "uplink1"
    assert found[2].time == event(12.5, "").time, "the log has this machine's clock, and events have UTC"


def test_what_was_before_is_left_out(lab: RunningLab) -> None:
    since = datetime.datetime.fromisoformat(event(12.6, "").time)
    assert [event.kind for event in past_events(lab, since)] == ["pfc-storm-began", "bgp-down"]


def test_what_a_verb_keeps_is_found_again(lab: RunningLab) -> None:
    keep_event(lab.state_directory, "lab", NODE, "power-off", NODE)
    assert past_events(lab, LONG_AGO)[-1].kind != "power-off", "it stands behind a line that was cut short"
    (lab.state_directory / "link-events.jsonl").unlink()
    keep_event(lab.state_directory, "lab", NODE, "power-off", NODE)
    assert past_events(lab, LONG_AGO)[-1].kind == "power-off"


@pytest.mark.parametrize(("text", "seconds"), [("10m", 600), ("90s", 90), ("2h", 7200)])
def test_a_span_is_counted_back_from_now(text: str, seconds: int) -> None:
    began = _begin(text)
    ago = datetime.datetime.now(datetime.UTC) - began
    assert seconds <= ago.total_seconds() < seconds + 60


def test_a_time_is_of_this_machines_clock() -> None:
    assert _begin("2026-11-28T21:40") == datetime.datetime(2026, 11, 28, 21, 40).astimezone(datetime.UTC)
    assert _begin("2026-11-28T21:40+00:00") == datetime.datetime(2026, 11, 28, 21, 40, tzinfo=datetime.UTC)
    assert _begin("deploy") < LONG_AGO


@pytest.mark.parametrize("text", ["soon", "10", "10 moons", "99999999999h", ""])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(TestbedError, match="neither a span of time nor a time") as raised:
        _begin(text)
    assert "10m" in (raised.value.hint or "")


def test_formats(lab: RunningLab, capsys: pytest.CaptureFixture[str]) -> None:
    shown = {}
    for form in Format:
        write = _writer(lab, form)
        write(event(12.5, "link-set"))
        shown[form] = capsys.readouterr().out.splitlines()
    assert json.loads(shown[Format.JSON][0])["kind"] == "link-set"
    assert shown[Format.CSV][0] == "time,lab,node,kind,subject,detail,by"
    assert shown[Format.TABLE][0].split() == ["time", "node", "kind", "subject", "detail", "by"]
    assert shown[Format.TABLE][1].split()[2:] == [NODE, "link-set", "uplink1"]
