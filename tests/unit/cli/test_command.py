"""Command lines: an option that takes one value is refused where it is given twice, and interrupts have their code."""

from collections.abc import Iterator
from typing import Any

import click
import pytest
from click.testing import CliRunner

from testbed.base.errors import TestbedError
from testbed.cli.app import app, main
from testbed.cli.command import VerbCommand


def options(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every option of a command and of those in it, with the words that lead to it."""
    yield from ((words, one) for one in command.params if one.param_type_name == "option")
    for name in getattr(command, "commands", {}):
        yield from options(command.get_command(click.Context(command), name), (*words, name))


EVERY = list(options(app))
SINGLE = [
    (words, one)
    for words, one in EVERY
    if not one.multiple and not one.count and not (one.is_flag and not one.secondary_opts)
]
SEVERAL = [(words, one) for words, one in EVERY if one.multiple]


def name(item: object) -> str:
    return " ".join(item) if isinstance(item, tuple) else str(getattr(item, "name", item))


@pytest.mark.parametrize(("words", "option"), SINGLE, ids=name)
def test_an_option_of_one_value_is_refused_the_second_time(words: tuple[str, ...], option: Any) -> None:
    value = () if option.is_flag else ("1",) * option.nargs
    twice = (option.opts[0], *value, option.opts[-1], *value)
    done = CliRunner().invoke(app, [*words, *twice])
    assert isinstance(done.exception, TestbedError), (done.exception, done.output)
    assert done.exception.exit_code == 3
    assert f"{', '.join([*option.opts, *option.secondary_opts])}: given 2 times" in str(done.exception)


def test_there_are_options_of_both_kinds() -> None:
    assert len(SINGLE) > 100 and len(SEVERAL) > 5
    assert ("validate",) in {words for words, _ in SINGLE} and () in {words for words, _ in SINGLE}


def test_options_of_several_values_flags_and_words_of_others_may_repeat() -> None:
    for argv in (
        ["generate", "single-switch", "--set", "fabric.hosts=2", "--set", "fabric.gpus=1"],
        ["decode", "--json", "--json", "/nosuch"],
        ["exec", "nosuch", "--", "ls", "-t", "1", "-t", "2"],
    ):
        done = CliRunner().invoke(app, argv)
        assert "given 2 times" not in str(done.exception), argv


def test_a_verb_that_is_interrupted_ends_as_a_shell_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(app.commands, "list", VerbCommand("list", callback=interrupted))
    monkeypatch.setattr("sys.argv", ["testbed", "list"])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "error: interrupted\n"
