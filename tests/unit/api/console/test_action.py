"""Actions: what a page asks for is checked, shown as a command line, confirmed, kept as an event, and done."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from testbed.api.console.action import ActionRequest, InputField, PageAction, Undo, answer_action, read_request
from testbed.api.console.answers import RefusedRequest
from testbed.api.console.console import Console, ConsoleSettings
from testbed.api.console.sources.source import Source
from testbed.lab.core.deploy.records.state import StateDirectory

DONE: list[tuple[str, ...]] = []


def _perform(request: ActionRequest) -> object:
    DONE.append(request.targets)
    return {"links": len(request.targets)}


DOWN = PageAction(
    name="link-down",
    title="Take links down",
    on=("port",),
    many=True,
    fields=(
        InputField(name="both", title="Both ends", kind="flag"),
        InputField(name="loss", title="Loss", example="1%"),
        InputField(name="times", title="Times", kind="number"),
        InputField(name="how", title="How", kind="choice", choices=("hard", "soft")),
    ),
    harms="Traffic over these links is lost.",
    command=lambda request: [["link", "down", target, "-n", request.lab] for target in request.targets],
    perform=_perform,
    undo=lambda request: Undo(action="link-up"),
)


class FakeSource:
    live = True
    name = "demo"


def console(tmp_path: Path, *, write: bool) -> Console:
    async def make() -> Console:
        return Console(
            ConsoleSettings(roots=(tmp_path,), write=write), StateDirectory(tmp_path / "state", tmp_path / "run")
        )

    (tmp_path / "state" / "labs" / "demo").mkdir(parents=True, exist_ok=True)
    return asyncio.run(make())


def do(action: PageAction, tmp_path: Path, body: Mapping[str, Any], *, write: bool = True) -> dict[str, Any]:
    made = console(tmp_path, write=write)
    request = read_request(action, made, cast(Source, FakeSource()), body)
    return answer_action(action, request, body)


def test_a_dry_one_shows_its_command_and_does_nothing_also_where_one_only_looks(tmp_path: Path) -> None:
    DONE.clear()
    said = do(DOWN, tmp_path, {"targets": ["h1:eth0"], "dry": True}, write=False)
    assert said == {
        "command": ["testbed link down h1:eth0 -n demo"],
        "harms": "Traffic over these links is lost.",
        "undo": True,
    }
    assert DONE == []


def test_a_console_that_only_looks_does_nothing(tmp_path: Path) -> None:
    DONE.clear()
    with pytest.raises(RefusedRequest) as refused:
        do(DOWN, tmp_path, {"targets": ["h1:eth0"], "confirmed": True}, write=False)
    assert (refused.value.status, refused.value.code) == (403, "read-only")
    assert DONE == []


def test_what_harms_is_asked_first(tmp_path: Path) -> None:
    DONE.clear()
    with pytest.raises(RefusedRequest) as refused:
        do(DOWN, tmp_path, {"targets": ["h1:eth0"]})
    assert (refused.value.status, refused.value.code) == (409, "confirm")
    with pytest.raises(RefusedRequest):
        do(DOWN, tmp_path, {"targets": ["h1:eth0"], "confirmed": "true"})
    assert DONE == []


def test_what_is_done_is_kept_as_an_event_with_its_command(tmp_path: Path) -> None:
    DONE.clear()
    said = do(DOWN, tmp_path, {"targets": ["h1:eth0", "h2:eth0"], "confirmed": True})
    assert said["result"] == {"links": 2}
    assert said["undo"] == {"action": "link-up", "targets": ("h1:eth0", "h2:eth0"), "values": {}}
    assert DONE == [("h1:eth0", "h2:eth0")]
    (line,) = (tmp_path / "state/labs/demo/console-events.jsonl").read_text().splitlines()
    event = json.loads(line)
    assert event["kind"] == "console-action"
    assert event["detail"] == "testbed link down h1:eth0 -n demo; testbed link down h2:eth0 -n demo"


@pytest.mark.parametrize(
    "body",
    [
        {"targets": []},
        {"targets": "h1:eth0"},
        {"targets": [1]},
        {"targets": ["--reconfigure"]},
        {"targets": ["h1 -n other"]},
        {"targets": ["h1\n"]},
        {"targets": [""]},
        {"targets": ["x" * 300]},
        {"targets": ["h"] * 300},
        {"targets": ["h1"], "values": []},
        {"targets": ["h1"], "values": {"unknown": 1}},
        {"targets": ["h1"], "values": {"both": "yes"}},
        {"targets": ["h1"], "values": {"times": "3"}},
        {"targets": ["h1"], "values": {"times": True}},
        {"targets": ["h1"], "values": {"loss": "--on=ssh://evil"}},
        {"targets": ["h1"], "values": {"loss": "1%\n2%"}},
        {"targets": ["h1"], "values": {"loss": "x" * 5_000}},
        {"targets": ["h1"], "values": {"how": "other"}},
    ],
)
def test_what_a_page_may_not_ask_for_is_refused(tmp_path: Path, body: dict[str, Any]) -> None:
    DONE.clear()
    with pytest.raises(RefusedRequest):
        do(DOWN, tmp_path, {**body, "confirmed": True})
    assert DONE == []


def test_one_at_a_time_and_values_that_are_needed(tmp_path: Path) -> None:
    one = PageAction(name="one", title="One", on=("node",), command=lambda _: [["x"]], perform=_perform)
    with pytest.raises(RefusedRequest, match="one at a time"):
        do(one, tmp_path, {"targets": ["a", "b"]})
    needed = PageAction(
        name="n", title="N", fields=(InputField(name="v", title="V", required=True),), command=lambda _: [["x"]]
    )
    with pytest.raises(RefusedRequest, match="a value is needed"):
        do(needed, tmp_path, {"values": {"v": ""}})
