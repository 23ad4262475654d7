"""The verb `shell`."""

import os
import sys

from testbed.cli import options
from testbed.cli.command import command


@command("shell", codes={"own": "that of the shell"})
@options.node
@options.lab_name
def shell(node: str, name: str | None) -> None:
    """Open a shell in a node."""
    from testbed.base.linux.processes import search_path
    from testbed.cli.lab_choice import open_lab
    from testbed.cli.signals import code_of, terminal_handed_over
    from testbed.lab.features.management.client_environment import service_environment

    lab = open_lab(name)
    prompt = {"PS1": f"{lab.name}/{node}# ", "TESTBED_NODE": node}
    if lab.runtime(node) is not None:
        # Of a container it is only known that it has a shell, if it has any.
        with terminal_handed_over():
            sys.exit(code_of(lab.spawn(node, ["/bin/sh"], env=prompt).wait()))
    program = os.environ.get("SHELL") or "/bin/sh"
    own = {**lab.environment(node), **service_environment(lab, node)}
    environment = {**os.environ, "PATH": search_path(), **own, **prompt}
    argv = [program, "--norc"] if program.endswith("bash") else [program]
    process = lab.spawn(node, argv, own_sysfs=True, env=environment)
    with terminal_handed_over():
        sys.exit(code_of(process.wait()))
