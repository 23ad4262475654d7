"""The command line is what its users wrote scripts against: every verb, option, environment variable and default.

What disappears from `commands.json` breaks somebody's script.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from typing import Any, get_type_hints

import typer
from golden_files import Golden

from testbed.cli.app import app


def command_line() -> dict[str, dict[str, Any]]:
    """What each command takes, by its name from the program on: "testbed link set"."""
    root = typer.main.get_command(app)
    context: Any = typer.Context(root, info_name="testbed", **root.context_settings)  # type: ignore[arg-type]
    return dict(_commands(root, context))


def _commands(command: Any, context: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    types = {} if command.callback is None else get_type_hints(inspect.unwrap(command.callback))
    yield (
        context.command_path.split(" [", 1)[0],
        {_name(one): _parameter(one, str(types.get(one.name, "")), context) for one in command.params},
    )
    for name, child in getattr(command, "commands", {}).items():
        settings = {"parent": context, "info_name": name, **child.context_settings}
        yield from _commands(child, typer.Context(child, **settings))


def _name(parameter: Any) -> str:
    return " ".join((*parameter.opts, *parameter.secondary_opts))


def _parameter(parameter: Any, type_: str, context: Any) -> dict[str, Any]:
    option = parameter.param_type_name == "option"
    taken = {
        "kind": parameter.param_type_name,
        "type": type_,
        "required": parameter.required,
        "default": None if parameter.default is None else str(parameter.default),
        "nargs": parameter.nargs,
    }
    if option:
        return taken | {"multiple": parameter.multiple, "variable": _variable(parameter, context)}
    return taken | {"metavar": parameter.metavar}


def _variable(parameter: Any, context: Any) -> str:
    return f"{context.auto_envvar_prefix}_{parameter.name.upper()}"


def golden_text() -> str:
    return json.dumps(command_line(), indent=1, sort_keys=True) + "\n"


def test_every_verb_takes_what_it_took(golden: Golden) -> None:
    golden("commands.json").check(golden_text())
