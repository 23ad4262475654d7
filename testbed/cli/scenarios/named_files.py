"""Scenario files as a command line names them: several at once, with the words of `--set` and `--only`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.base.errors import Problem, SpecError

if TYPE_CHECKING:
    from testbed.run.sweep.points import Sweep


def read_sweeps(
    files: Sequence[Path],
    settings: Sequence[str] = (),
    *,
    seed: int | None = None,
    repeat: int | None = None,
    only: Sequence[str] = (),
    warn: bool = False,
    refused: Callable[[SpecError], None] | None = None,
) -> list[Sweep]:
    """Read every file with its topologies. Touches nothing. Raises `SpecError` with the problems of all files; where
    there is `refused`, that is told of each file that is wrong instead, and the others are returned.

    With `warn`, what is valid in a topology and works less well than it looks is said on standard error, once.
    """
    from testbed.cli import output
    from testbed.cli.lab_choice import parse_settings
    from testbed.run.sweeps import read_sweep

    overrides = parse_settings(settings)
    if seed is not None:
        overrides["repeat.seed"] = seed
    if repeat is not None:
        overrides["repeat.runs"] = repeat
    wanted = parse_settings([word for text in only for word in _words(text)])
    sweeps: list[Sweep] = []
    problems: list[Problem] = []
    warnings: list[Problem] = []
    for path in files:
        try:
            sweeps.append(read_sweep(path, overrides, wanted, warn=warnings.append if warn else None))
        except SpecError as error:
            told = _of_another_kind(error, path)
            if refused is None:
                problems.extend(told.problems)
            else:
                refused(told)
    if problems:
        raise SpecError(list(dict.fromkeys(problems)))
    for problem in dict.fromkeys(warnings):
        output.warn(problem)
    return sweeps


def _words(text: str) -> list[str]:
    """Return the settings of `KEY=VALUE KEY=VALUE`, as a point is called; a value with spaces in it stays whole."""
    words = text.split()
    return words if all("=" in word for word in words) else [text]


def is_scenario_file(path: Path) -> bool:
    """Tell by its keys whether a file is a scenario. Raises `SpecError` for what is no mapping in YAML."""
    from testbed.base.yaml.reader import read_document
    from testbed.lab.core.schema.file_kind import is_scenario

    try:
        return is_scenario(read_document(path).data)
    except SpecError as error:
        raise _of_another_kind(error, path) from error


def _of_another_kind(error: SpecError, path: Path) -> SpecError:
    """The error of a file: that it is a topology, of ours or of another tool, where it is, else `error` itself."""
    from testbed.base.yaml.reader import load_document, read_text
    from testbed.lab.core.schema.file_kind import topology_problem
    from testbed.lab.core.schema.other_tools import told_of_other_tool

    try:
        text = read_text(path)
        told = told_of_other_tool(error, text, str(path))
        problem = topology_problem(load_document(text, str(path))) if told is error else None
    except SpecError:
        return error  # it cannot be read, which the error says
    return told if problem is None else SpecError([problem])
