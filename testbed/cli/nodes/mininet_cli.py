"""The verb `mininet-cli`: Mininet's prompt on a deployed lab, which stays as it is."""

import signal
from pathlib import Path
from typing import Annotated

import typer

from testbed.base.errors import TestbedError
from testbed.cli.options import LabName
from testbed.cli.panels import NODES_AND_LINKS

app = typer.Typer()


@app.command(name="mininet-cli", rich_help_panel=NODES_AND_LINKS)
def mininet_cli(
    name: LabName = None,
    script: Annotated[Path | None, typer.Option("--script", help="Commands to run; default: a prompt.")] = None,
) -> None:
    """Open Mininet's prompt on a deployed lab, of whatever runtime: nodes, net, pingall, NODE COMMAND."""
    from testbed.cli.lab_choice import lab_name
    from testbed.mininet import CLI, attach

    if script is not None and not script.is_file():
        raise TestbedError(f"{script}: no such file")
    net = attach(lab_name(name, None))
    # Ctrl-C is for the command that runs in a node: Mininet hands it on.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        CLI(net, script=str(script) if script is not None else None)
    finally:
        signal.signal(signal.SIGINT, before)
        net.stop()
