"""Hints of exercises, whose commands are about the lab that they are printed for."""

from __future__ import annotations

import re

import pytest

from testbed.api.exercises.exercise import exercise_names, load_exercise
from testbed.cli.scenarios.exercise import USUAL_NAME, _of_lab


@pytest.mark.parametrize("name", exercise_names())
def test_commands_of_a_hint_name_a_lab_that_is_not_called_as_usual(name: str) -> None:
    file = load_exercise(name).file
    for text in (*file.hints, file.solution.explanation):
        assert _of_lab(text, USUAL_NAME) == text
        said = _of_lab(text, "mine")
        commands = re.findall("`(\\./lab [^`]*)`", said)
        assert len(commands) == text.count("`./lab ")
        assert all(" -n mine" in command.partition(" -- ")[0] for command in commands)
        assert f"{USUAL_NAME}-p1" not in said
    assert "`./lab exec a -n mine -- ip route`" in _of_lab("`./lab exec a -- ip route`", "mine")
