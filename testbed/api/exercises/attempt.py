"""An exercise that somebody is at: its lab is up and broken, hints were given, goals are tried, the solution is shown.

What is known of it lies beside the record of its lab, and so does its topology file: `destroy` removes both.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import yaml

from testbed.api.exercises.exercise import Exercise, Goal, load_exercise
from testbed.api.scenarios import run_on_lab
from testbed.base.errors import ExitCode, LabNotFound, TestbedError
from testbed.base.files import write_atomically
from testbed.base.programs import captured
from testbed.lab.core.deploy.interruption import uninterrupted
from testbed.lab.core.deploy.lifecycle import DEFAULT_TIMEOUT_S, DeployOptions, deploy_lab, destroy_lab
from testbed.lab.core.deploy.live import RunningLab
from testbed.lab.core.deploy.records.state import StateDirectory
from testbed.lab.core.deploy.scale import resolve_scale
from testbed.lab.core.deploy.steps import StepCallback, ignore_steps, step
from testbed.lab.core.deploy.watch.changes import ChangeWatch
from testbed.lab.core.deploy.watch.check import CheckReport, check_lab
from testbed.lab.core.model import Lab
from testbed.lab.core.schema.load import load_topology_text
from testbed.record.record import ExpectationResult, Outcome

NOTE = "exercise.json"
"""The file of what is known of an attempt, in the directory where its lab is recorded."""
TOPOLOGY = "topology.yml"
"""The topology file of the lab, beside it: `apply` takes what a learner changes in it."""
SETTLES_S = 4.0
"""A neighbour that did not answer is asked again after a second or two, and BGP tries a session again each second."""
LINES_SHOWN = 3
"""The most findings that are told below a symptom."""


class StepFailed(TestbedError):
    """A command of an exercise did not end as it must."""

    exit_code = ExitCode.INVALID


class AttemptNote(msgspec.Struct, frozen=True, kw_only=True):
    """The things that are kept of an attempt: its exercise, how many hints were given, whether the solution was."""

    exercise: str
    hints: int = 0
    shown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalResult:
    """The outcome of a goal; where it is not reached, its symptom and at most three findings."""

    reached: bool
    symptom: str
    findings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Attempt:
    """An exercise in a lab that is up."""

    exercise: Exercise
    lab: str
    state: StateDirectory
    note: AttemptNote

    @classmethod
    def open(cls, lab: str, state: StateDirectory) -> Attempt:
        """Find the exercise that a lab is. Raises `LabNotFound` where there is none of that name, or it is none."""
        note = _read_note(lab, state)
        if note is None:
            what = "is no exercise" if state.exists(lab) else "is not deployed"
            others = [one for one in state.names() if _read_note(one, state) is not None]
            hint = "testbed exercise start NAME; `testbed exercise list` has the names"
            raise LabNotFound(f"{lab} {what}", hint=f"-n {' or '.join(others)}, which is" if others else hint)
        return cls(load_exercise(note.exercise), lab, state, note)

    @classmethod
    def start(
        cls,
        exercise: Exercise,
        lab: str,
        state: StateDirectory,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        notify: StepCallback = ignore_steps,
    ) -> Attempt:
        """Bring the lab of an exercise up and break it; another exercise of that lab's name is removed before.

        Whatever fails or interrupts it, nothing is left. Raises `TestbedError` for a lab of that name that is no
        exercise, the errors of a deploy, and `StepFailed`.
        """
        model = exercise_lab(exercise, lab, state)
        if state.exists(lab) and _read_note(lab, state) is None:
            raise TestbedError(
                f"a lab named {lab} is deployed, and it is no exercise",
                hint=f"-n gives the lab of the exercise another name, and `testbed destroy -n {lab}` removes this one",
            )
        if state.exists(lab):
            destroy_lab(lab, state, notify)
        try:
            deploy_lab(model, state, DeployOptions(k=resolve_scale(model, state).k, timeout_s=timeout_s), notify)
            attempt = cls(exercise, lab, state, AttemptNote(exercise=exercise.name))
            write_atomically(state.lab_directory(lab) / TOPOLOGY, exercise.file.topology)
            attempt._write()
            with step("something breaks", notify):
                for line in exercise.file.breaks:
                    attempt._carry_out(line)
        except BaseException:
            with uninterrupted(), suppress(LabNotFound):
                destroy_lab(lab, state, notify)
            raise
        return attempt

    @property
    def topology(self) -> Path:
        """The file that the lab came from."""
        return self.state.lab_directory(self.lab) / TOPOLOGY

    # ------------------------------------------------------------------ what learners ask for

    def next_hint(self) -> tuple[Attempt, str]:
        """Return the next hint, and the attempt with it; the last one again where there is no other."""
        hints = self.exercise.file.hints
        given = min(self.note.hints + 1, len(hints))
        attempt = replace(self, note=msgspec.structs.replace(self.note, hints=given))
        attempt._write()
        return attempt, hints[given - 1]

    def judge(self, told: Callable[[str], None] = lambda _: None) -> list[GoalResult]:
        """Try every goal, in order. `told` is told before something that takes a while.

        Raises `LabNotFound` and the errors of commands that cannot be started.
        """
        running = RunningLab.open(self.lab, self.state)
        report: CheckReport | None = None
        results = []
        for goal in self.exercise.file.goals:
            if goal.check:
                if report is None:
                    told("testing the lab")
                    report = self._checked(running)
                findings = _failed_tests(goal, report)
            elif goal.run:
                findings = self._failed_run(goal)
            else:
                told("running traffic over the lab")
                findings = self._failed_scenario(goal, running)
            results.append(
                GoalResult(
                    reached=findings is None,
                    symptom=goal.symptom.strip(),
                    findings=() if findings is None else tuple(findings[:LINES_SHOWN]),
                )
            )
        return results

    def _checked(self, running: RunningLab) -> CheckReport:
        """Run the tests that goals name; what has just been mended has a moment to be found again by routing and
        neighbours, and they are run again as the lab changes, and once more at the end."""
        goals = [goal for goal in self.exercise.file.goals if goal.check]
        names = {name for goal in goals for name in goal.check}
        end_s = time.monotonic() + SETTLES_S
        with closing(ChangeWatch(running)) as watch:
            while True:
                left_s = end_s - time.monotonic()
                report = check_lab(running, names)
                if left_s <= 0 or not any(_failed_tests(goal, report) for goal in goals):
                    return report
                watch.wait(end_s - time.monotonic())

    def solve(self, told: Callable[[str], None] = lambda _: None) -> Attempt:
        """Carry out the solution; `told` is told of each command line before. Raises `StepFailed`."""
        for line in self.exercise.file.solution.commands:
            told(self.command_line(line))
            self._carry_out(line)
        attempt = replace(self, note=msgspec.structs.replace(self.note, shown=True))
        attempt._write()
        return attempt

    def command_line(self, line: str) -> str:
        """Return a command line of the exercise as a person types it."""
        named = self._words(line) if len(self.state.names()) > 1 else shlex.split(line)
        return shlex.join(["./lab", *named])

    # ------------------------------------------------------------------ commands

    def _words(self, line: str) -> list[str]:
        """The words of a command line, with the name of the lab before what is a command in a node."""
        words = shlex.split(line)
        at = words.index("--") if "--" in words else len(words)
        return [*words[:at], "-n", self.lab, *words[at:]]

    def _started(self, line: str) -> subprocess.CompletedProcess[str]:
        places = {"TESTBED_STATE_DIR": str(self.state.state), "TESTBED_RUN_DIR": str(self.state.run)}
        return captured([sys.executable, "-m", "testbed", *self._words(line)], env=os.environ | places)

    def _carry_out(self, line: str) -> None:
        done = self._started(line)
        if done.returncode:
            lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
            said = [line for line in lines if not line.lstrip().startswith("hint: ")]
            raise StepFailed(
                f"`{self.command_line(line)}` ended with {done.returncode}" + (f": {said[-1]}" if said else ""),
                hint="`testbed exercise start` begins anew",
            )

    def _failed_run(self, goal: Goal) -> list[str] | None:
        """Return nothing where a command line ends as it must, else which it was: what it printed is for its user."""
        done = self._started(goal.run)
        if done.returncode == goal.exit:
            return None
        return [f"{self.command_line(goal.run)} ends with {done.returncode}"]

    def _failed_scenario(self, goal: Goal, running: RunningLab) -> list[str] | None:
        """Return the expectations that are missed.

        What is broken and what is mended are far apart, so that a machine that is busy meanwhile, which makes a verdict
        invalid, does not matter here.
        """
        data: dict[str, Any] = {"name": self.exercise.name, "topology": {"file": TOPOLOGY}, **(goal.scenario or {})}
        result = run_on_lab(running, yaml.safe_dump(data, sort_keys=False))
        missed = [one for one in result.record.expectations if one.outcome is not Outcome.PASS]
        return list(map(_missed_text, missed)) or None

    def _write(self) -> None:
        write_atomically(self.state.lab_directory(self.lab) / NOTE, msgspec.json.encode(self.note))


def exercise_lab(exercise: Exercise, name: str, state: StateDirectory) -> Lab:
    """Return the lab of an exercise, under this name; it comes from the file that `start` writes.

    Raises `SpecError`, and `TestbedError` for a name that no lab may have.
    """
    try:
        file = str(state.lab_directory(name) / TOPOLOGY)
    except ValueError as error:
        raise TestbedError(str(error)) from error
    lab = load_topology_text(exercise.file.topology, file=file, overrides={"name": name})
    return lab if lab.written is None else replace(lab, written=replace(lab.written, file=file))


def find_attempt(exercise: str, state: StateDirectory) -> tuple[str, AttemptNote] | None:
    """Return the lab in which an exercise is under way, and what is known of it; the first where there are several."""
    for lab in state.names():
        note = _read_note(lab, state)
        if note is not None and note.exercise == exercise:
            return lab, note
    return None


def _read_note(lab: str, state: StateDirectory) -> AttemptNote | None:
    """Read what is known of the attempt that a lab is; None for one that is none."""
    try:
        text = (state.lab_directory(lab) / NOTE).read_bytes()
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise LabNotFound(str(error)) from error
    try:
        return msgspec.json.decode(text, type=AttemptNote)
    except msgspec.DecodeError as error:
        raise TestbedError(
            f"what is known of the exercise {lab} cannot be read: {error}",
            hint=f"`testbed destroy -n {lab}` removes it",
        ) from error


def _missed_text(missed: ExpectationResult) -> str:
    """Tell what was measured, and what was expected."""
    if missed.measured is None:
        return f"{missed.metric} could not be measured"
    bounds = (("at least", missed.minimum), ("at most", missed.maximum))
    expected = " and ".join(f"{words} {bound:g}" for words, bound in bounds if bound is not None)
    return f"{missed.metric} is {missed.measured:.3g}, and {expected} was expected"


def _failed_tests(goal: Goal, report: CheckReport) -> list[str] | None:
    """Return what tests found that did not pass; a test that the lab does not have is one of those."""
    found = {result.name: result for result in report.results}
    failed = [name for name in goal.check if name not in found or found[name] in report.not_passed]
    lines = [f"{name}: there is no such test of this lab" for name in failed if name not in found]
    for name in failed:
        if name in found:
            lines += [f"{name}: {line}" for line in found[name].failures or (found[name].detail,)]
    return lines if failed else None
