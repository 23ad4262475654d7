"""The group of all verbs: prints them by panel, and keeps the command line as it was written, for `--on`."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

from testbed.cli.conversion import convert_only_where_needed
from testbed.cli.panels import PANELS
from testbed.cli.repeated_options import refuse_repeated_options
from testbed.cli.verbs import Verbs

WRITTEN_ARGUMENTS = "testbed.written_arguments"
"""Key of a context's `meta`: the words of the command line from the verb on, which `--on` hands to another machine."""


class RootGroup(TyperGroup):
    """The verbs of `testbed`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        convert_only_where_needed(self)
        refuse_repeated_options(self)
        self.commands = Verbs()

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all verbs; none of them is loaded for that."""
        return list(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Keep what comes after our own options before a verb takes it apart."""
        ctx.meta[WRITTEN_ARGUMENTS] = list(args)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Print the verbs of each panel under its name, all in one column; verbs without a panel come last."""
        verbs = {name: command for name in self.list_commands(ctx) if (command := self.get_command(ctx, name))}
        verbs = {name: command for name, command in verbs.items() if not command.hidden}
        width = max(len(name) for name in verbs)
        for panel in (*PANELS, None):
            shown = [
                (name.ljust(width), command.get_short_help_str(formatter.width - 6 - width))
                for name, command in verbs.items()
                if _panel(command) == panel
            ]
            if shown:
                with formatter.section(panel or "Others"):
                    formatter.write_dl(shown)


def _panel(command: Any) -> str | None:
    name = getattr(command, "rich_help_panel", None)
    return name if name in PANELS else None
