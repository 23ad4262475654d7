"""The verb `exec`."""

import sys
from typing import Any

from testbed.cli import options
from testbed.cli.command import argument, command

CANNOT_RUN = 126
"""The exit code of shells for a program that is there and cannot be run."""
NO_PROGRAM = 127
"""That of shells for a program that is not there."""


@command(
    "exec",
    context_settings={"allow_extra_args": False, "ignore_unknown_options": True},
    codes={
        "own": "that of the command, and 128 + n where signal n has ended it",
        CANNOT_RUN: "the command cannot be run",
        NO_PROGRAM: "there is no such command",
    },
)
@options.node
@argument("command", nargs=-1, required=True, metavar="-- CMD...", help="The command and its arguments.")
@options.lab_name
def execute(node: str, command: tuple[str, ...], name: str | None) -> None:
    """Run a command in a node."""
    from testbed.base.linux.processes import clean_environment
    from testbed.cli.lab_choice import open_lab
    from testbed.cli.signals import code_of, terminal_handed_over
    from testbed.lab.features.management.client_environment import service_environment

    lab = open_lab(name)
    options: dict[str, Any] = {}
    if more := service_environment(lab, node):
        options["env"] = clean_environment({**lab.environment(node), **more})
    try:
        process = lab.spawn(node, command, own_sysfs=True, **options)
    except FileNotFoundError:
        sys.exit(_refused(command[0], "command not found", NO_PROGRAM))
    except OSError as error:
        sys.exit(_refused(command[0], error.strerror or "cannot be run", CANNOT_RUN))
    with terminal_handed_over():
        sys.exit(code_of(process.wait()))


def _refused(program: str, why: str, code: int) -> int:
    print(f"error: {program}: {why}", file=sys.stderr)
    return code
