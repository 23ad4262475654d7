"""Runtimes by name, and the journal's account of them."""

import json
from pathlib import Path

from testbed.lab.core.deploy.records.journal import JOURNAL_NAME, Journal
from testbed.lab.core.feature import runtimes
from testbed.lab.core.model.containers import CONTAINER_RUNTIMES
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
