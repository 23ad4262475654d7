"""The verb `exec`."""

from typing import Annotated, Any

import typer

from testbed.base.errors import TestbedError
from testbed.cli.options import LabName, NodeArgument
from testbed.cli.panels import NODES_AND_LINKS

app = typer.Typer()


@app.command(
    rich_help_panel=NODES_AND_LINKS, context_settings={"allow_extra_args": False, "ignore_unknown_options": True}
)
def exec(
    node: NodeArgument,
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="The command and its arguments.")],
    name: LabName = None,
) -> None:
    """Run a command in a node; its exit code is ours."""
    from testbed.base.linux.processes import clean_environment
    from testbed.cli.lab_choice import open_lab
    from testbed.cli.nodes.terminal import terminal_handed_over
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
    raise typer.Exit(status if status >= 0 else 128 - status)  # 128 + n for signal n, as shells say it
