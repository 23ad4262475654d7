"""The `testbed` command: its own options, and the entry point. Each verb's module declares the verb itself.

The module of a verb is imported when the verb is used, and all of them for `testbed --help`. They import what they work
with inside their functions, which keeps help and shell completion fast.
"""

import errno
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from testbed.base.errors import ExitCode, TestbedError
from testbed.base.version import __version__
from testbed.cli.command import option
from testbed.cli.signals import nobody_reads, stand_by_the_outcome
from testbed.cli.verbs import WRITTEN_ARGUMENTS, Verbs

CLOCKS = ("wall", "virtual")
LOG_LEVELS = ("debug", "info", "warning", "error")
NOT_TO_BE_HAD = {errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.EISDIR, errno.ENOTDIR}
"""The errors of the kernel for a file that a command needs and cannot have."""
DISK_FULL = {errno.ENOSPC, errno.EDQUOT}


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
    context_settings={"auto_envvar_prefix": "TESTBED", "help_option_names": ["-h", "--help"], "show_default": True},
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
    if log_level.lower() not in LOG_LEVELS:
        raise TestbedError(f"--log-level {log_level}: expected debug, info, warning or error")
    if clock not in CLOCKS:
        raise TestbedError(f"--clock {clock}: expected {' or '.join(CLOCKS)}")
    if log_level.lower() != "warning":  # it is the default of Python's, whose import every command would wait for
        import logging

        logging.basicConfig(level=log_level.upper(), format="%(levelname)s %(name)s: %(message)s")
    if on is not None and context.invoked_subcommand != "vm":
        from testbed.cli.machine import elsewhere

        sys.exit(elsewhere.run_elsewhere(on, clock, context.meta[WRITTEN_ARGUMENTS]))
    if clock != "wall":
        raise TestbedError("--clock virtual: time is virtual in the lab VM only: --on vm")
    from testbed.cli.machine import over

    if on is None and (code := over.run_over(context.meta[WRITTEN_ARGUMENTS])) is not None:
        sys.exit(code)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    stand_by_the_outcome()
    raise KeyboardInterrupt


def main() -> None:
    """Entry point: carry out the command line of this process, and end with its exit code.

    The first SIGINT or SIGTERM interrupts; what follows it only undoes, and more of them change nothing.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    code = exit_code()
    stand_by_the_outcome()
    sys.exit(code)


def exit_code(arguments: Sequence[str] | None = None) -> int:
    """Carry out a command line, by default that of this process, and return its exit code (`ExitCode`, but for verbs
    that run a program: its own). What is wrong is told on standard error."""
    try:
        code = _carry_out(arguments)
        sys.stdout.flush()
    except TestbedError as error:
        return _told(f"{error.trace}error: {error}", error.exit_code)
    except click.ClickException as error:  # all of them are about the command line
        with suppress(BrokenPipeError):
            error.show()
        return ExitCode.NOT_STARTED
    except (KeyboardInterrupt, click.Abort):  # before there was a verb
        return _told("error: interrupted", ExitCode.INTERRUPTED)
    except BrokenPipeError:
        return nobody_reads()
    except OSError as error:
        if error.errno not in NOT_TO_BE_HAD | DISK_FULL:
            return _bug()
        where = f" ({error.filename})" if error.filename else ""
        code = ExitCode.INVALID if error.errno in DISK_FULL else ExitCode.NOT_STARTED
        hint = "\n  hint: name another, or remove it first" if isinstance(error, FileExistsError) else ""
        return _told(f"error: {error.strerror}{where}{hint}", code)
    except Exception:
        return _bug()
    return code


def _carry_out(arguments: Sequence[str] | None) -> int:
    try:
        return app.main(arguments, prog_name="testbed", standalone_mode=False) or ExitCode.PASS
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else ExitCode.PASS


def _told(message: str, code: int) -> int:
    """Say it on standard error, where somebody may have gone who read it, and return the code."""
    with suppress(BrokenPipeError):
        print(message, file=sys.stderr)
    return code


def _bug() -> int:
    """Show what nobody expected, as Python does; nothing can be said of what was asked for."""
    sys.excepthook(*sys.exc_info())  # called where there is an exception
    return ExitCode.INVALID
