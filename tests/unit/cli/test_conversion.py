"""Converting only what is not of its type already changes no value and no message."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from testbed.cli.conversion import convert_only_where_needed


def _command() -> Any:
    verb = typer.Typer(add_completion=False, rich_markup_mode=None)

    @verb.command()
    def show(
        name: str,
        rest: Annotated[list[str] | None, typer.Argument()] = None,
        count: int | None = None,
        share: float = 0.5,
        bounded: Annotated[int, typer.Option(min=1, max=4)] = 2,
        each: Annotated[list[int] | None, typer.Option()] = None,
        pair: tuple[str, int] = ("a", 1),
        file: Path | None = None,
        loud: bool = False,
        halves: Annotated[float, typer.Option(parser=lambda text: float(text) / 2)] = 1.0,
    ) -> None:
        """Show what was understood."""
        print([name, rest, count, share, bounded, each, pair, file, loud, halves])

    return typer.main.get_command(verb)


def _outcome(command: Any, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        command.main(arguments, prog_name="show")
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out, said.err


@pytest.mark.parametrize(
    ("written", "exit_code"),
    [
        ("one", 0),
        ("one two three", 0),
        ("one --count 3 --share 1e-3 --loud --file a/b", 0),
        ("one --each 1 --each 2 --pair x 3 --halves 5", 0),
        ("one --bounded 4", 0),
        ("one --bounded 5", 2),
        ("one --count 1.5", 2),
        ("one --share much", 2),
        ("one --each 1 --each b", 2),
        ("one --pair x y", 2),
        ("", 2),
        ("--help", 0),
    ],
)
def test_the_outcome_is_that_of_typer_alone(written: str, exit_code: int, capsys: pytest.CaptureFixture[str]) -> None:
    spared = _command()
    convert_only_where_needed(spared)
    outcome = _outcome(spared, written.split(), capsys)
    assert outcome[0] == exit_code
    assert outcome == _outcome(_command(), written.split(), capsys)
