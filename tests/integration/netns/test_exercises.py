"""Each exercise is broken as it says, and its own solution mends it; nothing of one is left."""

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from waiting import until

from testbed.api.exercises.attempt import Attempt, StepFailed
from testbed.api.exercises.exercise import exercise_names, load_exercise
from testbed.lab.core.deploy.steps import StepEvent

pytestmark = [pytest.mark.netns, pytest.mark.frr]

QUICK = ("wrong-as",)
"""The exercises that are tried in every run; the others take longer, or measure."""


def _exercises() -> list[Any]:
    return [
        pytest.param(name, id=name, marks=[] if name in QUICK else [pytest.mark.thorough]) for name in exercise_names()
    ]


@pytest.mark.parametrize("name", _exercises())
def test_it_is_broken_until_it_is_solved(name: str, sandbox: Any) -> None:
    lab = sandbox.name()
    file = load_exercise(name).file
    started = sandbox.cli("exercise", "start", name, "-n", lab, "-q")
    assert started.returncode == 0, started.stderr
    assert file.title in started.stdout
    sandbox.note_daemons()

    broken = sandbox.cli("exercise", "check", "-n", lab, "-f", "json")
    assert broken.returncode == 1, broken.stderr
    found = json.loads(broken.stdout)
    assert not found["solved"] and found["exercise"] == name
    (first, *_) = found["goals"]
    assert not first["reached"] and first["findings"] and first["symptom"] == file.goals[0].symptom.strip()

    for number in range(1, len(file.hints) + 1):
        said = sandbox.cli("exercise", "hint", "-n", lab)
        assert said.returncode == 0 and said.stdout.startswith(f"hint {number} of {len(file.hints)}: ")

    solved = sandbox.cli("exercise", "solve", "-n", lab)
    assert solved.returncode == 0, solved.stderr
    assert "./lab " in solved.stdout
    until(lambda: sandbox.cli("exercise", "check", "-n", lab).returncode == 0, "it is solved", timeout_s=60)
    again = sandbox.cli("exercise", "solve", "-n", lab)
    assert again.returncode == 0, f"it explains what is mended already, too: {again.stderr}"
    listed = json.loads(sandbox.cli("exercise", "list", "-f", "json").stdout)
    assert [row["exercise"] for row in listed if row["lab"] == lab] == [name]
    assert sandbox.cli("destroy", "-n", lab).returncode == 0
    assert not any(row["lab"] for row in json.loads(sandbox.cli("exercise", "list", "-f", "json").stdout))


TALKS = "tenants.red.talks_to"
ECN = "qos.classes.rdma.ecn"
HALF_MENDS = {
    "tenant-leak": [("apply", "--set", f"{TALKS}={{blue: [tcp/443]}}", "--allow", "restart")],
    "late-ecn": [
        ("apply", "--set", f"{ECN}={{kmin: 290kB, kmax: 800kB, pmax: 1.0}}", "--allow", "restart"),
        ("apply", "--set", f"{ECN}={{kmin: 60kB, kmax: 800kB, pmax: 1.0}}", "--allow", "restart"),
    ],
}
"""By exercise, what makes its first symptom weaker or hides it, and leaves the fault, one after the other."""


@pytest.mark.thorough
@pytest.mark.parametrize("name", HALF_MENDS)
def test_what_hides_the_symptom_alone_does_not_solve_it(name: str, sandbox: Any) -> None:
    lab = sandbox.name()
    assert sandbox.cli("exercise", "start", name, "-n", lab, "-q").returncode == 0
    sandbox.note_daemons()
    for words in HALF_MENDS[name]:
        done = sandbox.cli(*words, "-n", lab)
        assert done.returncode == 0, done.stderr
        assert sandbox.cli("exercise", "check", "-n", lab).returncode == 1, words


@pytest.mark.thorough
def test_another_one_takes_its_place_and_a_lab_that_is_none_stays(sandbox: Any) -> None:
    lab = sandbox.name()
    assert sandbox.cli("exercise", "start", "wrong-rail", "-n", lab, "-q").returncode == 0
    assert sandbox.cli("exercise", "start", "mtu-hole", "-n", lab, "-q").returncode == 0
    sandbox.note_daemons()
    attempt = Attempt.open(lab, sandbox.state)
    assert attempt.exercise.name == "mtu-hole" and attempt.note.hints == 0
    assert "mtu: 4500" in attempt.topology.read_text()
    assert sandbox.cli("destroy", "-n", lab).returncode == 0

    sandbox.deploy(sandbox.tiny())
    refused = sandbox.cli("exercise", "start", "wrong-rail", "-n", lab)
    assert refused.returncode == 3 and "it is no exercise" in refused.stderr
    assert sandbox.state.read(lab).model["design"] == "rail-optimized"


def test_one_that_cannot_be_broken_or_is_interrupted_leaves_nothing(sandbox: Any) -> None:
    exercise = load_exercise("wrong-rail")
    broken = replace(exercise, file=msgspec.structs.replace(exercise.file, breaks=("exec nobody -- true",)))
    with pytest.raises(StepFailed, match="exec nobody"):
        Attempt.start(broken, sandbox.name(), sandbox.state)
    assert sandbox.leftovers() == []

    def interrupt(event: StepEvent) -> None:
        if event.step == "something breaks":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Attempt.start(exercise, sandbox.name(), sandbox.state, notify=interrupt)
    assert sandbox.leftovers() == []


@pytest.mark.thorough
def test_what_a_learner_does_by_hand_counts(sandbox: Any) -> None:
    """The file of the lab may be changed and applied in place of the solution's command."""
    lab = sandbox.name()
    assert sandbox.cli("exercise", "start", "wrong-as", "-n", lab, "-q").returncode == 0
    sandbox.note_daemons()
    file = Attempt.open(lab, sandbox.state).topology
    file.write_text(file.read_text().replace("leaf2: {group: leaf, asn: 65001}", "leaf2: {group: leaf, asn: 65007}"))
    applied = sandbox.cli("apply", "-n", lab, "--allow", "restart", "-q")
    assert applied.returncode == 0, applied.stderr
    assert sandbox.cli("exercise", "check", "-n", lab).returncode == 0
