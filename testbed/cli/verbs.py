"""The verbs by panel, and the group of them. A verb's module is imported when the verb is used, or listed by help."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import click

from testbed.base.errors import ExitCode, TestbedError
from testbed.cli.command import Group
from testbed.cli.signals import nobody_reads

WRITTEN_ARGUMENTS = "testbed.written_arguments"
"""Key of a context's `meta`: the words of the command line from the verb on, which `--on` hands to another machine."""

PANELS = {
    "Labs": {
        "deploy": "labs.deploy",
        "apply": "labs.apply",
        "diff": "labs.diff",
        "destroy": "labs.destroy",
        "list": "labs.list_labs",
        "inspect": "labs.inspect",
        "check": "labs.check",
        "events": "labs.events",
        "validate": "labs.validate",
        "generate": "labs.generate",
        "import": "labs.import_lab",
        "export": "labs.export",
        "schema": "labs.schema",
        "graph": "labs.graph",
        "console": "machine.console",
    },
    "Nodes and links": {
        "exec": "nodes.execute",
        "shell": "nodes.shell",
        "launch": "nodes.launch",
        "logs": "nodes.logs",
        "trace": "nodes.trace",
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
        "node": "nodes.node",
        "mininet-cli": "nodes.mininet_cli",
    },
    "Scenarios and results": {
        "demo": "scenarios.demo",
        "exercise": "scenarios.exercise",
        "examples": "scenarios.examples",
        "run": "scenarios.run",
        "job": "scenarios.job",
        "workloads": "scenarios.workloads",
        "metrics": "scenarios.metrics",
        "report": "scenarios.report",
        "compare": "scenarios.compare",
        "results": "scenarios.results",
    },
    "Machine": {"doctor": "machine.doctor", "images": "machine.images", "pool": "machine.pool", "vm": "machine.vm"},
}
"""By the panel that `--help` shows it in, each verb's module below `testbed.cli`. The command has the module's name."""
MODULES = {verb: module for verbs in PANELS.values() for verb, module in verbs.items()}


class Verbs(Group):
    """The verbs of `testbed`. It keeps the command line as it was written, for `--on`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = dict.fromkeys(MODULES)  # type: ignore[assignment]  # each is imported when it is asked for

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the verb. None for a name that no verb has."""
        if cmd_name in MODULES and self.commands[cmd_name] is None:
            module = import_module(f"testbed.cli.{MODULES[cmd_name]}")
            self.commands[cmd_name] = getattr(module, module.__name__.rpartition(".")[2])
        return self.commands.get(cmd_name)

    def make_context(self, *arguments: Any, **settings: Any) -> click.Context:
        """Take the command line apart, and print help where that is asked for."""
        try:
            return super().make_context(*arguments, **settings)
        except BrokenPipeError:  # which click would end with 1
            sys.exit(nobody_reads())

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb. Raises `TestbedError` for an interrupt, which click would end with "Aborted!" and 1."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            error = TestbedError("interrupted")
            error.exit_code = ExitCode.INTERRUPTED
            raise error from None
        except BrokenPipeError:  # which click would end with 1
            sys.exit(nobody_reads())

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Keep what comes after our own options before a verb takes it apart."""
        ctx.meta[WRITTEN_ARGUMENTS] = list(args)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the verbs of each panel under its name, all in one column."""
        width = max(map(len, MODULES))
        for panel, verbs in PANELS.items():
            commands = ((verb, self.get_command(ctx, verb)) for verb in verbs)
            with formatter.section(panel):
                formatter.write_dl(
                    [
                        (verb.ljust(width), command.get_short_help_str(formatter.width - 6 - width))
                        for verb, command in commands
                        if command is not None
                    ]
                )
