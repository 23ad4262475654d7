"""What `--on` takes, and that the verb is handed on as it was written."""

import pytest
from click.testing import CliRunner

from testbed.base.errors import TestbedError
from testbed.cli import app as command_line
from testbed.cli.machine import elsewhere
from testbed.vm.remote.ssh import Login
from testbed.vm.remote.target import RemoteTarget, parse_target


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("vm", RemoteTarget(machine="vm")),
        ("vm:mine", RemoteTarget(machine="mine")),
        ("ssh://host", RemoteTarget(login=Login(host="host"))),
        ("ssh://root@host:2222", RemoteTarget(login=Login(host="host", user="root", port=2222))),
        ("ssh://host/opt/testbed/", RemoteTarget(login=Login(host="host"), path="/opt/testbed")),
        ("ssh://[::1]:2222", RemoteTarget(login=Login(host="::1", port=2222))),
    ],
)
def test_targets(text: str, target: RemoteTarget) -> None:
    assert parse_target(text) == target


@pytest.mark.parametrize("text", ["", "host", "http://host", "ssh://", "ssh://host:port", "ssh://host:99999999"])
def test_what_is_none(text: str) -> None:
    with pytest.raises(TestbedError, match="--on"):
        parse_target(text)


def handed_on(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, list[object]]:
    calls: list[object] = []

    def record_call(on: str, clock: str, words: list[str]) -> int:
        calls.extend([on, clock, words])
        return 7

    monkeypatch.setattr(elsewhere, "run_elsewhere", record_call)
    result = CliRunner().invoke(command_line.app, list(arguments))
    return result.exit_code, calls


def test_the_verb_is_handed_on_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["exec", "h1", "-n", "x", "--", "sh", "-c", "exit 3", "--on", "vm"]
    assert handed_on(monkeypatch, "--on", "vm", *words) == (7, ["vm", "wall", words])


def test_an_option_that_the_verb_does_not_have_is_for_the_other_machine_to_judge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert handed_on(monkeypatch, "--on", "vm", "--clock", "virtual", "run", "--new", "x.yml") == (
        7,
        ["vm", "virtual", ["run", "--new", "x.yml"]],
    )


def test_verbs_of_the_lab_vm_are_for_here(monkeypatch: pytest.MonkeyPatch) -> None:
    code, calls = handed_on(monkeypatch, "--on", "vm", "vm", "--help")
    assert (code, calls) == (0, [])
