"""Looking at files in a console that only reads: nothing is changed, and nothing outside of its directories is told."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from testbed.api.console.answers import RefusedRequest
from testbed.api.console.files import StartDirectories
from testbed.api.console.view import ViewRoute
from testbed.api.console.views.labs import VIEW, _check, _diff
from testbed.lab.core.deploy.records.state import StateDirectory

TOPOLOGY = "name: demo\nfabric: {design: rail-optimized, hosts: 1, gpus: 1}\n"
SCENARIO = """name: s
topology: {file: %s}
transport: {kind: tcp}
workload: {kind: incast, senders: 2, bytes: 1MB}
"""


def refuse() -> None:
    raise RefusedRequest(403, "this console only reads", code="read-only")


def call(directory: Path, body: dict[str, Any], only: str | None = None) -> Any:
    files = StartDirectories((directory,))
    settings = SimpleNamespace(only=only)
    return SimpleNamespace(
        console=SimpleNamespace(files=files, settings=settings, require_write=refuse), body=body, query={}, path={}
    )


def route(path: str) -> ViewRoute:
    return next(one for one in VIEW.routes if one.path == path)


def test_check_and_diff_change_nothing_and_are_there_for_all() -> None:
    assert not route("check").changes and not route("diff").changes


def test_a_text_is_looked_at_without_the_right_to_write(tmp_path: Path) -> None:
    found = _check(call(tmp_path, {"text": TOPOLOGY}))
    assert found["valid"] and found["lab"]["hosts"] >= 1
    wrong = _check(call(tmp_path, {"text": TOPOLOGY.replace("hosts", "hots")}))
    assert not wrong["valid"] and wrong["problems"][0]["line"] == 2


def test_a_console_without_a_login_computes_nothing_for_strangers(tmp_path: Path) -> None:
    with pytest.raises(RefusedRequest, match="only reads"):
        _check(call(tmp_path, {"text": TOPOLOGY}, only="demo"))


@pytest.mark.parametrize("written", ["{}/secret.yml", "../secret.yml"])
def test_a_scenario_reads_no_topology_outside_of_the_start_directories(tmp_path: Path, written: str) -> None:
    """What is wrong with a file is told with words of it."""
    (tmp_path / "secret.yml").write_text("password: xyzzy\n")
    inside = tmp_path / "files"
    inside.mkdir()
    (inside / "lab.yml").write_text(TOPOLOGY)
    (inside / "s.yml").write_text(SCENARIO % "lab.yml")
    name = f"files/{'s.yml'}"
    assert _check(call(inside, {"path": name}))["valid"]
    found = _check(call(inside, {"path": name, "text": SCENARIO % written.format(tmp_path)}))
    assert not found["valid"] and "no directory of this console" in found["problems"][0]["message"]
    assert "xyzzy" not in str(found)


@pytest.mark.parametrize(
    ("line", "setting"),
    [
        ("", "topology.file={}/secret.yml"),
        ("", "topology={}/secret.yml"),
        ("", "topology={{file: ../secret.yml}}"),
        ("matrix: {{topology.file: [lab.yml, ../secret.yml]}}", ""),
        ("", "workload={{kind: inference, trace: {}/secret.yml}}"),
    ],
)
def test_nor_does_what_is_set_of_it_or_swept(tmp_path: Path, line: str, setting: str) -> None:
    (tmp_path / "secret.yml").write_text("password: xyzzy\n")
    inside = tmp_path / "files"
    inside.mkdir()
    (inside / "lab.yml").write_text(TOPOLOGY)
    (inside / "s.yml").write_text(SCENARIO % "lab.yml" + line.format())
    found = _check(call(inside, {"path": "files/s.yml", "set": setting.format(tmp_path)}))
    assert not found["valid"] and "no directory of this console" in found["problems"][0]["message"]
    assert "xyzzy" not in str(found)


def test_a_link_leads_out_of_no_directory(tmp_path: Path) -> None:
    (tmp_path / "secret.yml").write_text("password: xyzzy\n")
    inside = tmp_path / "files"
    inside.mkdir()
    (inside / "lab.yml").symlink_to(tmp_path / "secret.yml")
    (inside / "s.yml").write_text(SCENARIO % "lab.yml")
    found = _check(call(inside, {"path": "files/s.yml"}))
    assert "no directory of this console" in found["problems"][0]["message"] and "xyzzy" not in str(found)


def test_there_is_nothing_to_compare_with_a_lab_that_somebody_changes(tmp_path: Path) -> None:
    """What is up of it and what is not depends on the moment."""
    state = StateDirectory(state=tmp_path / "state")
    asked = call(tmp_path, {"lab": "demo", "text": TOPOLOGY})
    asked.console.state = state
    state.lab_directory("demo").mkdir(parents=True)
    with state.lock_lab("demo"):
        found = _diff(asked)
    assert found["valid"] and len(found["changing"]) == 1 and "groups" not in found
    shutil.rmtree(state.lab_directory("demo"))
    with pytest.raises(RefusedRequest, match="there is no lab"):
        _diff(asked)
