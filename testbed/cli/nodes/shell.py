"""The verb `shell`."""

import sys

from testbed.cli import options
from testbed.cli.command import command


@command("shell", codes={"own": "that of the shell"})
@options.node
@options.lab_name
def shell(node: str, name: str | None) -> None:
    """Open a shell in a node."""
    from testbed.api.shells import shell_command
    from testbed.cli.lab_choice import open_lab
    from testbed.cli.signals import code_of, terminal_handed_over

    lab = open_lab(name)
    argv, settings = shell_command(lab, node)
    process = lab.spawn(node, argv, **settings)
    with terminal_handed_over():
        sys.exit(code_of(process.wait()))
