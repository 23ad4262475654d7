"""What the user asked for, as the machine knows it that was sent to do it."""

import sys

import pytest

from testbed.vm.remote.recorded_command import VARIABLE, asked_command, with_what_was_asked


def test_it_is_told_to_the_other_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/testbed", "--on", "vm", "run", "a b.yml"])
    program, told, *rest = with_what_was_asked(["/there/testbed", "run", "/base/a b.yml"])
    assert (program, rest) == ("env", ["/there/testbed", "run", "/base/a b.yml"])
    monkeypatch.setattr(sys, "argv", ["/there/testbed", "run", "/base/a b.yml"])
    assert asked_command() == ["testbed", "run", "/base/a b.yml"]
    name, _, value = told.partition("=")
    monkeypatch.setenv(name, value)
    assert asked_command() == ["testbed", "--on", "vm", "run", "a b.yml"]


@pytest.mark.parametrize("text", ["", "{", "{}", "7", "[1]", '"text"'])
def test_nonsense_is_passed_over(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(VARIABLE, text)
    monkeypatch.setattr(sys, "argv", ["testbed", "list"])
    assert asked_command() == ["testbed", "list"]
