"""A line of `list` says the same whether it comes from the records alone or from the whole lab."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.base.linux import namespaces, processes
from testbed.base.linux.processes import Process
from testbed.lab.core.deploy import listing
from testbed.lab.core.deploy.listing import ListedLab, listed_labs
from testbed.lab.core.deploy.records.journal import Journal, LabState
from testbed.lab.core.deploy.records.lab_record import parse_record
from testbed.lab.core.deploy.records.state import StateDirectory

RECORD = Path(__file__).parents[5] / "tests/data/lab_records/qos-overrides.json"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateDirectory:
    """One lab, with two daemons on one of its switches, all of whose namespaces are there."""
    state = StateDirectory(tmp_path / "state", tmp_path / "run")
    content = RECORD.read_text()
    record = parse_record(content, json.loads(content)["name"])
    switch = next(node["name"] for node in record.model["nodes"] if node["kind"] == "switch")
    state.write(replace(record, daemons={switch: ("zebra", "bgpd")}))
    journal = Journal(state.lab_directory(record.name))
    journal.state(LabState.RUNNING)
    journal.nodes({switch: 7})
    monkeypatch.setattr(namespaces, "published", list)
    return state


def found(*commands: str) -> list[Process]:
    return [Process(pid=number, identity=7, command=command) for number, command in enumerate(commands)]


@pytest.mark.parametrize(
    ("commands", "said"), [(("zebra", "bgpd", "sh"), "running"), (("bgpd",), "degraded"), ((), "degraded")]
)
def test_a_lab_is_degraded_without_its_daemons(
    commands: tuple[str, ...], said: str, state: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "processes_in", lambda _: found(*commands))
    monkeypatch.setattr(listing, "_from_whole_lab", None)
    (line,) = listed_labs(state)
    assert line.state == said


def test_both_ways_say_the_same_of_a_lab(state: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "processes_in", lambda _: [])
    (short,) = listed_labs(state)
    (name,) = state.names()
    (state.lab_directory(name) / "links.json").write_text('{"schema": 1, "changes": {}, "classes": {}}')
    (whole,) = listed_labs(state)
    assert replace(short, state="") == replace(whole, state="")


def test_a_record_that_cannot_be_read_is_a_name_alone(state: StateDirectory) -> None:
    (name,) = state.names()
    (state.lab_directory(name) / "lab.json").write_text("{")
    assert list(listed_labs(state)) == [ListedLab(name=name)]
