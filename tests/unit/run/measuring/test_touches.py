"""What others change of a lab while a run measures on it stands in the run's record, and makes it invalid."""

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.kept_events import keep_event, told_by
from testbed.run.measuring.touches import check_touches, read_touches, touches_since

BEGIN = datetime(2026, 11, 29, 4, 30, tzinfo=UTC)
OTHER = "testbed link down p1-s1-h1:rail1 (process 71)"


def kept(kind: str, at_s: float, *, by: str = OTHER, subject: str = "rail1", detail: str = "") -> dict[str, str]:
    time = (BEGIN + timedelta(seconds=at_s)).isoformat(timespec="milliseconds")
    found = {"time": time, "lab": "lab", "node": "p1-s1-h1", "kind": kind, "subject": subject, "detail": detail}
    return found | ({"by": by} if by else {})


def lab_with(directory: Path, *events: dict[str, str]) -> RunningLab:
    (directory / "link-events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    found: Any = SimpleNamespace(name="lab", state_directory=directory)
    return cast(RunningLab, found)


def test_what_another_command_did_meanwhile_is_a_touch(tmp_path: Path) -> None:
    lab = lab_with(tmp_path, kept("link-down", 1.5), kept("power-off", 2.0, subject="p1-s1-h1"))
    first, second = touches_since(lab, BEGIN, 4.0)
    assert (first.at_s, first.kind, first.target) == (1.5, "touched", "p1-s1-h1:rail1")
    assert first.detail == f"link-down by {OTHER}"
    assert second.target == "p1-s1-h1", "of a node that lost its power, the node is meant"


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(kept("link-down", -0.1), id="before"),
        pytest.param(kept("link-down", 4.1), id="afterwards"),
        pytest.param(kept("pfc-storm-began", 1.0, by=""), id="by-nobody"),
        pytest.param(kept("link-set", 1.0, by=told_by()), id="by-the-run-itself"),
        pytest.param(kept("console-action", 1.0), id="asked-of-a-console"),
    ],
)
def test_what_is_no_touch(event: dict[str, str], tmp_path: Path) -> None:
    assert touches_since(lab_with(tmp_path, event), BEGIN, 4.0) == []


def test_times_count_from_the_begin_of_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testbed.lab.core.deploy.records.kept_events.told_by", lambda: OTHER)
    lab = lab_with(tmp_path)
    keep_event(tmp_path, "lab", "p1-s1-h1", "daemon-killed", "bgpd")
    (found,) = read_touches(lab, time.monotonic_ns() - 2_000_000_000, 60.0)
    assert 1.9 < found.at_s < 3.0
    assert (found.target, found.detail) == ("p1-s1-h1", f"daemon-killed bgpd by {OTHER}")


def test_a_run_that_was_touched_is_not_to_be_trusted(tmp_path: Path) -> None:
    events = [kept("link-set", at_s, detail="loss 0.1") for at_s in (1.0, 2.0, 3.0, 3.5)]
    (check,) = check_touches(touches_since(lab_with(tmp_path, *events), BEGIN, 4.0))
    assert not check.ok and check.value == 4
    assert check.message.startswith("the run was touched: p1-s1-h1:rail1 at 1.0 s: link-set loss 0.1 by testbed link")
    assert check.message.endswith("and 1 more")
    (check,) = check_touches([])
    assert check.ok
