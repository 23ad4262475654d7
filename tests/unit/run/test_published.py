"""A run that goes on tells of itself in a file, which other processes read, and which is gone with it."""

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.run.schema.file import load_scenario_text
from testbed.run.sweep.points import Sweep, plan_points
from testbed.run.sweep.progress import Phase, Progress, RankBehind
from testbed.run.sweep.published import DIRECTORY, PublishedRun, running

SCENARIO = """name: sweep
topology: {file: pod.yml}
workload: {kind: incast, bytes: 1MB}
matrix: {workload.senders: [1, 2]}
faults: [{at: 100ms, until: 1s, link: "p1-s1-h1:rail1", down: true}]
repeat: {runs: 3}
"""


def sweep() -> Sweep:
    scenario = load_scenario_text(SCENARIO, file="s.yml").scenario
    found: Any = SimpleNamespace(scenario=scenario, points=plan_points(scenario))
    return cast(Sweep, found)


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    return StateDirectory(tmp_path / "state", tmp_path / "run")


def traffic(share: float, **more: Any) -> Progress:
    return Progress(phase=Phase.TRAFFIC, run=1, runs=3, done=share, total=1.0, point=2, points=2, lab="pod", **more)


def test_what_it_hears_it_tells_and_hands_on(state: StateDirectory, tmp_path: Path) -> None:
    heard: list[Progress] = []
    with PublishedRun(sweep(), tmp_path / "results", heard.append, run_directory=state.run) as told:
        (before,) = running(state)
        assert (before["scenario"], before["lab"], before["pid"]) == ("sweep", "", os.getpid())
        assert [point["state"] for point in before["points"]] == ["waiting", "waiting"]
        told(Progress(phase=Phase.LAB, run=0, runs=0, done=0, total=0, point=2, points=2))
        told(traffic(0.0))
        told._due_s = 0.0
        told(traffic(0.25, behind=[RankBehind(host="h1", share=0.1, step=7, label="ring.3")]))
        (now,) = running(state)
        assert (now["lab"], now["phase"], now["done"], now["point"]) == ("pod", "traffic", 0.25, 2)
        assert [point["state"] for point in now["points"]] == ["waiting", "running"]
        assert now["behind"][0]["label"] == "ring.3" and now["traffic_began"] > now["started"] - 1
        (fault,) = now["faults"]
        assert (fault["at_s"], fault["until_s"], fault["kind"]) == (0.1, 1.0, "link-down")
        assert fault["target"] == "p1-s1-h1:rail1"
        told(Progress(phase=Phase.RUN, run=1, runs=3, done=1, total=3, point=2, points=2))
        (now,) = running(state)
        assert now["points"][1]["done"] == 1
    assert len(heard) == 4
    assert list(running(state)) == [] and not state.run.exists(), "nothing of it is left"


def test_it_is_written_twice_a_second_at_most(state: StateDirectory) -> None:
    with PublishedRun(sweep(), None, lambda _: None, run_directory=state.run) as told:
        told(traffic(0.1))
        told(traffic(0.2))
        (now,) = running(state)
        assert now["done"] == 0.0, "what changes all the time waits for its turn"


def test_the_file_of_a_run_that_was_killed_is_no_run(state: StateDirectory) -> None:
    with PublishedRun(sweep(), None, lambda _: None, run_directory=state.run):
        path = state.run / DIRECTORY / f"{os.getpid()}.json"
        document = json.loads(path.read_text())
        path.write_text(json.dumps(document | {"begun": document["begun"] + 1}))
        assert list(running(state)) == [], "another process has its number now"
        path.write_text(json.dumps(document | {"pid": 2**22 + 1}))
        assert list(running(state)) == []
        for broken in ("", "[]", "{", json.dumps(document | {"schema": 99})):
            path.write_text(broken)
            assert list(running(state)) == []


def test_where_it_cannot_be_written_nobody_is_told(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file, and no directory")
    heard: list[Progress] = []
    with PublishedRun(sweep(), None, heard.append, run_directory=tmp_path / "run") as told:
        told(traffic(0.5))
    assert len(heard) == 1
