"""The option `--format` of all verbs that print rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from testbed.errors import TestbedError

if TYPE_CHECKING:
    from testbed.cli.output import Format

Form = Annotated[str, typer.Option("-f", "--format", help="table, json or csv.")]


def parse_format(text: str) -> Format:
    """Raises `TestbedError` for what is none."""
    from testbed.cli.output import Format

    try:
        return Format(text)
    except ValueError as error:
        raise TestbedError(f"--format {text}: expected table, json or csv") from error
