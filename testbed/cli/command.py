"""All commands have this in common, beyond click's own: how their help looks, and that an option is said once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from testbed.base.errors import TestbedError

PATH = click.Path(path_type=Path)
_CONSENTS = ("-y", "--yes", "--force", "--assume-yes")
_OPTIONS_ELSEWHERE = {
    "--port": ("--bind 127.0.0.1:PORT", "--listen 127.0.0.1:PORT"),
    "--address": ("--bind ADDRESS:PORT", "--listen ADDRESS:PORT"),
    "--force": ("--reconfigure", "--allow restart"),
    "--lab": ("--name",),
    "--scale": ("--set scale.time=K",),
    "--seed": ("--set repeat.seed=N",),
    "--json": ("--format json",),
    "--csv": ("--format csv",),
}
"""By options of other tools, what stands for them here in the verbs that have it."""
_TYPE_NAMES = {"text": "str", "integer": "int"}


class Option(click.Option):
    """An option whose help names its environment variable."""

    def __init__(self, *declarations: Any, **settings: Any) -> None:
        super().__init__(*declarations, **{"show_envvar": True, **settings})

    def make_metavar(self, ctx: click.Context) -> str:
        """Name the kind of value: `<int>`."""
        return self.metavar or f"<{_TYPE_NAMES.get(self.type.name, self.type.name)}>"


class VerbCommand(click.Command):
    """A verb. An option that takes one value is refused where it is given twice: click takes the last one silently.

    `codes` says what exit codes mean that are the verb's own, beside those of every verb (`ExitCode`): its verdicts, or
    those of the program that it runs, which stand under "own".
    """

    def __init__(self, *arguments: Any, codes: Mapping[int | str, str] | None = None, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.codes: Mapping[int | str, str] = codes or {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the command line apart. Raises `TestbedError` for an option that is given twice."""
        if not ctx.resilient_parsing:
            try:
                _refuse_repeated_options(self, ctx, args)
            except click.NoSuchOption as error:
                if meant := _meant_by_option(self, error.option_name):
                    ctx.fail(f"{error.message} {meant}")
                raise
        takes_more, ctx.allow_extra_args = ctx.allow_extra_args, True
        rest = super().parse_args(ctx, args)
        ctx.allow_extra_args = takes_more
        if rest and not takes_more and not ctx.resilient_parsing:
            meant = _meant_by_one_too_many(self, rest[0]) if len(rest) == 1 else ""
            ctx.fail(f"Got unexpected extra argument{'s'[: len(rest) > 1]} ({' '.join(rest)}){meant}")
        return rest

    def format_arguments(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print what the arguments mean, with their defaults."""
        arguments = [one for one in self.params if isinstance(one, click.Argument)]
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl([(one.make_metavar(ctx), _explained(one, ctx)) for one in arguments])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print what the verb's own exit codes mean."""
        super().format_epilog(ctx, formatter)
        if self.codes:
            with formatter.section("Exit codes"):
                formatter.write_dl([(str(code), meaning) for code, meaning in self.codes.items()])


class Group(VerbCommand, click.Group):
    """A verb that has verbs of its own, such as `link`."""

    command_class = VerbCommand

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of its verbs as they are declared."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb. `help` and `version` are none, and mean the options; click would take one for `shell`."""
        word = args[0]
        options = {name for one in self.get_params(ctx) for name in one.opts}
        if word not in self.commands and f"--{word}" in options and not ctx.resilient_parsing:
            verb = f"{args[1]} " if word == "help" and args[1:] and args[1] in self.commands else ""
            ctx.fail(f"No such command {word!r}. Did you mean '{verb}--{word}'?")
        return super().resolve_command(ctx, args)


command: Callable[..., Callable[[Callable[..., None]], VerbCommand]] = partial(click.command, cls=VerbCommand)
option = partial(click.option, cls=Option)
argument = click.argument


def _explained(argument: click.Argument, context: click.Context) -> str:
    default = argument.get_default(context, call=False)
    if argument.required:
        return f"{argument.help}  [required]"
    return f"{argument.help}  [default: {default}]" if isinstance(default, str) else argument.help or ""


def _meant_by_one_too_many(command: click.Command, word: str) -> str:
    """Say by which option an argument is given that is one too many: a file as a topology, any other word as the name
    of a lab; "" where the verb takes neither."""
    from testbed.base.yaml.reader import SUFFIXES

    wanted = "topology" if Path(word).suffix in SUFFIXES else "name"
    meant = next((one for one in command.params if isinstance(one, click.Option) and one.name == wanted), None)
    return "" if meant is None else f". Did you mean '{meant.opts[0]} {word}'?"


def _meant_by_option(command: click.Command, word: str) -> str:
    """Say what an option of other tools is called here, or that a verb asks nothing; "" where that is not known."""
    known = {name for one in command.params for name in one.opts}
    meant = next((one for one in _OPTIONS_ELSEWHERE.get(word, ()) if one.split()[0] in known), None)
    if meant is None:
        return "It asks nothing: leave it out." if word in _CONSENTS else ""
    return f"Did you mean '{meant}'?"


def _refuse_repeated_options(command: click.Command, context: click.Context, args: list[str]) -> None:
    """Refuse an option of one value that is given twice; a flag says no more the second time."""
    _, _, given = command.make_parser(context).parse_args(args=list(args))
    for parameter, times in Counter(given).items():
        if times < 2 or not isinstance(parameter, click.Option) or parameter.multiple or parameter.count:
            continue
        if parameter.is_flag and not parameter.secondary_opts:
            continue
        names = ", ".join([*parameter.opts, *parameter.secondary_opts])
        raise TestbedError(f"{names}: given {times} times, and it takes one value", hint="say it once")
