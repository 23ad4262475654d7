"""The `testbed` command: its own options, and the entry point. Each verb's module declares the verb itself.

The module of a verb is imported when the verb is used, and all of them for `testbed --help`. They import what they work
with inside their functions, which keeps help and shell completion fast.
"""

import errno
import gc
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from testbed.base.errors import TestbedError
from testbed.base.version import __version__
from testbed.cli.command import option
from testbed.cli.signals import stand_by_the_outcome
from testbed.cli.verbs import WRITTEN_ARGUMENTS, Verbs

COLLECT_AT_OBJECTS = 50_000
"""How many more objects than before have the garbage collector look for cycles among them."""


def _print_version(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        click.echo(f"testbed {__version__}")
        context.exit()


def _complete(context: click.Context, asked: click.Parameter, wanted: bool) -> None:
    """Print what the shell needs to complete our command lines, or install it."""
    if not wanted or context.resilient_parsing:
        return
    from testbed.cli.completion import completion_script, current_shell, install_completion

    shell = current_shell()
    if asked.name == "show_completion":
        click.echo(completion_script(context.command, shell))
    else:
        path = install_completion(context.command, shell, Path.home())
        click.echo(f"{shell} completion installed in {path}\nCompletion will take effect once you restart the terminal")
    context.exit()


@click.command(
    "testbed",
    cls=Verbs,
    context_settings={
        "auto_envvar_prefix": "TESTBED",
        "help_option_names": ["-h", "--help"],
        "show_default": True,
    },
)
@option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print it.")
@option("--log-level", default="warning", help="debug, info, warning or error.")
@option("--on", help="Run the verb there: vm, or ssh://user@host.")
@option("--clock", default="wall", help="Of --on vm: wall, or virtual (for run).")
@option(
    "--install-completion",
    is_flag=True,
    expose_value=False,
    callback=_complete,
    help="Install completion for the current shell.",
)
@option(
    "--show-completion",
    is_flag=True,
    expose_value=False,
    callback=_complete,
    help="Show completion for the current shell, to copy it or customize the installation.",
)
@click.pass_context
def app(context: click.Context, log_level: str, on: str | None, clock: str) -> None:
    """A scale model of an AI data-centre fabric on one Linux machine: real FRR, real kernel, real packets."""
    import logging

    level = logging.getLevelNamesMapping().get(log_level.upper())
    if level is None:
        raise TestbedError(f"--log-level {log_level}: expected debug, info, warning or error")
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")
    if on is not None and context.invoked_subcommand != "vm":
        from testbed.cli.machine import elsewhere

        sys.exit(elsewhere.run_elsewhere(on, clock, context.meta[WRITTEN_ARGUMENTS]))
    if clock != "wall":
        raise TestbedError("--clock virtual: time is virtual in the lab VM only: --on vm")


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    stand_by_the_outcome()
    raise KeyboardInterrupt


def main() -> None:
    """Entry point: errors become one clear message and an exit code.

    The first SIGINT or SIGTERM interrupts; what follows it only undoes, and more of them change nothing.
    """
    # What a start makes stays: looking through it every 700 objects (the default) takes an eighth of the start.
    gc.set_threshold(COLLECT_AT_OBJECTS)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        app(prog_name="testbed")
    except TestbedError as error:
        _fail(str(error), error.exit_code if error.exit_code else 1)
    except SystemExit:
        stand_by_the_outcome()
        raise
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.EDQUOT):
            raise
        where = f" ({error.filename})" if error.filename else ""
        _fail(f"{error.strerror}{where}", 1)


def _fail(message: str, code: int) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(code)
