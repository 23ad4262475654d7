"""Exercises: every shipped one can be started, judged and solved as far as that can be known without a lab."""

import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click
import msgspec
import pytest
import yaml

from testbed.api.exercises import attempt as attempts
from testbed.api.exercises.attempt import NOTE, Attempt, AttemptNote, exercise_lab, find_attempt
from testbed.api.exercises.exercise import ExerciseFile, Goal, exercise_names, load_exercise
from testbed.base.errors import LabNotFound, TestbedError
from testbed.base.program_errors import ProgramError
from testbed.base.typed_json import convert
from testbed.cli.app import app
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.deploy.watch.check import CheckReport, CheckResult, CheckStatus
from testbed.lab.core.plan.lab import plan_lab
from testbed.run.sweeps import read_sweep_for

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs/learn/exercises.md"
MINIMAL = {
    "title": "t",
    "story": "s",
    "topology": "name: x",
    "goals": [{"symptom": "s", "run": "list"}],
    "hints": ["h"],
    "solution": {"commands": ["list"], "explanation": "e"},
}


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    return StateDirectory(tmp_path / "state", tmp_path / "run")


def command_lines(file: ExerciseFile) -> Iterator[str]:
    yield from file.breaks
    yield from (goal.run for goal in file.goals if goal.run)
    yield from file.solution.commands


def test_there_are_twelve() -> None:
    assert len(exercise_names()) >= 12


@pytest.mark.parametrize("name", exercise_names())
def test_its_lab_can_be_planned_and_its_scenarios_run_on_it(name: str, state: StateDirectory) -> None:
    exercise = load_exercise(name)
    lab = exercise_lab(exercise, "learner", state)
    assert lab.name == "learner"
    assert lab.written is not None and lab.written.file == str(state.lab_directory("learner") / "topology.yml")
    assert len(lab.nodes) <= 16, "an exercise is up in seconds"
    plan_lab(lab, k=1000)
    for goal in exercise.file.goals:
        if goal.scenario is not None:
            data = {"name": name, "topology": {"file": "topology.yml"}, **goal.scenario}
            assert read_sweep_for(lab, yaml.safe_dump(data)).scenario.expect


@pytest.mark.parametrize("name", exercise_names())
def test_its_command_lines_are_ones_of_testbed_and_name_nodes_and_ports_that_there_are(
    name: str, state: StateDirectory
) -> None:
    file = load_exercise(name).file
    lab = exercise_lab(load_exercise(name), "learner", state)
    ports = {f"{end.node}:{end.interface}" for link in lab.links for end in (link.a, link.b)}
    nodes = {node.name for node in lab.nodes}
    for line in command_lines(file):
        command: click.Command = app
        words = shlex.split(line)
        while isinstance(command, click.Group):
            found = command.get_command(click.Context(command), words.pop(0))
            assert found is not None, line
            command = found
        named = command.make_context("x", list(words)).params
        assert named.get("node") is None or named["node"] in nodes, line
        assert named.get("port") is None or named["port"] in ports, line


@pytest.mark.process
@pytest.mark.parametrize(
    ("vtysh", "met"),
    [
        ("echo 'C>* 10.13.0.0/24 is directly connected, web'", [True, True]),
        ("echo 'S>* 10.12.0.0/24 [1/0] via 10.12.0.1, wire'", [False, True]),
        ("echo 'S>* 10.11.0.0/24 [1/0] via 10.11.0.1, wire'", [True, False]),
        ("echo 'Exiting: failed to connect to any daemons.' >&2; exit 1", [False, False]),
    ],
    ids=["neither", "red has blue's", "blue has red's", "no answer"],
)
def test_a_leaf_that_does_not_tell_its_routes_has_not_been_seen_without_a_leak(
    vtysh: str, met: list[bool], tmp_path: Path
) -> None:
    shell = tmp_path / "vtysh"
    shell.write_text(f"#!/bin/sh\n{vtysh}\n")
    shell.chmod(0o755)
    found = []
    for goal in load_exercise("tenant-leak").file.goals:
        if "vtysh" in goal.run:
            words = shlex.split(goal.run)[3:]
            done = subprocess.run(words, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=False)
            found.append(done.returncode == 0)
    assert found == met


@pytest.mark.parametrize("name", exercise_names())
def test_the_page_of_exercises_has_it(name: str) -> None:
    assert f"| `{name}` | {load_exercise(name).file.title} |" in GUIDE.read_text()


def test_a_name_that_no_exercise_has_is_answered_with_its_like() -> None:
    with pytest.raises(TestbedError, match="there is no exercise 'mtu-hol'") as caught:
        load_exercise("mtu-hol")
    assert caught.value.hint == "did you mean mtu-hole?"


@pytest.mark.parametrize("name", ["../exercise", "", "shipped/wrong-as"])
def test_a_name_that_is_a_path_is_no_exercise(name: str) -> None:
    with pytest.raises(TestbedError, match="there is no exercise"):
        load_exercise(name)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"stroy": "x"}, "unknown field `stroy`"),
        ({"goals": []}, "length >= 1"),
        ({"hints": []}, "length >= 1"),
        ({"goals": [{"symptom": "s"}]}, "one of check, run and scenario"),
        ({"goals": [{"symptom": "s", "run": "list", "check": ["rails"]}]}, "one of check, run and scenario"),
        ({"goals": [{"symptom": "s", "runs": "list"}]}, "unknown field `runs`"),
    ],
)
def test_a_file_that_is_wrong_is_refused(change: dict[str, object], told: str) -> None:
    convert(ExerciseFile, MINIMAL, "")
    with pytest.raises(ProgramError, match=told):
        convert(ExerciseFile, MINIMAL | change, "")


def attempt_at(state: StateDirectory, **changes: object) -> Attempt:
    """An attempt as it is kept once its lab is up."""
    file: ExerciseFile = convert(ExerciseFile, MINIMAL | {"hints": ["one", "two"]} | changes, "")
    exercise = replace(load_exercise("wrong-as"), file=file)
    state.lab_directory("learner").mkdir(parents=True)
    return Attempt(exercise, "learner", state, AttemptNote(exercise="wrong-as"))


def test_hints_come_in_steps_and_the_last_one_again(state: StateDirectory) -> None:
    attempt = attempt_at(state)
    said = []
    for _ in range(3):
        attempt, hint = attempt.next_hint()
        said.append((hint, msgspec.json.decode((state.lab_directory("learner") / NOTE).read_bytes())["hints"]))
    assert said == [("one", 1), ("two", 2), ("two", 2)]
    assert Attempt.open("learner", state).note.hints == 2
    assert find_attempt("wrong-as", state) == ("learner", AttemptNote(exercise="wrong-as", hints=2))
    assert find_attempt("mtu-hole", state) is None


def test_the_name_of_the_lab_stands_before_a_command_in_a_node(state: StateDirectory) -> None:
    attempt = attempt_at(state)
    assert attempt._words("exec h1 -- ping -c 1 h2") == ["exec", "h1", "-n", "learner", "--", "ping", "-c", "1", "h2"]
    assert attempt._words("link reset a:b") == ["link", "reset", "a:b", "-n", "learner"]


@pytest.mark.process
def test_a_command_that_fails_is_told_with_what_it_said(state: StateDirectory) -> None:
    attempt = attempt_at(state, solution={"commands": ["link reset nowhere:eth1"], "explanation": "e"})
    told: list[str] = []
    with pytest.raises(attempts.StepFailed, match=r"link reset nowhere:eth1` ended with 3: "):
        attempt.solve(told.append)
    assert told == ["./lab link reset nowhere:eth1"]


def test_a_command_that_fails_is_told_by_its_message_and_not_by_its_hint(
    state: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = subprocess.CompletedProcess([], 3, "", "error: there is no port x\n  hint: one of y, z\n")
    monkeypatch.setattr(Attempt, "_started", lambda *_: done)
    with pytest.raises(attempts.StepFailed) as caught:
        attempt_at(state).solve()
    assert caught.value.message == "`./lab list` ended with 3: error: there is no port x"


def test_what_cannot_be_read_of_an_exercise_says_how_to_go_on(state: StateDirectory) -> None:
    attempt_at(state)
    (state.lab_directory("learner") / NOTE).write_text('{"exercise": 1}')
    with pytest.raises(TestbedError, match="the exercise learner cannot be read") as caught:
        Attempt.open("learner", state)
    assert caught.value.hint == "`testbed destroy -n learner` removes it"


@pytest.mark.parametrize(
    ("passes", "waits", "tests"),
    [
        ([True], [], 1),
        ([False, False, True], [1.0, 1.0], 3),
        ([False, False], [attempts.SETTLES_S + 1], 2),
        ([False, False, False], [1.0, attempts.SETTLES_S], 3),
    ],
)
def test_what_goals_name_is_tested_again_as_the_lab_changes(
    passes: list[bool], waits: list[float], tests: int, state: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By time: nothing else of the lab is tested, and what never comes right is tested at the end once more."""
    now_s, looked = [100.0], list[set[str]]()

    class Watch:
        def __init__(self, lab: object) -> None: ...
        def close(self) -> None: ...
        def wait(self, timeout_s: float) -> bool:
            assert timeout_s <= attempts.SETTLES_S
            now_s[0] += waits.pop(0)
            return True

    def check_lab(lab: object, only: set[str]) -> CheckReport:
        looked.append(only)
        status = CheckStatus.PASS if passes.pop(0) else CheckStatus.FAIL
        return CheckReport(
            lab="x", results=tuple(CheckResult(name=name, status=status, count=1, detail="") for name in sorted(only))
        )

    monkeypatch.setattr(attempts, "ChangeWatch", Watch)
    monkeypatch.setattr(attempts, "check_lab", check_lab)
    monkeypatch.setattr(attempts, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    attempt = Attempt(load_exercise("silent-uplink"), "x", state, AttemptNote(exercise="silent-uplink"))
    attempt._checked(cast(Any, None))
    assert looked == [{"rails", "black holes"}] * tests and not passes and not waits


@pytest.mark.process
def test_a_command_whose_exit_code_is_another_is_a_symptom(state: StateDirectory) -> None:
    attempt = attempt_at(state)
    assert attempt._failed_run(Goal(symptom="s", run="exec h1 -- true", exit=3)) is None, "there is no such lab"
    assert attempt._failed_run(Goal(symptom="s", run="exec h1 -- true")) == ["./lab exec h1 -- true ends with 3"]


def test_a_lab_that_is_no_exercise_is_left_alone(state: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    state.lab_directory("learner").mkdir(parents=True)
    monkeypatch.setattr(StateDirectory, "exists", lambda *_: True)
    monkeypatch.setattr(attempts, "destroy_lab", lambda *_: pytest.fail("it was destroyed"))
    monkeypatch.setattr(attempts, "deploy_lab", lambda *_: pytest.fail("something was deployed"))
    with pytest.raises(TestbedError, match="a lab named learner is deployed, and it is no exercise"):
        Attempt.start(load_exercise("wrong-as"), "learner", state)
    with pytest.raises(LabNotFound, match="learner is no exercise"):
        Attempt.open("learner", state)


def test_a_name_that_no_lab_may_have_is_refused(state: StateDirectory) -> None:
    with pytest.raises(TestbedError, match="cannot name a lab"):
        Attempt.start(load_exercise("wrong-as"), "../x", state)
    with pytest.raises(LabNotFound, match="cannot name a lab"):
        Attempt.open("../x", state)
