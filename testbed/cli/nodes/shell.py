"""The verb `shell`."""

import os

import typer

from testbed.cli.options import LabName, NodeArgument
from testbed.cli.panels import NODES_AND_LINKS

app = typer.Typer()


@app.command(rich_help_panel=NODES_AND_LINKS)
def shell(node: NodeArgument, name: LabName = None) -> None:
    """Open a shell in a node."""
    from testbed.base.linux.processes import search_path
    from testbed.cli.lab_choice import open_lab
    from testbed.cli.nodes.terminal import terminal_handed_over
    from testbed.lab.features.management.services_apply import service_environment

    lab = open_lab(name)
    prompt = {"PS1": f"{lab.name}/{node}# ", "TESTBED_NODE": node}
    if lab.runtime(node) is not None:
        # Of a container it is only known that it has a shell, if it has any.
        with terminal_handed_over():
            raise typer.Exit(lab.spawn(node, ["/bin/sh"], env=prompt).wait())
    program = os.environ.get("SHELL") or "/bin/sh"
    own = {**lab.environment(node), **service_environment(lab, node)}
    environment = {**os.environ, "PATH": search_path(), **own, **prompt}
    argv = [program, "--norc"] if program.endswith("bash") else [program]
    process = lab.spawn(node, argv, own_sysfs=True, env=environment)
    with terminal_handed_over():
        raise typer.Exit(process.wait())
