"""The exercises that come with testbed, and the data of each: a YAML file of `shipped/`, which has its name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from testbed.base.errors import TestbedError
from testbed.base.names import known_names_hint
from testbed.base.program_errors import ProgramError
from testbed.base.typed_json import convert
from testbed.base.yaml.reader import read_document

FOLDER = Path(__file__).parent / "shipped"
Said = Annotated[str, Meta(min_length=1)]


class Goal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that holds again once the fault is mended, and the symptom that is told while it does not.

    One of three things decides: tests of `testbed check`, by their names; a command line of testbed that ends with
    `exit`; or the verdict of a scenario on the lab, whose name and topology are left out.
    """

    symptom: Said
    check: tuple[str, ...] = ()
    run: str = ""
    exit: int = 0
    scenario: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if sum((bool(self.check), bool(self.run), self.scenario is not None)) != 1:
            raise ValueError("one of check, run and scenario decides a goal")


class Solution(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The command lines that mend a fault, and what it was, why it shows as it does, and how one finds it."""

    commands: Annotated[tuple[Said, ...], Meta(min_length=1)]
    explanation: Said


class ExerciseFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of an exercise's file. Command lines are those of `testbed`, without the word itself and without `-n`.

    `topology` is the text of a topology file. What is broken stands in it, or is done by `breaks` once it is up.
    """

    title: Said
    story: Said
    topology: Said
    goals: Annotated[tuple[Goal, ...], Meta(min_length=1)]
    hints: Annotated[tuple[Said, ...], Meta(min_length=1)]
    solution: Solution
    breaks: tuple[Said, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """An exercise by its name, and what its file says."""

    name: str
    file: ExerciseFile


def exercise_names() -> list[str]:
    """Return the names of all exercises, in their order."""
    return sorted(path.stem for path in FOLDER.glob("*.yml"))


def load_exercise(name: str) -> Exercise:
    """Read an exercise. Raises `TestbedError` with the nearest name where there is none, or where its file is wrong."""
    names = exercise_names()
    if name not in names:
        raise TestbedError(f"there is no exercise {name!r}", hint=known_names_hint(name, names))
    path = FOLDER / f"{name}.yml"
    try:
        return Exercise(name=name, file=convert(ExerciseFile, read_document(path).data, ""))
    except ProgramError as error:
        raise TestbedError(f"{path}: {error}") from error
