"""The `testbed` command: the options of all verbs, and the entry point. Each verb's module declares the verb itself.

The module of a verb is imported when the verb is used, and all of them for `testbed --help`. They import what they work
with inside their functions, and leave out `from __future__ import annotations`, so that Typer has no text of
annotations to compile: both keep help and shell completion fast.
"""

import errno
import gc
import os
import signal
import sys
from types import FrameType
from typing import Annotated, NoReturn

import typer

from testbed.base.errors import TestbedError
from testbed.base.version import __version__
from testbed.cli.root_group import WRITTEN_ARGUMENTS, RootGroup
from testbed.cli.signals import stand_by_the_outcome

COLLECT_AT_OBJECTS = 50_000
"""How many more objects than before have the garbage collector look for cycles among them."""

app = typer.Typer(
    name="testbed",
    cls=RootGroup,
    help="A scale model of an AI data-centre fabric on one Linux machine: real FRR, real kernel, real packets.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"auto_envvar_prefix": "TESTBED", "help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"testbed {__version__}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "warning",
    on: Annotated[str | None, typer.Option("--on", help="Run the verb there: vm, or ssh://user@host.")] = None,
    clock: Annotated[str, typer.Option("--clock", help="Of --on vm: wall, or virtual (for run).")] = "wall",
) -> None:
    """A scale model of an AI data-centre fabric on one Linux machine."""
    import logging

    level = logging.getLevelNamesMapping().get(log_level.upper())
    if level is None:
        raise TestbedError(f"--log-level {log_level}: expected debug, info, warning or error")
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")
    if on is not None and context.invoked_subcommand != "vm":
        from testbed.cli.machine import elsewhere

        raise typer.Exit(elsewhere.run_elsewhere(on, clock, context.meta[WRITTEN_ARGUMENTS]))
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
    except KeyboardInterrupt:
        _fail("interrupted", 130)
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
