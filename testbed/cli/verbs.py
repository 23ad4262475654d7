"""The verbs, and the module that declares each: it is imported when its verb is used, or listed by `testbed --help`."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any

import typer

from testbed.cli.conversion import convert_only_where_needed
from testbed.cli.repeated_options import refuse_repeated_options

MODULES = {
    "deploy": "labs.deploy",
    "destroy": "labs.destroy",
    "list": "labs.list_labs",
    "inspect": "labs.inspect",
    "check": "labs.check",
    "events": "labs.events",
    "validate": "labs.validate",
    "generate": "labs.generate",
    "schema": "labs.schema",
    "graph": "labs.graph",
    "exec": "nodes.execute",
    "shell": "nodes.shell",
    "logs": "nodes.logs",
    "capture": "nodes.capture",
    "decode": "nodes.decode",
    "roce": "nodes.roce",
    "uet": "nodes.uet",
    "link": "nodes.link",
    "pfc": "counters.pfc",
    "stats": "counters.stats",
    "serve": "counters.serve",
    "service": "nodes.service",
    "power": "nodes.power",
    "mininet-cli": "nodes.mininet_cli",
    "run": "scenarios.run",
    "job": "scenarios.job",
    "workloads": "scenarios.workloads",
    "metrics": "scenarios.metrics",
    "report": "scenarios.report",
    "compare": "scenarios.compare",
    "results": "scenarios.results",
    "doctor": "machine.doctor",
    "images": "machine.images",
    "vm": "machine.vm",
}
"""By verb, its module below `testbed.cli`, which has a Typer object `app` with that one verb. Panels list verbs in this
order."""


class Verbs(MutableMapping[str, Any]):
    """The commands of all verbs by name. A command is made, and its module imported, when it is first asked for."""

    def __init__(self) -> None:
        self._commands: dict[str, Any] = dict.fromkeys(MODULES)

    def __getitem__(self, name: str) -> Any:
        command = self._commands[name]
        if command is None:
            command = self._commands[name] = _declared(name)
        return command

    def __setitem__(self, name: str, command: Any) -> None:
        self._commands[name] = command

    def __delitem__(self, name: str) -> None:
        del self._commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._commands)

    def __len__(self) -> int:
        return len(self._commands)


def _declared(name: str) -> Any:
    """Import the module of a verb, and return the command that it declares."""
    verb = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    verb.add_typer(import_module(f"testbed.cli.{MODULES[name]}").app)
    (command,) = typer.main.get_command(verb).commands.values()  # type: ignore[attr-defined]  # always a group
    assert command.name == name
    convert_only_where_needed(command)
    refuse_repeated_options(command)
    return command
