"""The command line is what its users wrote scripts against: every verb, option, environment variable and default.

What disappears from `commands.json` breaks somebody's script.
"""

import inspect
import json
from collections.abc import Iterator
from typing import Any, get_type_hints

import click
from golden_files import Golden

from testbed.cli.app import app


def command_line() -> dict[str, dict[str, Any]]:
    """What each command takes, by its name from the program on: "testbed link set"."""
    return dict(_commands(app, click.Context(app, info_name="testbed", **app.context_settings)))


def _commands(command: click.Command, context: click.Context) -> Iterator[tuple[str, dict[str, Any]]]:
    types = {} if command.callback is None else get_type_hints(inspect.unwrap(command.callback))
    yield (
        context.command_path.split(" [", 1)[0],
        {_name(one): _parameter(one, str(types.get(one.name, "")), context) for one in command.params},
    )
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        child = command.get_command(context, name)
        settings = {"parent": context, "info_name": name, **child.context_settings}
        yield from _commands(child, click.Context(child, **settings))


def _name(parameter: Any) -> str:
    return " ".join((*parameter.opts, *parameter.secondary_opts))


def _parameter(parameter: Any, type_: str, context: Any) -> dict[str, Any]:
    option = parameter.param_type_name == "option"
    default = parameter.to_info_dict()["default"]
    taken = {
        "kind": parameter.param_type_name,
        "type": type_,
        "required": parameter.required,
        "default": None if default is None else str(default),
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
