"""The command line as it describes itself, in this process."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner

from testbed.cli.app import app


def output_of(*arguments: str) -> str:
    """What a command prints. Raises `RuntimeError` if it fails."""
    done = CliRunner().invoke(app, list(arguments))
    if done.exit_code:
        raise RuntimeError(
            f"testbed {' '.join(arguments)}: exit code {done.exit_code}\n{done.output}{done.exception!r}"
        )
    return done.stdout


def json_of(*arguments: str) -> Any:
    """The JSON document that a command prints."""
    return json.loads(output_of(*arguments))
