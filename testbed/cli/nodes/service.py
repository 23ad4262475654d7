"""The verb `service restart`. How services stand is a view of `inspect`."""

from typing import Annotated

import typer

from testbed.cli.options import LabName
from testbed.cli.panels import NODES_AND_LINKS, verb_group

app = verb_group("service", NODES_AND_LINKS, "Start services of the management network again.")


@app.command()
def restart(
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="ssh, dns, ...: `inspect services` lists them.")],
    node: Annotated[str | None, typer.Argument(metavar="[NODE]", help="Only on this node.")] = None,
    name: LabName = None,
) -> None:
    """End a service and start it again, on every node that runs it or on one."""
    from testbed.cli.lab_choice import open_lab
    from testbed.lab.features.management.services_apply import restart_services

    nodes = restart_services(open_lab(name), service, node)
    print(f"{service} runs on {nodes[0] if len(nodes) == 1 else f'{len(nodes)} nodes'}")


@app.callback()
def service() -> None:
    """Start services of the management network again."""
