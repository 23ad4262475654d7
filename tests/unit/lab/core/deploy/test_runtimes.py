"""Runtimes by name, and the journal's account of them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.journal import JOURNAL_NAME, Journal
from testbed.lab.core.deploy.records.lab_record import LabRecord
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.feature import runtimes
from testbed.lab.core.model.containers import CONTAINER_RUNTIMES
from testbed.lab.core.schema.load import load_topology_text
from testbed.lab.features.containers.runtimes.docker import LiveContainers


def test_every_runtime_that_a_file_may_name_is_there() -> None:
    assert tuple(runtimes()) == tuple(CONTAINER_RUNTIMES)


def test_a_journal_tells_the_containers_of_each_runtime_apart(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for runtime in ("docker", "other"):
        journal.containers(runtime, f"unix:///{runtime}", f"lab-{runtime}")
    journal.started_containers("other", {"h1": "abc"}, {"h1": "10.3"})
    found = journal.read().containers
    assert (found["docker"].ids, found["other"].ids, found["other"].engine) == ({}, {"h1": "abc"}, "unix:///other")


def test_a_journal_from_before_there_was_a_choice_is_about_docker(tmp_path: Path) -> None:
    entries = [
        {"kind": "containers", "engine": "unix:///x", "deployment": "lab-1"},
        {"kind": "container", "ids": {"h1": "abc"}, "frr": {"h1": "8.4"}},
    ]
    (tmp_path / JOURNAL_NAME).write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    live = runtimes()["docker"].live(Journal(tmp_path).read())
    assert isinstance(live, LiveContainers)
    assert (live.container_id("h1"), live.frr_version("h1")) == ("abc", "8.4")


def test_a_container_that_was_not_made_is_told_by_the_frr_that_is_there(tmp_path: Path) -> None:
    """A change that was cut short has a record in which no node has the machine's FRR any more."""
    keys: dict[str, Any] = {"version": "1", "created": "", "source": "", "directory": "", "model": {}}
    was, state = LabRecord(name="lab", slot=0, k=1.0, frr="8.4.4", **keys), StateDirectory(tmp_path, tmp_path)
    state.write(was)
    begun = RunningLab(replace(was, frr=""), state)
    text = "name: lab\nfabric: {design: single-switch, hosts: 2}\ntopology: {kinds: {switch: {runtime: docker}}}\n"
    begun.__dict__["model"] = load_topology_text(text, file="lab.yml")
    (switch,) = (node.name for node in begun.model.nodes if node.runtime == "docker")
    assert begun.frr_version(switch) == "" and begun.configured_frr(switch) == "8.4.4"
    journal = Journal(begun.state_directory)
    journal.containers("docker", "unix:///x", "lab-1")
    journal.started_containers("docker", {switch: "abc"}, {switch: "10.3"})
    fresh = RunningLab(begun.record, state)
    fresh.__dict__["model"] = begun.model
    assert fresh.configured_frr(switch) == "10.3"
