"""The verbs `exercise list`, `start`, `hint`, `check` and `solve`."""

import dataclasses
import re
import sys
import textwrap
from typing import TYPE_CHECKING

from testbed.base.rows import column
from testbed.cli import options
from testbed.cli.command import Group, argument, option
from testbed.cli.signals import stand_by_the_outcome

if TYPE_CHECKING:
    from testbed.api.exercises.attempt import Attempt, GoalResult

exercise = Group("exercise", help="Find out what is broken in a lab, and mend it.")
WIDTH = 100
"""Columns of a story."""
USUAL_NAME = "exercise"
lab_option = option("-n", "--name", default=USUAL_NAME, help="Name of the exercise's lab.")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExerciseRow:
    """An exercise, and the lab in which somebody is at it."""

    exercise: str
    title: str
    hints: int
    lab: str = column(sparse=True, default="")
    given: int | None = column("hints given", sparse=True, default=None)


@exercise.command("list")
@options.format_option
def list_exercises(format: options.Format) -> None:
    """List the exercises, and those that somebody is at."""
    from testbed.api.exercises.attempt import find_attempt
    from testbed.api.exercises.exercise import exercise_names, load_exercise
    from testbed.cli.output import emit
    from testbed.lab.core.deploy.records.state import StateDirectory

    state = StateDirectory()
    rows = []
    for name in exercise_names():
        file = load_exercise(name).file
        lab, note = find_attempt(name, state) or ("", None)
        given = None if note is None else note.hints
        rows.append(ExerciseRow(exercise=name, title=file.title, hints=len(file.hints), lab=lab, given=given))
    emit(rows, ExerciseRow, format)


@exercise.command("start")
@argument("exercise_name", metavar="EXERCISE", help="Its name, as `exercise list` has it.")
@lab_option
@options.timeout
@options.quiet
def start(exercise_name: str, name: str, timeout: float, quiet: bool) -> None:
    """Bring the lab of an exercise up, with something broken in it; one that was begun before is removed."""
    from testbed.api.exercises.attempt import Attempt
    from testbed.api.exercises.exercise import load_exercise
    from testbed.cli.progress import StepDisplay
    from testbed.lab.core.deploy.records.state import StateDirectory

    chosen = load_exercise(exercise_name)
    with StepDisplay(quiet=quiet) as display:
        attempt = Attempt.start(chosen, name, StateDirectory(), timeout_s=timeout, notify=display)
        stand_by_the_outcome()
    print(f"{chosen.file.title}\n")
    print(_filled(chosen.file.story))
    print(f"\nThe lab is {name}, and its file {attempt.topology}.")
    print(f"`{_command('hint', name)}` helps on, `{_command('check', name)}` tells whether it is mended.")


@exercise.command("hint")
@lab_option
def hint(name: str) -> None:
    """Give the next hint."""
    attempt, text = _opened(name).next_hint()
    print(f"hint {attempt.note.hints} of {len(attempt.exercise.file.hints)}: {_filled(_of_lab(text, name))}")


@exercise.command("check", codes={0: "it is mended", 1: "something is not as it should be yet"})
@lab_option
@options.format_option
def check(name: str, format: options.Format) -> None:
    """Tell whether an exercise is solved, and of what is still wrong the symptoms."""
    from testbed.cli.output import emit_json

    attempt = _opened(name)
    results = attempt.judge(told=_tell)
    solved = all(result.reached for result in results)
    if format is options.Format.TABLE:
        _print_results(attempt, results, solved=solved)
    elif format is options.Format.JSON:
        goals = [dataclasses.asdict(result) for result in results]
        emit_json({"exercise": attempt.exercise.name, "lab": name, "solved": solved, "goals": goals})
    else:
        _print_rows(results, format)
    sys.exit(0 if solved else 1)


@exercise.command("solve")
@lab_option
def solve(name: str) -> None:
    """Mend it, and tell what it was and how one finds it."""
    attempt = _opened(name).solve(told=print)
    print(f"\n{_filled(_of_lab(attempt.exercise.file.solution.explanation, name))}")


def _of_lab(text: str, lab: str) -> str:
    """Return a text whose commands, between backquotes, are about this lab, where it is not called as usual."""
    if lab == USUAL_NAME:
        return text
    named = re.sub(r"`(\./lab [^`]*?)( -- [^`]*)?`", rf"`\1 -n {lab}\2`", text)
    return re.sub(rf"\b{USUAL_NAME}-(?=[a-z0-9]+-)", f"{lab}-", named)


def _command(verb: str, lab: str) -> str:
    """Return a command line for the exercise of a lab, which has to be named where it is not called as usual."""
    return f"./lab exercise {verb}" + ("" if lab == USUAL_NAME else f" -n {lab}")


def _opened(name: str) -> "Attempt":
    from testbed.api.exercises.attempt import Attempt
    from testbed.cli.lab_choice import require_sight
    from testbed.lab.core.deploy.records.state import StateDirectory

    require_sight("an exercise")
    return Attempt.open(name, StateDirectory())


def _print_results(attempt: "Attempt", results: "list[GoalResult]", *, solved: bool) -> None:
    if solved:
        print(f"{attempt.exercise.name}: solved")
        remove = f"./lab destroy -n {attempt.lab}"
        print(f"`{_command('solve', attempt.lab)}` tells what it was, `{remove}` removes the lab.")
        return
    open_goals = [result for result in results if not result.reached]
    print(f"{attempt.exercise.name}: not solved yet, {len(open_goals)} of {len(results)} goals open")
    for result in open_goals:
        print(textwrap.fill(result.symptom, WIDTH, initial_indent="  ", subsequent_indent="  "))
        for line in result.findings:
            print(f"    {line}")


def _print_rows(results: "list[GoalResult]", form: options.Format) -> None:
    from testbed.api.exercises.attempt import GoalResult
    from testbed.cli.output import emit

    emit(results, GoalResult, form)


def _filled(text: str) -> str:
    """Break the paragraphs of a text into lines; each is one line of it."""
    return "\n\n".join(textwrap.fill(part, WIDTH, break_on_hyphens=False) for part in text.strip().split("\n"))


def _tell(what: str) -> None:
    print(f"{what} ...", file=sys.stderr)
