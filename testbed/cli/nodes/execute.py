"""The verb `exec`."""

import sys
from typing import Any

from testbed.base.errors import TestbedError
from testbed.cli import options
from testbed.cli.command import argument, command


@command("exec", context_settings={"allow_extra_args": False, "ignore_unknown_options": True})
@options.node
@argument("command", nargs=-1, required=True, metavar="-- CMD...", help="The command and its arguments.")
@options.lab_name
def execute(node: str, command: tuple[str, ...], name: str | None) -> None:
    """Run a command in a node; its exit code is ours."""
    from testbed.base.linux.processes import clean_environment
    from testbed.cli.lab_choice import open_lab
    from testbed.cli.signals import terminal_handed_over
    from testbed.lab.features.management.services_apply import service_environment

    lab = open_lab(name)
    options: dict[str, Any] = {}
    if more := service_environment(lab, node):
        options["env"] = clean_environment({**lab.environment(node), **more})
    try:
        process = lab.spawn(node, command, own_sysfs=True, **options)
    except FileNotFoundError as error:
        raise TestbedError(f"{command[0]}: command not found") from error
    with terminal_handed_over():
        status = process.wait()
    sys.exit(status if status >= 0 else 128 - status)  # 128 + n for signal n, as shells say it
